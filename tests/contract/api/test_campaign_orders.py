"""Pause, resume, cancel, another pace or weight: who may, when, and what holds when several order at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from consumers.controls import Controls
from producers.api.app import build_app
from producers.auth import Scope
from producers.campaign_view import CampaignView, Options
from schemas import codec, keys, messages
from schemas.messages import CampaignOrder, CampaignStatus
from schemas.records import Outgoing, Placed, Record, TopicView
from schemas.topics import Topics
from streams.campaigns import Campaigns
from tests.doubles.api import Api, api_key
from tests.doubles.memory_log import MemoryLog

Client = TestClient[Any, Any]
PATH = "/v1/campaigns"
ORDERS = ("pause", "resume", "cancel")
NEWS: dict[str, Any] = {"campaign_id": "spring", "template": "news", "recipients": [{"user_id": 1}], "pace_per_s": 50}


@pytest.fixture
async def spring(client: Client) -> str:
    """An accepted campaign; its address."""
    assert (await client.post(PATH, json=NEWS)).status == 202
    return f"{PATH}/spring"


async def ordered(client: Client, path: str, word: str, status: int = 202) -> Any:
    answer = await client.post(f"{path}/{word}")
    body = await answer.json()
    assert answer.status == status, body
    return body


def controls(api: Api) -> list[Record]:
    return api.log.records(api.topics.campaign_control)


async def finish(api: Api, status: CampaignStatus, is_finished: bool = True) -> None:
    now_ms = api.clock.now_ms()
    state = messages.CampaignState(
        "default", "spring", "news", status, 1, 1, 1, 1, 0, {}, {}, 0, 1, 1, now_ms, now_ms if is_finished else None,
        now_ms,
    )  # fmt: skip
    await api.log.publish([Outgoing(api.topics.campaign_state, b"default/spring", codec.encode(state))])


async def test_the_answer_to_an_order_shows_it_and_so_does_what_is_read_afterwards(client: Client, spring: str) -> None:
    for word, status, waits_for in (("pause", "paused", "resume"), ("resume", "running", None)):
        told = await ordered(client, spring, word)
        assert (told["status"], told["waits_for"]) == (status, waits_for)
        assert await (await client.get(spring)).json() == told
    assert (await ordered(client, spring, "cancel"))["status"] == "cancelled"


async def test_an_order_given_twice_is_answered_twice_the_same(client: Client, spring: str) -> None:
    for word in ORDERS:
        assert await ordered(client, spring, word) == await ordered(client, spring, word)


async def test_after_a_cancel_nothing_else_can_be_ordered(api: Api, client: Client, spring: str) -> None:
    await ordered(client, spring, "cancel")
    before = len(controls(api))
    for word in ("pause", "resume"):
        assert "cancelled" in (await ordered(client, spring, word, 409))["detail"]
    assert (await client.patch(spring, json={"weight": 2})).status == 409
    assert len(controls(api)) == before


@pytest.mark.parametrize("status", [CampaignStatus.PROCESSED, CampaignStatus.PARTIALLY_PROCESSED])
async def test_a_finished_campaign_takes_no_orders_and_says_what_it_is(
    api: Api, client: Client, spring: str, status: CampaignStatus
) -> None:
    await finish(api, status)
    for word in ORDERS:
        answer = await client.post(f"{spring}/{word}")
        assert (answer.status, answer.content_type) == (409, "application/problem+json")
        assert status.value in (await answer.json())["detail"]
        assert "Retry-After" not in answer.headers, "it will not pass"
    assert not controls(api)


async def test_a_cancelled_campaign_that_has_ended_may_be_cancelled_again(
    api: Api, client: Client, spring: str
) -> None:
    await ordered(client, spring, "cancel")
    await finish(api, CampaignStatus.CANCELLED)
    assert (await ordered(client, spring, "cancel"))["status"] == "cancelled"


async def test_what_expires_while_it_is_paused_is_told_as_expired(api: Api, client: Client, spring: str) -> None:
    await ordered(client, spring, "pause")
    await finish(api, CampaignStatus.EXPIRED, is_finished=False)
    assert (await (await client.get(spring)).json())["status"] == "expired"
    assert "expired" in (await ordered(client, spring, "resume", 409))["detail"]


async def test_an_unknown_campaign_is_not_there(client: Client) -> None:
    for word in ORDERS:
        await ordered(client, f"{PATH}/nobody", word, 404)
    assert (await client.patch(f"{PATH}/nobody", json={"pace_per_s": 1})).status == 404


async def test_pace_and_weight_change_apart_and_a_pace_of_null_lifts_the_limit(client: Client, spring: str) -> None:
    seen = []
    for change in ({}, {"weight": 7}, {"pace_per_s": 20}, {"pace_per_s": None}, {"pace_per_s": 9, "weight": 1}):
        told = await (await (client.patch(spring, json=change) if change else client.get(spring))).json()
        seen.append((told["pace_per_s"], told["weight"]))
    assert seen == [(50, 1), (50, 7), (20, 7), (None, 7), (9, 1)]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"pace_per_s": 0}, "pace_per_s"),
        ({"pace_per_s": -1}, "pace_per_s"),
        ({"pace_per_s": 1_000_001}, "pace_per_s"),
        ({"pace_per_s": 1.5}, "pace_per_s"),
        ({"pace_per_s": "10"}, "pace_per_s"),
        ({"weight": 0}, "weight"),
        ({"weight": 101}, "weight"),
        ({"weight": None}, "weight"),
        ({"template": "code"}, "template"),
        ({}, "pace_per_s"),
    ],
)
async def test_a_wrong_change_is_refused_naming_the_field_and_changes_nothing(
    api: Api, client: Client, spring: str, change: dict[str, Any], field: str
) -> None:
    answer = await client.patch(spring, json=change)
    assert (answer.status, (await answer.json())["field"]) == (422, field)
    assert not controls(api)


async def test_while_the_log_is_away_no_order_is_confirmed(api: Api, client: Client, spring: str) -> None:
    api.log.fail = True
    await ordered(client, spring, "pause", 503)
    api.log.fail = False
    assert (await (await client.get(spring)).json())["status"] == "running"


async def test_an_order_takes_no_body(api: Api, client: Client, spring: str) -> None:
    assert (await client.post(f"{spring}/cancel", json={"why": "?"})).status == 422
    assert not controls(api)


@pytest.mark.parametrize(
    "orders", [("pause", {"pace_per_s": 9}, {"weight": 5}), ({"pace_per_s": 9}, "cancel", "pause")]
)
async def test_orders_of_two_operators_at_once_do_not_undo_each_other(
    api: Api, client: Client, spring: str, orders: tuple[str | dict[str, int], ...]
) -> None:
    """At two instances, neither of which has seen the other's order; and still after compaction, at every reader."""
    async with another_instance(api) as other:
        for order, door in zip(orders, (other, client, other), strict=True):
            await (door.post(f"{spring}/{order}") if isinstance(order, str) else door.patch(spring, json=order))
    wanted = (CampaignOrder.CANCELLED, 9, 1) if "cancel" in orders else (CampaignOrder.PAUSED, 9, 5)
    for kept in (controls(api), compacted(controls(api))):
        assert known_to_readers(api, kept) == {wanted}


async def test_of_two_orders_of_one_kind_the_last_in_the_log_counts(api: Api, client: Client, spring: str) -> None:
    answers = await asyncio.gather(*(client.post(f"{spring}/{word}") for word in ("pause", "resume") * 4))
    assert {answer.status for answer in answers} == {202}
    last = codec.decode(controls(api)[-1].value, messages.CampaignControl).order
    assert (await (await client.get(spring)).json())["status"] == last


async def test_an_order_goes_through_although_the_other_topics_cannot_be_read_to_their_end(
    api: Api, client: Client, spring: str
) -> None:
    """A pause must not wait for a flood of counts."""
    view = CampaignView(api.topics, api.clock, Options(catch_up_s=0.05))
    await view.open(SlowLog(api.log))
    async with TestClient(TestServer(build_app(replace(api.parts, campaigns=view)))) as slow:
        assert (await ordered(slow, spring, "pause"))["status"] == "paused"
        await ordered(slow, f"{PATH}/nobody", "pause", 503)


async def test_an_order_that_is_not_read_back_in_time_is_answered_as_it_holds(
    api: Api, client: Client, spring: str
) -> None:
    view = CampaignView(api.topics, api.clock, Options(order_seen_s=0.05))
    await view.open(BlindLog(api.log))
    async with TestClient(TestServer(build_app(replace(api.parts, campaigns=view)))) as blind:
        assert (await ordered(blind, spring, "pause"))["status"] == "paused"
        told = await (await blind.patch(spring, json={"weight": 9})).json()
        assert told["weight"] == 9
        assert (await (await blind.get(spring)).json())["weight"] == 1, "the view itself waits for the log"
    assert (await (await client.get(spring)).json())["status"] == "paused"


async def test_operators_and_campaign_owners_may_steer_and_only_their_own_tenants() -> None:
    api = Api(topics=Topics(tenants=("red", "blue")))
    scopes = {"o": Scope.OPERATE, "c": Scope.CAMPAIGNS, "s": Scope.SEND, "r": Scope.READ}
    api.with_keys(
        api_key("b", "blue", Scope.CAMPAIGNS, Scope.OPERATE), *(api_key(k, "red", s) for k, s in scopes.items())
    )
    await api.parts.campaigns.open(api.log)
    async with TestClient(TestServer(build_app(api.parts))) as client:
        asked = {key: {"Authorization": f"Bearer {key}"} for key in (*scopes, "b")}
        assert (await client.post(PATH, json=NEWS, headers=asked["c"])).status == 202
        for key, status in (("o", 202), ("c", 202), ("s", 403), ("r", 403), ("b", 404)):
            assert (await client.post(f"{PATH}/spring/pause", headers=asked[key])).status == status
            assert (await client.patch(f"{PATH}/spring", json={"weight": 2}, headers=asked[key])).status == status


class another_instance:  # noqa: N801 used like a function
    """An API over the same log, whose view of orders stays what it was when it was opened."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def __aenter__(self) -> Client:
        view = CampaignView(self._api.topics, self._api.clock)
        await view.open(DeafLog(self._api.log))
        self._client: Client = TestClient(TestServer(build_app(replace(self._api.parts, campaigns=view))))
        await self._client.start_server()
        return self._client

    async def __aexit__(self, *error: object) -> None:
        await self._client.close()


class DeafLog:
    """Tails that never show more than what was there at the start."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    async def follow(self, topics: Any, on_record: Callable[[Record], None]) -> TopicView:
        for record in self._log.records(*topics):
            on_record(record)
        return self

    async def caught_up(self) -> None:
        return None

    async def seen(self, topic: str, placed: Placed) -> None:
        return None


class BlindLog(DeafLog):
    """As DeafLog; what is waited for never comes."""

    async def seen(self, topic: str, placed: Placed) -> None:
        await asyncio.Event().wait()


class SlowLog:
    """Tails whose ends are reached once, at the start, and never again."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._is_open = False

    async def follow(self, topics: Any, on_record: Callable[[Record], None]) -> TopicView:
        self._view = await self._log.follow(topics, on_record)
        return self

    async def caught_up(self) -> None:
        if self._is_open:
            await asyncio.Event().wait()
        self._is_open = True

    async def seen(self, topic: str, placed: Placed) -> None:
        await self._view.seen(topic, placed)


def compacted(records: list[Record]) -> list[Record]:
    """What the broker keeps in the end: the newest record of each key."""
    return list({record.key: record for record in records}.values())


def known_to_readers(api: Api, records: list[Record]) -> set[tuple[CampaignOrder, int, int]]:
    """(order, pace, weight) as dispatch and a sender know them from these records."""
    [request] = api.log.records(api.topics.campaign_requests)
    dispatch, sender = Campaigns(api.topics, {}), Controls()
    dispatch.on_record(request)
    for record in records:
        dispatch.on_record(record)
        sender.see(record)
    [(campaign, _)] = dispatch.unfinished()
    paused = CampaignOrder.PAUSED if campaign.is_paused else CampaignOrder.RUNNING
    order = CampaignOrder.CANCELLED if campaign.is_cancelled else paused
    assert keys.campaign_key("default", "spring") == campaign.key
    return {
        (order, campaign.pace_per_s, campaign.weight),
        (sender.order("default", "spring"), campaign.pace_per_s, campaign.weight),
    }
