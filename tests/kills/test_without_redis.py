"""Redis is away, and senders die meanwhile: nothing is lost, and only what such a sender had called may be repeated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from schemas.messages import Channel, Priority
from tests.acceptance import own_stack, people
from tests.acceptance.broker import ToWrite
from tests.acceptance.conftest import TEMPLATES
from tests.acceptance.deployment import Deployment
from tests.acceptance.own_stack import OwnStack
from tests.acceptance.test_outages import Codes, traffic, until_all_work
from tests.acceptance.world import SMS, World
from tests.kills import deployment as with_traps
from tests.kills.flow import until_sprung
from tests.kills.traps import Trap, Traps

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
AWAY_S = 20.0
"""Longer than any lease and session here."""
CODES = 12
SENDERS, CODE_SENDER = ("work-push.bulk", "work-push.bulk-2"), "work-sms.transactional"
CODE_WORK = "work sms.transactional"
SETTINGS = f"""{with_traps.SHORT.replace("workers = {{", 'workers = {{ "sms.transactional" = 2,')}
[channels.sms]
providers = ["texter"]
[providers.texter]
kind = "http"
url = "http://127.0.0.1:{{http}}{SMS}"
callback_secret = "{{secret}}"
rate_per_s = 200
burst = 40
timeout_s = 1
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStack]:
    with own_stack.started(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="module")
def deployment(stack: OwnStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("without-redis")
    with with_traps.running(folder, stack.bootstrap, stack.redis_url, TEMPLATES, SETTINGS) as running:
        yield running


@pytest.fixture
async def world(deployment: Deployment, stack: OwnStack) -> AsyncIterator[World]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client:
        made = World(deployment, client)
        await made.new_ledger()
        yield made
        stack.mend()
        await made.all_is_well()


@pytest.fixture
def traps(deployment: Deployment) -> Iterator[Traps]:
    made = with_traps.traps_of(deployment.folder)
    yield made
    made.clear()


async def test_a_campaign_whose_senders_die_before_and_while_redis_is_away_reaches_everybody_who_wants_it(
    world: World, stack: OwnStack, traps: Traps
) -> None:
    """One dies with calls open, of which nobody can be told any more; the other one while it waits."""
    async with traffic(world) as sent:
        traps.set(SENDERS[0], Trap("after_send", passing=20))
        dead = await until_sprung(world, traps, SENDERS[0])
        stack.kill_redis()
        gone_s = time.monotonic()
        world.kill(next(role for role in SENDERS if world.deployment.pid(role) not in (None, dead)))
        await asyncio.sleep(max(0.0, gone_s + AWAY_S - time.monotonic()))
        stack.start_redis()
        await until_all_work(world)
    await sent.all_arrived()


async def test_only_what_a_dead_sender_called_without_redis_may_come_again_and_says_so(
    world: World, stack: OwnStack, traps: Traps
) -> None:
    """Its calls were in its own memory; who lives writes the claims of theirs afterwards, so that they are kept."""
    codes = Codes(world)
    anna, bob = await codes.people()
    stack.kill_redis()
    waiting = [await codes.ask("code", codes.word("waits")) for _ in range(5)]
    barred = await codes.ask("login", codes.word("barred"), user=bob, to=people.to_phone(bob))
    before = [await codes.ask("login", codes.word("before"), user=anna), *await _strangers(codes, "early")]
    await asyncio.gather(*map(codes.arrives, before))
    traps.set(CODE_SENDER, Trap("after_send"))
    before += await _strangers(codes, "amid")
    await until_sprung(world, traps, CODE_SENDER)
    await asyncio.gather(*map(codes.arrives, before))
    after = await _strangers(codes, "late")
    await asyncio.gather(*map(codes.arrives, after))
    assert set((await codes.calls([*waiting, barred])).values()) == {(0, 0)}, "somebody was called without a look"
    stack.start_redis()
    await until_all_work(world)

    for key, one in codes.ids.items():
        [told] = (await world.until_status(one, "suppressed", "sent", "delivered"))["deliveries"]
        assert (told["state"] == "suppressed") == (key == barred), (key, told)
        assert bool(told.get("possible_duplicate")) == (key in (*before, *after)), (key, told)
    sends = await _sends(codes)
    assert {key: sends[key] for key in codes.ids if key not in before and sends[key] != 1} == {barred: 0}
    assert {sends[key] for key in before} == {1, 2}, "at least the one that it had just called was called again"
    await _all_read_again(world)
    again = {key: count for key, count in (await _sends(codes)).items() if count != sends[key]}
    assert set(again) <= set(before), "a claim that was written afterwards keeps a copy from being sent"


async def _strangers(codes: Codes, word: str) -> list[str]:
    """Login codes for so many, at the same moment."""
    return list(await asyncio.gather(*(codes.ask("login", codes.word(word)) for _ in range(CODES))))


async def _sends(codes: Codes) -> dict[str, int]:
    found = await codes.calls(codes.ids)
    return {key: found[people.sms_key(key)][1] for key in codes.ids}


async def _all_read_again(world: World) -> None:
    """What lies in the lane is written to it once more."""
    lane: Any = world.topics.lane(Channel.SMS, Priority.TRANSACTIONAL)
    written = await world.records(lane)
    await world.write(lane, *(ToWrite(one.value, one.key, one.headers) for one in written))
    await world.until_read(CODE_WORK)
