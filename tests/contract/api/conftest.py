from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer

from producers.api.app import build_app
from tests.doubles.api import Api


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def client(api: Api) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    """The application of `api`; its campaigns are loaded."""
    await api.parts.campaigns.open(api.log)
    async with TestClient(TestServer(build_app(api.parts))) as client:
        yield client
