"""A Redis of its own is killed and started again: nobody trusts it until its last records were applied again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import children, redis_client
from deploy.local import redis as local_redis
from deploy.local import tools
from schemas.errors import StoreDown
from schemas.trips import Epoch
from tests.integration.people.rebuild_world import World


@pytest.fixture
def program() -> str:
    found = tools.redis_server()
    assert found is not None, "redis-server is not installed"
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "redis"
    shutil.rmtree(tmp_path, ignore_errors=True)


async def test_a_killed_redis_is_trusted_again_only_after_its_tail_was_put_back(program: str, folder: Path) -> None:
    server = local_redis.start(program, folder)
    epoch = Epoch()
    client = redis_client.connect(server.url, epoch)
    world = World(client, epoch)
    try:
        await world.rebuild.look()
        await world.write(world.user("u1", "a@example.org"), world.opt_out("u1"))
        before = epoch.run_id
        server.child.kill()
        server.child.wait()
        # Accepted while Redis was away: in the log only, as when the API's write to Redis failed.
        await world.log.publish([world.opt_out("u2")])
        with pytest.raises(StoreDown):
            await world.profiles.load("t", "u1")
        server = await asyncio.to_thread(
            local_redis.start, program, folder, int(server.url.split(":")[2].split("/")[0])
        )
        with pytest.raises(StoreDown):
            await world.profiles.load("t", "u1")
        assert epoch.run_id != before
        assert await world.rebuild.look()
        for user in ("u1", "u2"):
            assert (await world.profiles.load("t", user)).opted_out("email", "news", "marketing")
    finally:
        await client.aclose()
        children.stop(server.child)
