"""A provider's rate is changed while a campaign runs: it goes on to its last recipient."""

from __future__ import annotations

import time
from pathlib import Path

import aiohttp
import pytest

from tests.acceptance import deployment as deployments
from tests.acceptance import people
from tests.acceptance.conftest import TEMPLATES
from tests.acceptance.deployment import Deployment
from tests.acceptance.watch import Watch
from tests.acceptance.world import PUSH, World

SIZE = 5_239
RATE, BURST = "rate_per_s = {}\nburst = {}", 50
FIRST_PER_S, SLOWER_PER_S, FASTER_PER_S = 400, 200, 1_200
LIMITS = {"push_per_s": FIRST_PER_S, "push_burst": BURST, "sms_per_s": 100, "sms_burst": 20}


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_campaign_restarted_twice_with_other_rates_reaches_everyone_and_is_finished_only_then(
    tmp_path: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    """N05"""
    database = deployments.database(redis_url, deployments.OTHER_DATABASES[0])
    given = {**LIMITS, "lease_s": deployments.LEASE_S}
    with deployments.outside(tmp_path, kafka_bootstrap, database, TEMPLATES, deployments.QUICK, **given) as found:
        async with aiohttp.ClientSession() as client:
            world = World(found, client)
            users = [world.name(f"reader{number}") for number in range(SIZE)]
            with deployments.up(found):
                campaign = await world.campaign("news", people.readers(users))
                watch = Watch(world, campaign, SIZE)
                await watch.until_sent(SIZE * 0.2)
            _set_rate(found, FIRST_PER_S, SLOWER_PER_S)
            with deployments.up(found):
                # By the ledger: what was sent before may be counted in the status only now.
                began_s, sent = time.time(), (await world.ledger(PUSH))["sends"]
                await world.until(
                    lambda: world.ledger(PUSH), lambda seen: seen["sends"] >= sent + 800, "800 more are sent"
                )
                most = await _most_in_a_second(world, began_s)
                assert SLOWER_PER_S / 2 < most <= SLOWER_PER_S + BURST
            _set_rate(found, SLOWER_PER_S, FASTER_PER_S)
            with deployments.up(found):
                told = await watch.until_finished()
                assert told["status"] == "processed"
                # What is reported while everything is down the gateway gives up telling after some seconds.
                assert set(told["outcomes"]) <= {"sent", "delivered"} and sum(told["outcomes"].values()) == SIZE
                sends = [sends for _, sends in (await world.calls(PUSH, people.reader_keys(campaign, users))).values()]
                assert min(sends) == 1
                await world.until_repeats_are_told(campaign, sum(sends) - SIZE)


def _set_rate(found: Deployment, old: int, new: int) -> None:
    file = found.folder / deployments.SETTINGS
    before, after = RATE.format(old, BURST), RATE.format(new, BURST)
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


async def _most_in_a_second(world: World, since_s: float) -> int:
    seconds = (await world.ledger(PUSH))["per_second"]
    return max((count for second, count in seconds.items() if int(second) > since_s), default=0)
