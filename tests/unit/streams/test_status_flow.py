"""The order of writes: whatever a process had done when it died, the next one ends with the same rows and counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import codec, keys, metrics
from schemas.errors import Transient
from schemas.messages import EventKind, StatusEvent
from schemas.records import Outgoing, Placed, Record
from streams import status_sweep, status_table
from streams.status_rivals import Fence, Rivals
from streams.status_sweep import Sweep
from streams.status_watch import BEHIND, STALLED_AFTER_S, Watch
from tests.doubles.manual_clock import START_MS, ManualClock
from tests.doubles.memory_log import MemoryLog
from tests.doubles.status_events import event, of_slot, planned
from tests.doubles.status_road import TOPICS, StatusRoad, batch

E = EventKind
DAY_MS = 86_400_000
WRITTEN = (frozenset[str](), frozenset({TOPICS.state}), frozenset({TOPICS.status_changelog}))
"""What the log takes badly: everything, the public states only, the rows only."""


@pytest.fixture
async def road(tmp_path: Path) -> StatusRoad:
    road = StatusRoad(tmp_path)
    await road.restart()
    return road


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(st.tuples(st.integers(0, 3), of_slot()), min_size=1, max_size=12),
    cut=st.integers(1, 12),
    acks_lost=st.booleans(),
    only=st.sampled_from(WRITTEN),
    slice_bytes=st.sampled_from((1, 10_000)),
)
async def test_a_process_killed_anywhere_leaves_the_next_one_with_exact_counts(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[tuple[int, StatusEvent]],
    cut: int,
    acks_lost: bool,
    only: frozenset[str],
    slice_bytes: int,
) -> None:
    whole, torn = (StatusRoad(tmp_path_factory.mktemp("road"), slice_bytes=slice_bytes) for _ in range(2))
    for road in (whole, torn):
        await road.write(*(batch(news, row=f"c.spring.{page}") for page, news in events))
        await road.restart()
    await whole.read()
    torn.log.lose_ack, torn.log.only = acks_lost, only
    with suppress(Transient):
        await torn.read(torn.records()[:cut])
    torn.log.lose_ack = False
    await torn.restart()
    await torn.read()
    for page in range(4):
        one, other = whole.row(f"c.spring.{page}"), torn.row(f"c.spring.{page}")
        assert (one and one.pack()) == (other and other.pack())
    assert await torn.counts() == await whole.counts()
    told, expected = (
        {delivery: state.state for delivery, state in road.newest_public().items()} for road in (torn, whole)
    )
    assert told == expected


@pytest.mark.parametrize("only", [WRITTEN[0], WRITTEN[2]], ids=["whole log away", "changelog refused"])
async def test_nothing_is_on_disk_that_the_changelog_does_not_have(road: StatusRoad, only: frozenset[str]) -> None:
    await road.write(batch(planned("email"), event(E.SENT)))
    road.log.fail, road.log.only = True, only
    with pytest.raises(Transient):
        await road.read()
    assert road.row() is None


async def test_what_the_public_could_not_be_told_is_told_by_the_next_process(road: StatusRoad) -> None:
    await road.write(batch(planned("email"), event(E.SENT)))
    road.log.fail, road.log.only = True, frozenset({TOPICS.state})
    with pytest.raises(Transient):
        await road.read()
    road.log.fail = False
    await road.restart()
    await road.read()
    assert [state.state for state in road.public()] == ["sent"]


async def test_a_row_merged_in_the_slice_before_is_seen_before_it_is_written(tmp_path: Path) -> None:
    road = StatusRoad(tmp_path, slice_bytes=1)
    await road.restart()
    await road.write(
        *(batch(planned("email", slot=n)) for n in range(5)), *(batch(event(E.SENT, slot=n)) for n in range(5))
    )
    await road.read()
    assert [road.seen(n).status for n in range(5)] == ["sent"] * 5
    assert (await road.counts())["default/spring:0"].outcomes == {"sent": 5}


async def test_what_happens_to_a_delivery_in_one_batch_is_told_and_written_once(road: StatusRoad) -> None:
    slots = range(100)
    await road.write(batch(*(planned("email", slot=n) for n in slots)), batch(*(event(E.SENT, slot=n) for n in slots)))
    await road.write(*(batch(event(E.DELIVERED, slot=n)) for n in slots))
    await road.read()
    assert [state.state for state in road.public()] == ["delivered"] * len(slots)
    assert len(road.log.records(TOPICS.status_changelog)) == 1


async def test_a_big_batch_leaves_heartbeats_and_reads_their_turn(road: StatusRoad) -> None:
    pages = range(40)
    for page in pages:
        plans = (planned("email", slot=n, user_id=f"user-{n}") for n in range(200))
        await road.write(batch(*plans, row=f"c.spring.{page}"))
    events = len(pages) * 200
    turns = len(list(road.table.merge(road.records(), lambda partition, key: None)))
    assert turns > events / status_table.STEP_EVENTS, "once for reading events, once for packing rows"


async def test_a_new_owner_publishes_the_counts_it_found_even_when_nothing_more_happens(road: StatusRoad) -> None:
    await road.write(batch(planned("email"), event(E.SENT)))
    await road.read()
    await road.restart({0: 1})
    counts = (await road.counts())["default/spring:0"]
    assert (counts.outcomes, counts.version) == ({"sent": 1}, 1)


@pytest.mark.parametrize("then", ["killed", "rebalanced"])
async def test_a_campaign_whose_last_rows_were_written_just_before_a_take_over_is_counted_to_its_end(
    road: StatusRoad, then: str
) -> None:
    """Counts were told at a later place than the committed one, and what is told next bears that one."""
    await road.write(batch(planned("email")), batch(event(E.SENT)))
    first, last = road.records()
    await road.read([first])
    await road.counts()
    await road.read([last])
    if then == "killed":
        await road.restart({0: 0})
    else:
        await road.flow.assigned({0: 0})
    await road.counts()
    await road.read()
    assert (await road.counts())["default/spring:0"].outcomes == {"sent": 1}


async def test_what_changes_no_row_of_a_campaign_that_was_deleted_leaves_its_last_counts(road: StatusRoad) -> None:
    await road.write(batch(planned("email")))
    await road.read()
    await road.counts()
    road.clock.advance(31 * DAY_MS)
    await tick(road)
    await road.write(batch(event(E.SENT, slot=100_000)))
    await road.read(road.records()[-1:])
    assert (await road.counts())["default/spring:0"].planned == 1


async def test_counts_are_published_only_when_they_changed(road: StatusRoad) -> None:
    await road.write(batch(planned("email")))
    await road.read()
    await road.counts()
    await road.counts()
    assert len(road.log.records(TOPICS.progress)) == 1


async def test_a_skipped_record_stops_the_process(road: StatusRoad) -> None:
    await road.write(*(batch(planned("email", slot=n)) for n in range(3)))
    first, _, third = road.records()
    await road.read([first, first])
    with pytest.raises(Transient, match="from 1 to 2"):
        await road.read([third])
    await road.restart({0: 1})
    with pytest.raises(Transient, match="from 1 to 2"):
        await road.read([third])


async def test_a_process_that_stood_still_writes_no_row_since_another_may_own_it(road: StatusRoad) -> None:
    await road.write(batch(planned("email")))
    told = road.log.publish

    async def slow(outgoing: list[Outgoing]) -> object:
        road.clock.advance(60_000)
        return await told(outgoing)

    road.log.publish = slow  # type: ignore[assignment]
    with pytest.raises(Transient, match="another owner"):
        await road.read()
    assert road.row() is None


async def test_rows_that_were_written_too_late_do_not_reach_the_disk(road: StatusRoad) -> None:
    """The changelog may hold rows of the next owner before them, which this disk would then seem to hold as well."""
    await road.write(batch(planned("email")))
    told = road.log.publish

    async def slow(outgoing: list[Outgoing]) -> list[Placed]:
        if any(record.topic == TOPICS.status_changelog for record in outgoing):
            road.clock.advance(60_000)
        return await told(outgoing)

    road.log.publish = slow  # type: ignore[assignment]
    with pytest.raises(Transient, match="another owner"):
        await road.read()
    assert road.row() is None
    assert road.store.changelog_offset(0) == -1


@pytest.mark.parametrize("then", ["nothing", "more"])
async def test_a_row_that_a_deposed_owner_wrote_over_is_written_again(road: StatusRoad, then: str) -> None:
    rivals = Rivals(road.flow, road.log, TOPICS, road.clock)
    await road.write(batch(planned("email")), batch(event(E.SENT)))
    records = road.records()
    await road.read(records[:1])
    [older] = road.log.records(TOPICS.status_changelog)
    await road.read(records[1:])
    await rivals.check()
    assert len(road.log.records(TOPICS.status_changelog)) == 2, "all of these are our own"

    await road.log.publish([Outgoing(older.topic, older.key, older.value, partition=0)])
    if then == "more":
        await road.write(batch(planned("email"), row="c.spring.1"))
        await road.read(road.records()[2:])
    await rivals.check()
    row = road.row()
    assert row is not None
    last = [record.value for record in road.log.records(TOPICS.status_changelog) if record.key == older.key][-1]
    assert last == row.pack() != older.value
    written = len(road.log.records(TOPICS.status_changelog))
    await rivals.check()
    assert len(road.log.records(TOPICS.status_changelog)) == written


@pytest.mark.parametrize("then", ["cannot be read", "cannot be written", "killed", "killed after another merge"])
async def test_a_row_that_a_deposed_owner_wrote_over_is_written_again_whatever_happens_first(
    road: StatusRoad, then: str
) -> None:
    """Else it is the deposed owner's row that whoever restores the table next goes on from."""
    await road.write(batch(planned("email")), batch(event(E.SENT)), batch(planned("email"), row="c.spring.1"))
    first, second, third = road.records()
    await road.read([first])
    await road.read([second])
    older, newer = road.log.records(TOPICS.status_changelog)
    await road.log.publish([Outgoing(older.topic, older.key, older.value, partition=0)])
    if then == "killed after another merge":
        await road.read([third])
    else:
        await Rivals(road.flow, GoesAway(road.log, can_be_read=then != "cannot be read"), TOPICS, road.clock).check()
        road.log.fail = False
    if then.startswith("killed"):
        await road.restart({0: third.offset})
    for _ in range(2):
        await Rivals(road.flow, road.log, TOPICS, road.clock).check()
        written = [record.value for record in road.log.records(TOPICS.status_changelog) if record.key == older.key]
        assert written == [older.value, newer.value, older.value, newer.value]
        row = road.row()
        assert row is not None
        assert row.pack() == newer.value
        await road.restart({0: third.offset})


async def test_who_stood_still_while_it_looked_leaves_the_rows_of_the_next_owner_as_they_are(road: StatusRoad) -> None:
    """Neither now nor when it is started again on its disk."""
    await road.write(batch(planned("email"), row="n.0a1b2c3d.0.1"))
    await road.read()
    [ours] = road.log.records(TOPICS.status_changelog)
    theirs = Outgoing(ours.topic, ours.key, b"newer", partition=0)
    told = road.log.offsets

    async def slow(topic: str, partition: int) -> tuple[int, int]:
        road.clock.advance(60_000)
        await road.log.publish([theirs])
        return await told(topic, partition)

    road.log.offsets = slow  # type: ignore[method-assign]
    await Rivals(road.flow, road.log, TOPICS, road.clock).check()
    road.log.offsets = told  # type: ignore[method-assign]
    await road.restart({0: 1})
    await Rivals(road.flow, road.log, TOPICS, road.clock).check()
    assert [record.value for record in road.log.records(TOPICS.status_changelog)] == [ours.value, b"newer"]
    assert road.store.get(0, ours.key or b"") == b"newer"


class GoesAway(MemoryLog):
    """A log that is away as soon as it has said where it ends; or only cannot be written from then on."""

    def __init__(self, log: MemoryLog, *, can_be_read: bool) -> None:
        super().__init__(log.partition_count)
        self._log = log
        self._can_be_read = can_be_read

    async def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        found = await self._log.offsets(topic, partition)
        self._log.fail = True
        return found

    async def read_range(self, topic: str, partition: int, first: int, last: int) -> AsyncIterator[Record]:
        if not self._can_be_read:
            raise Transient("the log is unavailable")
        async for record in self._log.read_range(topic, partition, first, last):
            yield record


def test_a_process_that_stood_still_ends_before_it_does_anything_more() -> None:
    clock = ManualClock()
    fence = Fence(clock, 4.5)
    for _ in range(3):
        fence.pass_through()
        clock.advance(4_000)
    clock.advance(1_000)
    for _ in range(2):
        with pytest.raises(Transient, match=r"stood still for 5\.0 s"):
            fence.pass_through()


async def test_rows_of_a_partition_taken_away_are_not_counted_any_more(road: StatusRoad) -> None:
    await road.write(batch(planned("email")))
    await road.read()
    road.flow.revoked({0})
    assert await road.counts() == {}
    assert road.flow.owned == frozenset()


async def test_a_daily_tick_deletes_rows_untouched_for_30_days_and_a_campaign_only_as_a_whole(road: StatusRoad) -> None:
    await road.write(batch(planned("email"), row="n.0a1b2c3d.0.1"), batch(planned("email"), row="c.spring.0"))
    await road.write(batch(planned("email"), row="c.winter.0"))
    await road.read()
    road.clock.advance(20 * DAY_MS)
    await road.write(batch(planned("email"), row="c.spring.1"), batch(planned("email"), row="n.0a1b2c3d.0.9"))
    await road.read(road.records()[3:])
    await road.counts()
    road.clock.advance(11 * DAY_MS)
    await tick(road)
    kept = {
        "n.0a1b2c3d.0.1": False,
        "c.winter.0": False,
        "c.spring.0": True,
        "c.spring.1": True,
        "n.0a1b2c3d.0.9": True,
    }
    assert {row: road.row(row) is not None for row in kept} == kept
    assert (await road.counts())["default/winter:0"].planned == 1, "what was last published stays"
    changelog = road.log.records(TOPICS.status_changelog)
    assert {r.key for r in changelog if r.value is None} == {b"default/n.0a1b2c3d.0.1", b"default/c.winter.0"}
    assert changelog[-1].key == status_sweep.HEARTBEAT_KEY, "a tombstone at the end would be waited for in vain"


async def tick(road: StatusRoad) -> None:
    record = Outgoing(TOPICS.status, b"tick", codec.encode(status_table.tick(road.clock.now_ms())), partition=0)
    await road.log.publish([record])
    await road.read(road.records()[-1:])
    await Sweep(road.flow, road.clock).run_due()


async def test_a_sweep_goes_through_a_partition_of_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_sweep, "SLICE_ROWS", 3)
    road = StatusRoad(tmp_path)
    await road.restart()
    await road.write(*(batch(planned("email"), row=f"n.0a1b2c3d.0.{n}") for n in range(10)))
    await road.read()
    road.clock.advance(31 * DAY_MS)
    await tick(road)
    assert not any(b"/" in key for key, _ in road.store.slice(0, b"default/", 10))


async def test_a_partition_that_stands_still_is_read_again_and_after_a_minute_its_process_ends(
    road: StatusRoad,
) -> None:
    asked: list[tuple[int, int]] = []

    async def read_again(partition: int, offset: int) -> None:
        asked.append((partition, offset))

    watch = Watch(road.flow, road.log, TOPICS, road.clock, read_again)
    await watch.check()
    road.clock.advance(10 * 60_000)
    await watch.check()
    await road.write(batch(planned("email")))
    await watch.check()
    assert asked == []
    road.clock.advance(STALLED_AFTER_S * 500)
    await watch.check()
    assert asked == [(0, 0)]
    road.log.fail = True
    road.clock.advance(STALLED_AFTER_S * 10_000)
    await watch.check()
    road.log.fail = False
    await watch.check()
    road.clock.advance(STALLED_AFTER_S * 1_001)
    with pytest.raises(Transient, match="stands at 0 of 1"):
        await watch.check()


async def test_a_partition_that_waits_its_turn_is_not_taken_for_a_dead_one(tmp_path: Path) -> None:
    """All partitions go through one queue: on a machine without time, another one's records may fill it for minutes."""
    asked: list[tuple[int, int]] = []

    async def read_again(partition: int, offset: int) -> None:
        asked.append((partition, offset))

    road = StatusRoad(tmp_path, partition_count=2)
    await road.restart()
    value = codec.encode(status_table.tick(road.clock.now_ms()))
    await road.log.publish([Outgoing(TOPICS.status, b"tick", value, partition=at) for at in (0, *[1] * 4 * BEHIND)])
    many = [record for record in road.records() if record.partition == 1]
    watch = Watch(road.flow, road.log, TOPICS, road.clock, read_again)
    for first in range(0, 2 * BEHIND, 100):
        await watch.check()
        road.clock.advance(STALLED_AFTER_S * 800)
        await road.read(many[first : first + 100])
    await watch.check()
    assert asked == []
    await road.read(many[2 * BEHIND :])
    await watch.check()
    road.clock.advance(STALLED_AFTER_S * 800)
    await watch.check()
    assert asked == [(0, 0)], "nothing is left that it could wait for"


async def test_a_merge_that_takes_minutes_is_work(road: StatusRoad) -> None:
    asked: list[int] = []

    async def read_again(partition: int, offset: int) -> None:
        asked.append(partition)

    watch = Watch(road.flow, road.log, TOPICS, road.clock, read_again)
    await road.write(batch(planned("email")))
    async with road.flow.turn:
        for _ in range(5):
            await watch.check()
            road.clock.advance(STALLED_AFTER_S * 800)
    assert asked == []
    await watch.check()
    assert asked == [0]


async def test_campaign_rows_are_found_without_reading_singles(road: StatusRoad) -> None:
    rows = ["c.a.0", "c.b.7", *(f"n.0a1b2c3d.0.{n}" for n in range(5))]
    for tenant in ("acme", "zoo"):
        written = {keys.row_key(tenant, row).encode(): b"x" for row in rows}
        road.store.write(0, written | {b"heartbeat": b"x"}, 5)
    found = [key for key, _ in road.store.campaign_rows(0)]
    assert found == [b"acme/c.a.0", b"acme/c.b.7", b"zoo/c.a.0", b"zoo/c.b.7"]


async def test_a_delivery_outside_the_plan_is_measured_once(road: StatusRoad) -> None:
    before = metrics.STATUS_LATE._value.get()
    await road.write(
        batch(planned("email")), batch(event(E.SENT, "sms"), event(E.SENT)), batch(event(E.DELIVERED, "sms"))
    )
    await road.read()
    await road.read()
    assert metrics.STATUS_LATE._value.get() == before + 1


async def test_merges_are_measured(road: StatusRoad) -> None:
    before = metrics.STATUS_TRANSITIONS.labels("sent")._value.get()
    await road.write(batch(planned("email", accepted_at_ms=START_MS), event(E.SENT)))
    await road.read()
    assert metrics.STATUS_TRANSITIONS.labels("sent")._value.get() == before + 1
