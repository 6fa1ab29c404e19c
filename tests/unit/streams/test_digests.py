"""Goal: messages that wait for each other go out as one, in the order of their acceptance, each in one digest only,
whoever dies in between; and whatever was cancelled, is over or stands alone goes its own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from retry_topics import hold
from schemas import codec, keys
from schemas.errors import Transient
from schemas.messages import (
    CampaignControl,
    CampaignOrder,
    Channel,
    Contact,
    Delivery,
    EventKind,
    Held,
    NotificationRequested,
    Priority,
    StatusBatch,
    StatusEvent,
)
from schemas.policies import MessageClass, OverCap, TemplatePolicy
from schemas.reasons import Reason
from schemas.records import Outgoing
from schemas.stores import DeliveryView, SlotView
from streams import digest_requests
from streams.dispatch import Dispatch
from tests.doubles import campaigns as accepted
from tests.doubles.campaign_road import EPOCH, CampaignRoad
from tests.doubles.deliveries import recipient, single
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_road import IDS, TOPICS
from tests.doubles.stores import MemoryReads

WINDOW_MS = 300_000
DAY_MS = 86_400_000
POLICIES = {
    "comments": TemplatePolicy("comments", MessageClass.MARKETING, (Channel.PUSH,), digest_ms=WINDOW_MS),
    "tips": TemplatePolicy("tips", MessageClass.MARKETING, (Channel.PUSH,), over_cap=OverCap.DIGEST),
    "offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,)),
    "alarms": TemplatePolicy("alarms", MessageClass.TRANSACTIONAL, (Channel.PUSH,), digest_ms=WINDOW_MS),
}
BULK, FAST = TOPICS.requests_bulk("default"), TOPICS.requests("default")


@pytest.fixture
async def road(tmp_path: Path) -> CampaignRoad:
    road = CampaignRoad(tmp_path, dict(POLICIES))
    await road.restart()
    return road


def comment(number: int, user: str = "ada", **changes: Any) -> Delivery:
    """The number-th event, as a sender met it."""
    wanted: dict[str, Any] = {
        "template": "comments",
        "priority": Priority.BULK,
        "channel": Channel.PUSH,
        "hop": 1,
        "params": orjson.dumps({"by": f"friend{number}"}).decode(),
        **changes,
    }
    return single(user, f"event-{number}", number, **wanted)


async def put(road: CampaignRoad, *waiting: Delivery, due_ms: int = 0) -> None:
    """Into hold, now, as a sender does."""
    now_ms = road.clock.now_ms()
    held = [
        Held("default", due_ms or now_ms + WINDOW_MS, Reason.DIGEST, one.hop, now_ms, delivery=one) for one in waiting
    ]
    await road.log.publish([hold.delivery_record(TOPICS, one, (("traceparent", b"t"),)) for one in held])


async def over(road: CampaignRoad, leader: Dispatch, ms: int = WINDOW_MS) -> None:
    road.clock.advance(ms)
    await leader.look(1)


def digests(road: CampaignRoad, topic: str = BULK) -> list[NotificationRequested]:
    return [codec.decode(record.value, NotificationRequested) for record in road.log.records(topic)]


def items(road: CampaignRoad) -> list[list[str]]:
    """Who is named in each digest."""
    return [[item["by"] for item in orjson.loads(one.params)["items"]] for one in digests(road)]


def friends(*numbers: int) -> list[str]:
    return [f"friend{number}" for number in numbers]


def alone(road: CampaignRoad) -> list[tuple[str, int]]:
    """(intent, digest_of) of what came out as itself."""
    lane = TOPICS.lane(Channel.PUSH, Priority.BULK)
    found = [codec.decode(record.value, Delivery) for record in road.log.records(lane)]
    return [(one.intent, one.digest_of) for one in found]


def told(road: CampaignRoad) -> list[StatusEvent]:
    """What rows are told and why; dispatch's daily word has no reason."""
    batches = [codec.decode(record.value, StatusBatch) for record in road.log.records(TOPICS.status)]
    return [event for batch in batches for event in batch.events if event.reason]


def waiting(road: CampaignRoad) -> int:
    """How much still lies in hold."""
    last = {record.key: record.value for record in road.log.records(TOPICS.hold)}
    return sum(value is not None for value in last.values())


async def test_five_events_of_a_user_go_out_as_one_request_and_each_ends_in_it(road: CampaignRoad) -> None:
    """N47."""
    leader = await road.leader()
    await put(road, *[comment(number) for number in (3, 0, 4, 1, 2)])
    await over(road, leader, WINDOW_MS - 1)
    assert digests(road) == []
    await over(road, leader, 1)
    (digest,) = digests(road)
    assert orjson.loads(digest.params) == {
        "items": [{"by": one} for one in friends(0, 1, 2, 3, 4)],
        "count": 5,
        "others": 4,
    }
    assert (digest.user_id, digest.template, digest.channels) == ("ada", "comments", (Channel.PUSH,))
    assert (digest.digest_of, digest.accepted_at_ms) == (5, road.clock.now_ms())
    (record,) = road.log.records(BULK)
    named = IDS.notification_id("default", keys.single_address(EPOCH, record.partition, record.offset))
    assert [(e.slot, e.kind, e.reason, e.detail) for e in sorted(told(road), key=lambda event: event.slot)] == [
        (slot, "suppressed", "in_digest", f"in digest {named}") for slot in range(5)
    ]
    assert record.header("traceparent") == b"t"
    assert waiting(road) == 0
    await over(road, leader)
    assert len(digests(road)) == 1


async def test_items_come_in_the_order_of_acceptance_whatever_came_into_hold_first(road: CampaignRoad) -> None:
    leader = await road.leader()
    at = {0: 30, 1: 10, 2: 20, 3: 10}
    await put(road, *[comment(number, accepted_at_ms=START_MS + ms) for number, ms in at.items()])
    await over(road, leader)
    assert items(road) == [friends(1, 3, 2, 0)], "by time, then by place in the log"


async def test_who_comes_after_the_window_was_let_go_opens_the_next(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put(road, comment(0), comment(1))
    road.clock.advance(WINDOW_MS - 1)
    await put(road, comment(2))
    await over(road, leader, 1)
    await put(road, comment(3), comment(4))
    await over(road, leader, WINDOW_MS - 1)
    assert items(road) == [friends(0, 1, 2)]
    await over(road, leader, 1)
    assert items(road) == [friends(0, 1, 2), friends(3, 4)]


async def test_users_templates_and_channels_do_not_mix(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put(road, comment(0), comment(1), comment(2, "bea"), comment(3, "bea"))
    await put(road, comment(4, template="tips"), comment(5, template="tips"))
    await put(road, comment(6, channel=Channel.SMS), comment(7, channel=Channel.SMS))
    await over(road, leader)
    assert sorted(items(road)) == [friends(0, 1), friends(2, 3), friends(4, 5), friends(6, 7)]


async def test_who_is_alone_in_its_window_goes_out_as_itself(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put(road, comment(0))
    await over(road, leader)
    await leader.look(1)
    assert digests(road) == []
    assert alone(road) == [(comment(0).intent, 1)]
    assert waiting(road) == 0


async def test_a_message_to_two_telephones_is_one_item(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put(road, *[comment(number, device=device) for number in (0, 1) for device in ("phone", "tablet")])
    await over(road, leader)
    assert items(road) == [friends(0, 1)]
    (digest,) = digests(road)
    assert digest.digest_of == 2
    assert len([event for event in told(road) if event.reason == Reason.IN_DIGEST]) == 4


async def test_a_copy_for_another_telephone_that_came_too_late_is_in_the_digest_of_the_first(
    road: CampaignRoad,
) -> None:
    leader = await road.leader()
    await put(road, comment(0, device="phone"), comment(1, device="phone"))
    await over(road, leader)
    await put(road, comment(1, device="tablet"))
    await over(road, leader)
    assert items(road) == [friends(0, 1)]
    assert len({event.detail for event in told(road)}) == 1
    assert waiting(road) == 0


async def test_a_transactional_digest_takes_the_fast_road_and_a_lowered_one_the_slow(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put(road, *[comment(n, template="alarms", priority=Priority.TRANSACTIONAL) for n in (0, 1)])
    await put(road, *[comment(n, template="alarms") for n in (2, 3)])
    await over(road, leader)
    assert [one.priority for one in digests(road, FAST)] == [""]
    assert [one.priority for one in digests(road)] == ["bulk"]


async def test_it_goes_where_the_newest_wanted_to_go_and_lives_as_long_as_any(road: CampaignRoad) -> None:
    leader = await road.leader()
    old, new = Contact(email="old@example.org"), Contact(email="new@example.org")
    await put(
        road,
        comment(1, to=new, expires_at_ms=START_MS + DAY_MS),
        comment(0, to=old, expires_at_ms=START_MS + 2 * DAY_MS),
    )
    await over(road, leader)
    (digest,) = digests(road)
    assert (digest.to, digest.expires_at_ms) == (new, START_MS + 2 * DAY_MS)


async def test_a_campaigns_values_are_those_of_its_items(road: CampaignRoad) -> None:
    leader = await road.leader()
    shared = orjson.dumps({"by": "all", "shop": "north"}).decode()
    own = recipient(
        "ada", template="comments", channel=Channel.PUSH, hop=1, campaign_params=shared, params='{"by": "me"}'
    )
    await put(road, own, comment(0))
    await over(road, leader)
    (digest,) = digests(road)
    assert orjson.loads(digest.params)["items"] == [{"by": "friend0"}, {"by": "me", "shop": "north"}]
    assert [(event.slot, event.reason) for event in road.ends()[7]] == [(9, "in_digest")]


async def test_a_digest_holds_fifty_items_and_says_how_many_there_are(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put(road, *[comment(number) for number in range(60)])
    await over(road, leader)
    assert items(road) == [friends(*range(50))]
    assert {name: orjson.loads(digests(road)[0].params)[name] for name in ("count", "others")} == {
        "count": 60,
        "others": 59,
    }


async def test_large_items_are_left_out_before_the_request_is_too_large_and_who_is_larger_still_goes_alone(
    road: CampaignRoad,
) -> None:
    leader = await road.leader()
    long = orjson.dumps({"by": "x" * 20_000}).decode()
    await put(road, *[comment(number, params=long) for number in range(5)])
    await put(road, comment(5, params=orjson.dumps({"by": "x" * digest_requests.MOST_BYTES}).decode()))
    await over(road, leader)
    await leader.look(1)
    (digest,) = digests(road)
    assert (len(orjson.loads(digest.params)["items"]), digest.digest_of) == (2, 5)
    assert len(digest.params) < digest_requests.MOST_BYTES + 100
    assert alone(road) == [(comment(5).intent, 1)]


async def test_who_cancelled_is_not_in_it(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put(road, *[comment(number) for number in range(3)])
    road.redis.reply("SET", keys.redis_cancel("default", "ada", comment(1).intent), 1)
    await over(road, leader)
    assert items(road) == [friends(0, 2)]
    assert [(e.slot, e.kind, e.reason) for e in told(road) if e.slot == 1] == [(1, "cancelled", "cancelled_by_caller")]
    assert waiting(road) == 0


async def test_who_expires_while_it_waits_goes_to_its_lane_to_end_there(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put(road, comment(0), comment(1), comment(2, expires_at_ms=START_MS + 60_000))
    await over(road, leader, 60_000)
    assert [intent for intent, _ in alone(road)] == [comment(2).intent]
    await over(road, leader)
    assert items(road) == [friends(0, 1)]


async def test_of_a_paused_campaign_nothing_is_in_a_digest_and_it_waits_for_the_resume(road: CampaignRoad) -> None:
    await accepted.accept(road.log, TOPICS, "spring", 10)
    leader = await road.leader()
    await put(road, comment(0), comment(1), recipient("ada", template="comments", channel=Channel.PUSH, hop=1))
    await order(road, CampaignOrder.PAUSED)
    await over(road, leader)
    assert items(road) == [friends(0, 1)]
    waits = next(event for event in told(road) if event.kind is EventKind.HELD)
    assert (waits.reason, waits.hop) == ("campaign_paused", 2)
    assert waiting(road) == 1
    await order(road, CampaignOrder.RUNNING)
    await leader.look(1)
    assert [digest_of for _, digest_of in alone(road)] == [0], "a sender lets it wait for others again"


async def test_of_a_cancelled_campaign_nothing_is_in_a_digest(road: CampaignRoad) -> None:
    await accepted.accept(road.log, TOPICS, "spring", 10)
    leader = await road.leader()
    theirs = recipient("ada", template="comments", channel=Channel.PUSH, hop=1)
    await put(road, comment(0), comment(1), theirs)
    await order(road, CampaignOrder.CANCELLED)
    await over(road, leader)
    assert items(road) == [friends(0, 1)]
    assert [intent for intent, _ in alone(road)] == [theirs.intent], "to end in its lane"


async def test_what_waited_for_a_template_that_makes_no_digests_any_more_goes_out_as_itself(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put(road, comment(0), comment(1))
    road.policies["comments"] = replace(POLICIES["comments"], digest_ms=0)
    await over(road, leader)
    await leader.look(1)
    assert digests(road) == []
    assert alone(road) == [(comment(0).intent, 1), (comment(1).intent, 1)]


@pytest.mark.parametrize("changes", [{"tenant": "gone"}, {"row": "nowhere"}, {"template": "unknown"}])
async def test_what_no_digest_can_be_made_of_goes_to_its_lane_and_stops_nobody(
    road: CampaignRoad, changes: dict[str, Any]
) -> None:
    leader = await road.leader()
    await put(road, *[comment(number, **changes) for number in (0, 1)], comment(2, "bea"), comment(3, "bea"))
    await over(road, leader)
    await leader.look(1)
    assert items(road) == [friends(2, 3)]
    assert alone(road) == [(comment(0).intent, 1), (comment(1).intent, 1)]


async def test_a_digest_that_is_itself_above_its_cap_is_in_no_other(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put(road, comment(0, digest_of=5), comment(1), comment(2))
    await over(road, leader)
    await leader.look(1)
    assert items(road) == [friends(1, 2)]
    assert alone(road) == [(comment(0).intent, 5)]


# Who dies in between.


async def dies(road: CampaignRoad, leader: Dispatch, topics: set[str]) -> None:
    """It gets as far as these topics, which refuse it."""
    road.log.fail, road.log.only = True, frozenset(topics)
    with pytest.raises(Transient):
        await leader.look(1)
    road.log.fail = False


async def test_a_leader_that_died_behind_the_digest_is_followed_by_one_that_makes_the_same(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put(road, *[comment(number) for number in range(5)])
    road.clock.advance(WINDOW_MS)
    road.gap = stops
    leader = await road.leader()
    with pytest.raises(Dead):
        await leader.look(1)
    road.gap = None
    await put(road, comment(5))
    await (await road.leader(epoch=2)).look(2)
    first, again = digests(road)
    assert (first.event_id, first.params) == (again.event_id, again.params), "routing knows it as the same"
    assert waiting(road) == 1, "who came meanwhile opens the next window"


@pytest.mark.parametrize("refusing", [{BULK}, {TOPICS.status}, {TOPICS.hold}])
async def test_wherever_a_leader_dies_everybody_is_in_one_digest(road: CampaignRoad, refusing: set[str]) -> None:
    leader = await road.leader()
    await put(road, *[comment(number) for number in range(5)])
    road.clock.advance(WINDOW_MS)
    await dies(road, leader, refusing)
    await (await road.leader(epoch=2)).look(2)
    assert len({digest.event_id for digest in digests(road)}) == 1
    assert items(road)[0] == friends(*range(5))
    assert len({event.detail for event in told(road)}) == 1, "all name the same one"
    assert waiting(road) == 0


@pytest.mark.parametrize("is_written", [False, True])
async def test_whose_campaign_is_paused_when_the_next_leader_makes_a_digest_that_has_it_goes_along(
    road: CampaignRoad, is_written: bool
) -> None:
    """It bears the mark already: it would end as one of the digest wherever it turned up."""
    await accepted.accept(road.log, TOPICS, "spring", 10)
    theirs = recipient("ada", template="comments", channel=Channel.PUSH, hop=1, params='{"by":"spring"}')
    road.gap = stops if is_written else None
    leader = await road.leader()
    await put(road, comment(0), theirs)
    road.clock.advance(WINDOW_MS)
    if is_written:
        with pytest.raises(Dead):
            await leader.look(1)
    else:
        await dies(road, leader, {BULK})
    road.gap = None
    await order(road, CampaignOrder.PAUSED)
    await put(road, comment(1))
    await (await road.leader(epoch=2)).look(2)
    await order(road, CampaignOrder.RUNNING)
    await (await road.leader(epoch=3)).look(3)
    assert {frozenset(together) for together in items(road)} == {frozenset(["friend0", "spring"])}
    assert sorted((event.kind, event.reason) for event in told(road)) == [(EventKind.SUPPRESSED, "in_digest")] * 2
    assert waiting(road) == 1, "who came meanwhile opens the next window"


async def test_a_message_of_a_paused_campaign_takes_no_part_in_a_digest_that_is_made_now(road: CampaignRoad) -> None:
    """Nor does it bear any mark by which it would be known as a part of it."""
    await accepted.accept(road.log, TOPICS, "spring", 10)
    leader = await road.leader()
    theirs = recipient("ada", template="comments", channel=Channel.PUSH, hop=1)
    await put(road, theirs, comment(0), comment(1))
    await order(road, CampaignOrder.PAUSED)
    await over(road, leader)
    assert items(road) == [friends(0, 1)]
    assert road.redis.reply("GET", keys.redis_digest("default", "ada", theirs.intent, "push")) is None


async def test_whose_row_cannot_be_read_a_day_later_is_not_left_out_of_the_digest_that_has_it(
    road: CampaignRoad,
) -> None:
    first, second = (comment(number, expires_at_ms=START_MS + 9 * DAY_MS) for number in (0, 20))
    road.rows = OfOneOwner(first.row)
    leader = await road.leader()
    await put(road, first, second)
    road.clock.advance(WINDOW_MS)
    await dies(road, leader, {BULK})
    road.clock.advance(DAY_MS - 2 * WINDOW_MS)
    await (await road.leader(epoch=2)).look(2)
    assert items(road) == [friends(0, 20)]
    assert waiting(road) == 0


async def test_what_is_left_when_half_of_the_tombstones_are_written_goes_out_in_no_second_digest(
    road: CampaignRoad,
) -> None:
    leader = await road.leader()
    members = [comment(number) for number in range(5)]
    await put(road, *members)
    road.clock.advance(WINDOW_MS)
    await dies(road, leader, {TOPICS.hold})
    ids = [record.key for record in road.log.records(TOPICS.hold)]
    await road.log.publish([hold.tombstone(TOPICS, key) for key in ids[:3] if key])
    await (await road.leader(epoch=2)).look(2)
    assert items(road) == [friends(*range(5))]
    assert waiting(road) == 0


@pytest.mark.parametrize("count", [1, 5])
async def test_records_of_hold_that_are_written_again_make_no_second_digest(road: CampaignRoad, count: int) -> None:
    leader = await road.leader()
    await put(road, *[comment(number) for number in range(5)])
    copies = [Outgoing(TOPICS.hold, record.key, record.value) for record in road.log.records(TOPICS.hold)]
    await over(road, leader)
    await road.log.publish(copies[-count:])
    await over(road, leader)
    await leader.look(1)
    assert items(road) == [friends(*range(5))]
    assert alone(road) == []
    assert waiting(road) == 0


async def test_what_went_out_more_than_a_day_ago_is_known_by_its_row(road: CampaignRoad) -> None:
    reads = MemoryReads()
    road.rows = reads
    leader = await road.leader()
    gone = comment(0, expires_at_ms=START_MS + 9 * DAY_MS)
    ended = DeliveryView("push", "", "suppressed", "in_digest", "in digest n1", "", 0, 0, 0, 0)
    reads.put(
        "default", keys.Address(gone.row, gone.slot), SlotView("suppressed", "", "", "ada", "comments", 0, (ended,))
    )
    await put(
        road, gone, comment(1, expires_at_ms=START_MS + 9 * DAY_MS), comment(2, expires_at_ms=START_MS + 9 * DAY_MS)
    )
    await over(road, leader, 2 * DAY_MS)
    assert items(road) == [friends(1, 2)]
    assert waiting(road) == 0


class OfOneOwner(MemoryReads):
    """Of all rows only this one can be read."""

    def __init__(self, row: str) -> None:
        super().__init__()
        self._only = row

    async def row(self, tenant: str, row: str) -> Sequence[SlotView | None]:
        self.is_recovering = row != self._only
        return await super().row(tenant, row)


class Dead(Exception):
    """What a test's leader dies of."""


def stops(gap: str) -> None:
    if gap == "after_digest":
        raise Dead


async def order(road: CampaignRoad, wanted: CampaignOrder) -> None:
    control = CampaignControl("default", "spring", wanted, 0, START_MS)
    key = keys.control_key("default", "spring", wanted).encode()
    await road.log.publish([Outgoing(TOPICS.campaign_control, key, codec.encode(control))])
