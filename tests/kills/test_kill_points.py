"""Each process is killed in each of its gaps, in the middle of a flow: nothing is lost, and no call is repeated.

Calls that are open when their sender dies are in `test_sends_in_doubt.py`.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemas import codec, facets, gaps
from schemas.messages import (
    Channel,
    Delivery,
    FacetKind,
    Priority,
    RecipientFacet,
)
from tests.acceptance import people
from tests.acceptance.broker import ToWrite
from tests.acceptance.world import PUSH, World
from tests.kills.flow import Flow, caught, until_sprung
from tests.kills.test_sends_in_doubt import LANE, ONE_CALL
from tests.kills.traps import Trap, Traps

API, DISPATCH, FORWARD, RECIPIENTS = "api", "dispatch", "forward", "route-recipients"
OF_AN_ENGINE = ("before_publish", "after_publish", "before_commit")


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.long)


IN_THE_API = [(API, "before_answer", 5), slow(API, "after_audience", 1), (API, "after_request", 1)]
ON_THE_ROAD = [
    slow("callbacks", "after_callback", 2),
    slow("route-requests", "after_route_plan", 3),
    slow("route-requests", "before_publish", 3),
    ("route-requests", "after_publish", 3),
    slow("route-requests", "before_commit", 1),
    slow("route-bulk", "after_route_plan", 1),
    slow("route-bulk", "before_publish", 1),
    slow("route-bulk", "after_publish", 1),
    slow("route-bulk", "before_commit", 1),
    slow("route-callbacks", "before_publish", 2),
    slow("route-callbacks", "after_publish", 2),
    slow("route-callbacks", "before_commit", 1),
    slow(DISPATCH, "before_release", 1),
    (DISPATCH, "after_release", 1),
    slow("streams-fan_out", "after_page_plan", 1),
    ("streams-fan_out", "after_fan_out", 1),
    slow("streams-status", "after_state", 2),
    slow("streams-status", "before_changelog", 2),
    ("streams-status", "after_changelog", 2),
    slow("streams-status", "after_rows", 2),
]
"""(role, gap, at which passing)."""
ENGINES = ("route-requests", "route-bulk", "route-callbacks", FORWARD, LANE)
"""Those that publish; `route-recipients` only commits."""
ELSEWHERE = {"after_log", "after_ends", "after_held_release", "after_digest", "after_fallback"}
"""Killed in tests of their own below."""


@pytest.mark.parametrize(("role", "gap", "passing"), ON_THE_ROAD)
async def test_a_death_between_two_steps_repeats_no_call_and_loses_nobody(
    world: World, traps: Traps, role: str, gap: str, passing: int
) -> None:
    flow, dead = await caught(world, traps, role, Trap(gap, passing=passing))
    ended = await flow.ended()
    assert await world.running(role, besides=dead)
    assert (ended.repeats, ended.doubted, ended.never_made) == (0, 0, 0)


@pytest.mark.parametrize(("role", "gap", "passing"), IN_THE_API)
async def test_a_caller_who_got_no_answer_asks_again_and_gets_what_it_asked_for_once(
    world: World, traps: Traps, role: str, gap: str, passing: int
) -> None:
    traps.set(role, Trap(gap, passing=passing))
    flow = Flow(world)
    await flow.begin_in_turn()
    dead = await until_sprung(world, traps, role)
    ended = await flow.ended()
    assert await world.running(role, besides=dead)
    assert (ended.repeats, ended.doubted, ended.never_made) == (0, 0, 0)


@pytest.mark.long
async def test_a_request_in_the_log_whose_key_was_never_answered_stays_one_notification(
    world: World, traps: Traps
) -> None:
    """For 35 s the first request counts as running; then its copy is accepted, and ends naming the first."""
    traps.set(API, Trap("after_log", passing=5))
    flow = Flow(world)
    await flow.begin_in_turn()
    await until_sprung(world, traps, API)
    ended = await flow.ended()
    assert (ended.repeats, ended.doubted, ended.never_made) == (0, 0, 0)


@pytest.mark.long
@pytest.mark.parametrize(("gap", "deaths"), list(zip(OF_AN_ENGINE, (2, 5, 5), strict=True)))
async def test_a_waiting_room_that_dies_again_and_again_starts_no_second_chain_of_calls(
    world: World, traps: Traps, gap: str, deaths: int
) -> None:
    """K47: deaths between writing a record back to its lane and committing that.

    Before the writing only two in a row: at the third start without progress a record is suspected and parked.
    """
    flow = Flow(world)
    await flow.begin(errors={"500": 1.0})
    for _ in range(deaths):
        traps.set(FORWARD, Trap(gap))
        await until_sprung(world, traps, FORWARD)
    await world.all_is_well()
    ended = await flow.ended()
    assert (ended.repeats, ended.doubted, ended.never_made) == (0, 0, 0)


@pytest.mark.long
async def test_a_wish_that_only_the_log_has_holds_though_its_reader_dies(world: World, traps: Traps) -> None:
    """As an API process leaves it that died before it told Redis."""
    user = world.name("bob")
    wish = RecipientFacet(people.TENANT, user, FacetKind.OPT_OUT, int(time.time() * 1_000), channel="push", kind="*")
    topic = world.topics.recipients
    made = facets.FacetTopic(topic, await asyncio.to_thread(world.broker.partitions, topic))
    in_the_log = made.record(people.TENANT, user, facets.name_of(wish), wish)
    traps.set(RECIPIENTS, Trap("before_commit"))
    assert in_the_log.partition is not None
    await world.write(topic, ToWrite(in_the_log.value, in_the_log.key, partition=in_the_log.partition))
    dead = await until_sprung(world, traps, RECIPIENTS)
    assert await world.running(RECIPIENTS, besides=dead)
    await world.until_read("route recipients")
    sent = await world.notify(user, "alert", key=user, params={"text": "x"}, to=people.to_device(user))
    [told] = (await world.until_status(sent, "suppressed"))["deliveries"]
    assert told["reason"] == "opted_out"
    assert await world.calls(PUSH, [people.push_key(user)]) == {people.push_key(user): (0, 0)}


@pytest.mark.long
async def test_recipients_that_were_ended_by_a_leader_who_died_are_ended_once(world: World, traps: Traps) -> None:
    users = [world.name(f"reader{number}") for number in range(300)]
    traps.set(DISPATCH, Trap("after_ends"))
    async with world.stopped(DISPATCH):
        campaign = await world.campaign("news", people.readers(users))
        await world.must("POST", f"/v1/campaigns/{campaign}/cancel")
    await until_sprung(world, traps, DISPATCH)
    told = await world.until_told(campaign, lambda seen: sum(seen["outcomes"].values()) >= 300, "has ended")
    assert (told["status"], told["outcomes"]) == ("cancelled", {"cancelled": 300})
    assert len(await world.recipients(campaign)) == 300
    assert set((await world.calls(PUSH, people.reader_keys(campaign, users))).values()) == {(0, 0)}


@pytest.mark.long
async def test_what_came_out_of_hold_with_a_leader_who_died_at_once_comes_out_again_and_is_sent_once(
    world: World, traps: Traps
) -> None:
    users = [world.name(f"patient{number}") for number in range(20)]
    traps.set(DISPATCH, Trap("after_held_release"))
    wish = {"params": {"text": "x"}, "send_at": (datetime.now(UTC) + timedelta(seconds=8)).isoformat()}
    sent = [await world.notify(user, "alert", key=user, to=people.to_device(user), **wish) for user in users]
    dead = await until_sprung(world, traps, DISPATCH)
    for one in sent:
        await world.until_status(one, "delivered")
    assert await world.running(DISPATCH, besides=dead)
    await world.until_read("work push.transactional")
    assert set((await world.calls(PUSH, map(people.push_key, users))).values()) == {(1, 1)}


@pytest.mark.long
async def test_a_leader_that_died_behind_a_digest_makes_no_second_one_and_leaves_nobody_out(
    world: World, traps: Traps
) -> None:
    """N47."""
    users = [world.name(f"reader{number}") for number in range(10)]
    traps.set(DISPATCH, Trap("after_digest"))
    sent = []
    async with world.stopped("route-bulk"):
        for number in range(3):
            for user in users:
                wish = {"params": {"by": f"friend{number}"}, "to": people.to_device(user)}
                sent.append(await world.notify(user, "comments", key=f"{user}-{number}", **wish))
    dead = await until_sprung(world, traps, DISPATCH)
    for one in sent:
        [told] = (await world.until_status(one, "suppressed"))["deliveries"]
        assert told["reason"] == "in_digest"
        await world.until_status(told["detail"].removeprefix("in digest "), "delivered")
    assert await world.running(DISPATCH, besides=dead)
    await world.until_read("route bulk")
    await world.until_read("work push.bulk")
    for user in users:
        named = [name for message in await world.messages(f"token-{user}") for name in message["text"].split()]
        assert sorted(named) == ["friend0", "friend1", "friend2"]


@pytest.mark.long
async def test_a_fallback_that_was_decided_by_a_worker_who_died_goes_into_its_lane_once(
    world: World, traps: Traps
) -> None:
    """Nobody works that lane here; the channel between the two has no provider."""
    user, lane = world.name("visitor"), world.topics.lane(Channel.INAPP, Priority.TRANSACTIONAL)
    await world.faults(PUSH, refusals={"dead_address": 1})
    traps.set("work-push.transactional", Trap("after_fallback"))
    sent = await world.notify(user, "signin", key=user, params={"code": "123456"}, to=people.to_device(user))
    dead = await until_sprung(world, traps, "work-push.transactional")
    assert await world.running("work-push.transactional", besides=dead)

    async def look() -> dict[str, str]:
        return {one["channel"]: one["state"] for one in (await world.status(sent))["deliveries"]}

    await world.until(look, lambda seen: seen == {"push": "failed", "inapp": "accepted"}, "it turns to the inbox")
    await world.until_read("work push.transactional")
    lying = [codec.decode(record.value, Delivery) for record in await world.records(lane) if record.value]
    assert [one.user_id for one in lying].count(user) == 1
    assert await world.calls(PUSH, [people.push_key(user)]) == {people.push_key(user): (1, 0)}


def test_every_gap_has_its_death() -> None:
    killed = {(role, gap) for role, gap, _ in (getattr(one, "values", one) for one in (*IN_THE_API, *ON_THE_ROAD))}
    killed |= {(LANE, gap) for gap in ONE_CALL} | {(FORWARD, gap) for gap in OF_AN_ENGINE}
    assert {*ELSEWHERE, *(gap for _, gap in killed)} == set(gaps.AT_STAKE)
    assert {(role, gap) for role in ENGINES for gap in OF_AN_ENGINE} <= killed
