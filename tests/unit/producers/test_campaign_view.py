"""What the API knows of campaigns, from records in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.campaign import First
from producers.campaign_view import CampaignView, Options
from schemas import codec, keys, messages
from schemas.errors import Transient
from schemas.messages import CampaignOrder, CampaignStatus
from schemas.records import Outgoing, Placed, Record, TopicView
from schemas.topics import Topics
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_log import MemoryLog

TOPICS = Topics()
DAY_MS = 86_400_000
REQUEST = messages.CampaignRequested("t", "c", "news", "up", 0, 0, 0, 1, 10, "hash", accepted_at_ms=1)
PROGRESS = messages.CampaignProgress("t", "c", 0, 1, 0, 0, 0, 0, {}, {}, 0)


class World:
    def __init__(self, options: Options | None = None) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog(1, self.clock.now_ms)
        self.view = CampaignView(TOPICS, self.clock, options or Options())

    async def open(self) -> World:
        await self.view.open(self.log)
        return self

    async def write(self, topic: str, *found: messages.Message) -> None:
        await self.log.publish([Outgoing(topic, b"k", codec.encode(message)) for message in found])

    def state(self, status: CampaignStatus, finished_at: int | None = None, **other: int) -> messages.CampaignState:
        state = messages.CampaignState(
            "t", "c", "news", status, 10, 0, 0, 0, 0, {}, {}, 0, 1, 1, 1, finished_at, self.clock.now_ms()
        )
        return replace(state, **other)  # type: ignore[arg-type]

    def status(self) -> str:
        found = self.view.find("t", "c")
        assert found is not None
        return found.status(self.clock.now_ms())


async def test_the_first_request_of_an_id_is_the_campaign() -> None:
    world = World()
    await world.write(TOPICS.campaign_requests, REQUEST, replace(REQUEST, upload_id="later", recipients=99))
    await world.open()
    found = world.view.find("t", "c")
    assert found is not None and found.requested == REQUEST


@given(st.permutations([(0, 1, 2), (0, 2, 5), (1, 1, 1), (1, 4, 3), (0, 2, 5)]))
async def test_vectors_sum_to_the_same_in_any_order_and_however_often(seen: list[tuple[int, int, int]]) -> None:
    world = World()
    await world.write(TOPICS.campaign_requests, REQUEST)
    for partition, version, count in seen:
        vector = replace(
            PROGRESS, partition=partition, version=version, finished=count, sent=count, outcomes={"sent": count}
        )
        await world.write(TOPICS.progress, vector)
    await world.open()
    found = world.view.find("t", "c")
    assert found is not None
    assert (found.counts().finished, found.counts().sent, found.counts().outcomes) == (8, 8, {"sent": 8})


async def test_a_status_before_dispatch_speaks_follows_from_the_request() -> None:
    world = await World().open()
    await world.write(TOPICS.campaign_requests, replace(REQUEST, send_at_ms=world.clock.now_ms() + 1_000))
    assert world.status() == "scheduled"
    world.clock.advance(1_000)
    assert world.status() == "running"


async def test_an_order_counts_at_once_and_a_cancel_is_never_undone() -> None:
    world = await World().open()
    await world.write(TOPICS.campaign_requests, REQUEST)
    await world.write(TOPICS.campaign_state, world.state(CampaignStatus.RUNNING))
    order = messages.CampaignControl("t", "c", CampaignOrder.PAUSED, 0, 1)
    await world.write(TOPICS.campaign_control, order)
    assert world.status() == "paused"
    await world.write(TOPICS.campaign_state, world.state(CampaignStatus.PAUSED, version=2))
    await world.write(TOPICS.campaign_control, replace(order, order=CampaignOrder.RUNNING))
    assert world.status() == "running"
    await world.write(TOPICS.campaign_control, replace(order, order=CampaignOrder.CANCELLED), order)
    assert world.status() == "cancelled"


async def test_completion_is_latched_and_an_older_epoch_is_not_heard() -> None:
    world = await World().open()
    await world.write(TOPICS.campaign_requests, REQUEST)
    await world.write(TOPICS.campaign_state, world.state(CampaignStatus.PROCESSED, 5, epoch=7))
    await world.write(TOPICS.campaign_state, world.state(CampaignStatus.RUNNING, epoch=6, version=99))
    assert world.status() == "processed"


async def test_what_ended_long_ago_is_forgotten() -> None:
    world = World()
    for name, days in (("old", 31), ("new", 29)):
        await world.write(TOPICS.campaign_requests, replace(REQUEST, campaign_id=name))
        ended = world.state(CampaignStatus.PROCESSED, world.clock.now_ms() - days * DAY_MS)
        await world.write(TOPICS.campaign_state, replace(ended, campaign_id=name))
    await world.open()
    assert world.view.find("t", "old") is None
    assert world.view.find("t", "new") is not None


async def test_beyond_the_bound_the_oldest_finished_campaigns_go_and_running_ones_stay() -> None:
    world = await World(Options(most=10)).open()
    await world.write(TOPICS.campaign_requests, replace(REQUEST, campaign_id="running"))
    for number in range(30):
        name = f"c{number}"
        await world.write(TOPICS.campaign_requests, replace(REQUEST, campaign_id=name))
        ended = world.state(CampaignStatus.PROCESSED, world.clock.now_ms() + number)
        await world.write(TOPICS.campaign_state, replace(ended, campaign_id=name))
    kept = [campaign.campaign_id for campaign in world.view.newest("t", 100)]
    assert len(kept) <= 10
    assert {"running", "c29"} <= set(kept)
    assert "c0" not in kept


async def test_the_first_request_is_told_of_a_forgotten_campaign_and_none_of_a_free_id() -> None:
    world = await World(Options(most=1)).open()
    await world.write(TOPICS.campaign_requests, REQUEST)
    await world.write(TOPICS.campaign_state, world.state(CampaignStatus.PROCESSED, 5))
    await world.write(TOPICS.campaign_requests, replace(REQUEST, campaign_id="next"))
    assert world.view.find("t", "c") is None
    await world.write(TOPICS.campaign_requests, replace(REQUEST, upload_id="later", content_hash="other"))
    assert await world.view.first("t", "c") == First("up", "hash", 10)
    assert await world.view.first("t", "free") is None


async def test_a_request_that_is_read_after_what_became_of_it_is_the_first_all_the_same() -> None:
    """Topics are read side by side: the cursor of what another instance took a moment ago may come first."""
    log = LateLog(1)
    view = CampaignView(TOPICS, ManualClock(), Options(most=1))
    await view.open(log)
    cursor = messages.CampaignCursor("t", "c", 1, 1, 1, 10, 0)
    other = replace(REQUEST, campaign_id="other")
    for topic, message in (
        (TOPICS.campaign_requests, REQUEST),
        (TOPICS.cursor, cursor),
        (TOPICS.cursor, replace(cursor, campaign_id="pushes-it-out")),
        (TOPICS.campaign_requests, other),
    ):
        await log.publish([Outgoing(topic, b"k", codec.encode(message))])
    assert view.find("t", "c") is None
    assert await view.first("t", "c") == First("up", "hash", 10)


async def test_an_undecodable_record_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    world = await World().open()
    await world.log.publish(
        [Outgoing(TOPICS.campaign_requests, b"k", b"\x00garbage"), Outgoing(TOPICS.progress, b"k", None)]
    )
    await world.write(TOPICS.campaign_requests, REQUEST)
    assert world.view.find("t", "c") is not None
    assert "campaigns.record_skipped" in caplog.messages


async def test_ids_and_tenants_cannot_be_taken_for_each_other() -> None:
    world = await World().open()
    await world.write(TOPICS.campaign_requests, replace(REQUEST, tenant="a/b", campaign_id="c"))
    assert world.view.find("a", "b/c") is None
    assert keys.campaign_key("a/b", "c") != keys.campaign_key("a", "b/c")


class DeafLog(MemoryLog):
    """Its views cannot be read to their end for the first few looks."""

    def __init__(self, looks: int) -> None:
        super().__init__(1)
        self.looks_left = looks

    async def follow(self, topics: Sequence[str], on_record: Callable[[Record], None]) -> TopicView:
        view = await super().follow(topics, on_record)
        log = self

        class Deaf:
            async def caught_up(self) -> None:
                log.looks_left -= 1
                if log.looks_left >= 0:
                    raise Transient("no leader")
                await view.caught_up()

            async def seen(self, topic: str, placed: Placed) -> None:
                await view.seen(topic, placed)

        return Deaf()


class LateLog(MemoryLog):
    """Its readers see requests only when they read to the end."""

    async def follow(self, topics: Sequence[str], on_record: Callable[[Record], None]) -> TopicView:
        late: list[Record] = []

        def take(record: Record) -> None:
            if record.topic == TOPICS.campaign_requests:
                late.append(record)
            else:
                on_record(record)

        view = await super().follow(topics, take)

        class Late:
            async def caught_up(self) -> None:
                await view.caught_up()
                while late:
                    on_record(late.pop(0))

            async def seen(self, topic: str, placed: Placed) -> None:
                await view.seen(topic, placed)

        return Late()


async def test_a_broker_that_is_not_ready_is_asked_again_for_a_while() -> None:
    options = Options(open_tries=3, open_pause_s=0)
    patient = CampaignView(TOPICS, ManualClock(), options)
    await patient.open(DeafLog(2))
    assert patient.is_loaded
    refused = CampaignView(TOPICS, ManualClock(), options)
    with pytest.raises(Transient):
        await refused.open(DeafLog(3))
    assert not refused.is_loaded
