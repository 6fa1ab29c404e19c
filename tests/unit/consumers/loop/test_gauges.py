"""When an engine stops because too much was parked, and when it counts as unwell."""

from __future__ import annotations

import asyncio

from consumers.loop.gauges import Gauges, ParkedLimit, Signals
from consumers.loop.tracker import Tracker
from schemas.records import Record
from tests.doubles.manual_clock import ManualClock


def test_twenty_parked_in_a_row_stop_the_engine() -> None:
    limit = ParkedLimit()
    assert all(limit.seen("push.bulk", True) is None for _ in range(19))
    assert "newest from push.bulk;" in str(limit.seen("push.bulk", True))
    assert limit.recent == 20


def test_single_poison_records_do_not_stop_it() -> None:
    limit = ParkedLimit()
    assert all(limit.seen("push.bulk", number % 3 == 0) is None for number in range(1_000))


def test_more_than_half_of_two_hundred_stop_it() -> None:
    limit = ParkedLimit()
    pattern = [True, True, True, False, False]  # 60 %, never 20 in a row
    verdicts = [limit.seen("push.bulk", pattern[number % 5]) for number in range(400)]
    first = next(number for number, verdict in enumerate(verdicts) if verdict is not None)
    assert 199 <= first <= 202


def working(tracker: Tracker) -> Tracker:
    tracker.receive([Record("lane", 0, 0, None, b"", (), 0)])
    tracker.take()
    tracker.in_hand = 1
    return tracker


def test_work_without_any_answer_for_a_minute_is_unhealthy() -> None:
    clock = ManualClock()
    gauges, tracker = Gauges("group", clock, stuck_s=60.0), working(Tracker("lane", 0, 0))
    for _ in range(59):
        clock.advance(1_000)
        gauges.look([tracker], 1)
    assert gauges.healthy(clock.steady_s())
    clock.advance(1_000)
    gauges.look([tracker], 1)
    assert not gauges.healthy(clock.steady_s())
    gauges.answers += 1
    gauges.look([tracker], 1)
    assert gauges.healthy(clock.steady_s())


def test_idleness_is_healthy_and_unread_records_are_not_idleness() -> None:
    clock = ManualClock()
    gauges, tracker = Gauges("group", clock, stuck_s=60.0), Tracker("lane", 0, 5)
    clock.advance(90_000)
    gauges.look([tracker], 0)
    assert gauges.healthy(clock.steady_s())
    tracker.end = 6
    clock.advance(90_000)
    gauges.look([tracker], 0)
    assert not gauges.healthy(clock.steady_s())


def test_a_kafka_thread_that_stands_still_is_unhealthy() -> None:
    clock = ManualClock()
    gauges = Gauges("group", clock, stuck_s=60.0)
    then_s = clock.steady_s()
    clock.advance(61_000)
    gauges.look([], 0)
    assert not gauges.healthy(then_s)


async def test_a_signal_that_came_before_is_not_missed() -> None:
    signals = Signals()
    signals.emit("committed")
    await signals.reached("committed")
    waiting = asyncio.create_task(signals.reached("committed", 2))
    await asyncio.sleep(0)
    assert not waiting.done()
    signals.emit("committed")
    await waiting
