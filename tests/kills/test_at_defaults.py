"""The same deaths with the leases, sessions and waiting rooms of the default settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance import people
from tests.acceptance.conftest import TEMPLATES
from tests.acceptance.deployment import Deployment
from tests.acceptance.world import PUSH, World
from tests.kills import deployment as with_traps
from tests.kills.flow import until_sprung
from tests.kills.middle import kill_in_the_middle
from tests.kills.traps import Trap, Traps

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
LEASE_S, WHOLE_WITHIN_S = 30, 35
LANE = "work-push.transactional"


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, second_database: str
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("defaults")
    with with_traps.running(folder, kafka_bootstrap, second_database, TEMPLATES, with_traps.DEFAULTS) as running:
        yield running


async def test_a_worker_killed_right_after_its_claim_is_replaced_within_a_lease(world: World, traps: Traps) -> None:
    """N19"""
    traps.set(LANE, Trap("after_claim"))
    key, user = world.name("single"), world.name("ann")
    sent = await world.notify(user, "alert", key=key, params={"text": "x"}, to=people.to_device(user))
    await until_sprung(world, traps, LANE)
    [delivery] = (await world.until_status(sent, "sent", "delivered", within_s=WHOLE_WITHIN_S))["deliveries"]
    assert delivery["possible_duplicate"] and delivery["calls"] == 2
    assert await world.calls(PUSH, [people.push_key(key)]) == {people.push_key(key): (1, 1)}


async def test_half_of_20000_are_sent_when_a_worker_is_killed_and_all_is_whole_again_within_its_lease(
    world: World,
) -> None:
    cost = await kill_in_the_middle(world, 20_000, 10_000, LEASE_S)
    print(cost)
    assert cost.lost == 0
    assert cost.repeats <= cost.told <= cost.in_flight
    assert cost.whole_after_s <= WHOLE_WITHIN_S
