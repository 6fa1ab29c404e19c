"""Redis as the processes open it, a tenant for each test, and a topic for its facets."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from deploy import redis_client
from schemas import keys
from schemas.trips import Epoch
from tests.integration.people.commands import run


@pytest.fixture
def tenant() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def epoch() -> Epoch:
    return Epoch()


@pytest.fixture
async def redis(redis_url: str, epoch: Epoch) -> AsyncIterator[Redis]:
    """Trusted, as after a rebuild."""
    client = redis_client.connect(redis_url, epoch)
    await run(client, "PING")
    await client.set(keys.REDIS_EPOCH, epoch.run_id)
    yield client
    await client.aclose()
