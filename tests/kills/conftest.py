"""One deployment with traps for all of these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.acceptance import deployment as deployments
from tests.acceptance.conftest import TEMPLATES
from tests.acceptance.deployment import Deployment
from tests.acceptance.world import World
from tests.kills import deployment as with_traps
from tests.kills.traps import Traps

DATABASE = 14
TEST_TIMEOUT_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.fixture(scope="session")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, own_database: str
) -> Iterator[Deployment]:
    with with_traps.running(tmp_path_factory.mktemp("kills"), kafka_bootstrap, own_database, TEMPLATES) as running:
        yield running


@pytest.fixture(scope="session")
def own_database(redis_url: str) -> str:
    """The one that was named, or on a server of our own one that no other test uses."""
    is_named = urlsplit(redis_url).path not in ("", "/", "/0")
    return redis_url if is_named else deployments.database(redis_url, DATABASE)


@pytest.fixture(scope="session")
def second_database(redis_url: str) -> str:
    """For a deployment of a module's own: the session's may be running, and two would empty each other's Redis."""
    return deployments.database(redis_url, deployments.OTHER_DATABASES[0])


@pytest.fixture
async def world(deployment: Deployment) -> AsyncIterator[World]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client:
        made = World(deployment, client)
        await made.all_is_well()
        yield made
        await made.all_is_well()


@pytest.fixture
def traps(deployment: Deployment) -> Iterator[Traps]:
    made = with_traps.traps_of(deployment.folder)
    yield made
    made.clear()


@pytest.fixture(autouse=True)
def complaints(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the roles complained of is shown with a failure."""
    yield
    if "deployment" in request.fixturenames:
        for log, lines in request.getfixturevalue("deployment").complaints():
            print(f"--- {log}\n{lines}")
