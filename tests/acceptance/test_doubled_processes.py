"""Two processes where there may be only one: the second refuses to start, and the first does not notice."""

from __future__ import annotations

import asyncio

import pytest

from deploy import children
from tests.acceptance import deployment, people
from tests.acceptance.world import World

MISCONFIGURED = 78


@pytest.mark.parametrize("role", ["fan_out", "status"])
async def test_a_second_process_on_a_folder_says_what_to_do_and_the_first_works_on(world: World, role: str) -> None:
    """K24: both would be the same member of their group."""
    working = world.deployment.pid(f"streams-{role}")
    settings = str(world.deployment.folder / "tidings.toml")
    command = (str(deployment.COMMAND), "streams", role, "--config", settings)
    second = await children.begin(
        *command, cwd=world.deployment.folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(deployment.READY_WITHIN_S):
        said, _ = await second.communicate()
    assert second.returncode == MISCONFIGURED, said.decode()
    assert "needs a folder of its own" in said.decode()

    users = [world.name(f"{role}{number}") for number in range(3)]
    told = await world.until_finished(await world.campaign("news", people.readers(users)))
    assert told["status"] == "processed"
    assert world.deployment.pid(f"streams-{role}") == working
