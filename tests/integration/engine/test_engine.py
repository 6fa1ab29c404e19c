"""The engine on a real broker: what is committed, what comes again, what is parked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from consumers.loop.options import PressureOptions
from schemas.errors import Poison, TooManyParked, Transient
from schemas.records import Answer, Defer, Done, Outgoing, Placed, Record
from tests.conftest import CreateTopics
from tests.integration.engine.bench import Bench, Told, eventually, running


async def test_what_is_done_is_committed_and_not_handled_again(bench: Bench) -> None:
    await bench.write(*(b"%d" % n for n in range(100)))
    first = Told()
    async with running(bench.engine(first)):
        await first.until_got(100)
        await bench.committed_reaches([50, 50])
    second = Told()
    async with running(bench.engine(second)):
        await bench.write(b"new", partition=0)
        await second.until_got(1)
    assert sorted(first.places()) == [(p, o) for p in (0, 1) for o in range(50)]
    assert second.places() == [(0, 50)]


async def test_a_slow_record_keeps_the_commit_below_it_while_others_go_on(bench: Bench) -> None:
    await bench.write(*(b"%d" % n for n in range(20)), partition=0)
    handler = Told(lambda record: None if record.offset == 7 else Done())
    engine = bench.engine(handler)
    async with running(engine):
        await handler.until_got(20)
        await bench.committed_reaches([7, 0])
        assert engine.progress()[bench.topic, 0] == (7, 12)
        handler.open[0, 7](Done())
        await bench.committed_reaches([20, 0])


class Reluctant:
    """A publisher that refuses every record until it is told otherwise."""

    def __init__(self, bench: Bench) -> None:
        self.willing = False
        self.refused = asyncio.Event()
        self._publisher = bench.publisher

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Placed]:
        if outgoing and not self.willing:
            self.refused.set()
            raise Transient("the log is away")
        return await self._publisher.publish(outgoing)


async def test_the_commit_never_passes_what_is_not_published_yet(bench: Bench, create_topics: CreateTopics) -> None:
    out = bench.topics.lane("sms", "bulk")
    create_topics(out)
    await bench.write(*(b"%d" % n for n in range(10)), partition=0)

    def led_to(record: Record) -> Done:
        return Done() if record.partition else Done(publish=(Outgoing(out, record.key, record.value),))

    handler = Told(led_to)
    publisher = Reluctant(bench)
    async with running(bench.engine(handler, publisher)) as engine:
        await publisher.refused.wait()
        await handler.until_got(10)
        await bench.write(b"leads to nothing", partition=1)
        await bench.committed_reaches([0, 1])  # and with it whatever else was let go
        publisher.willing = True
        await bench.committed_reaches([10, 1])
        assert engine.healthy
    assert sorted(record.value or b"" for record in await bench.read_all(out)) == [b"%d" % n for n in range(10)]


async def test_poison_is_parked_byte_for_byte_and_the_lane_keeps_moving(bench: Bench) -> None:
    def reply(record: Record) -> Answer:
        if record.value == b"\x00\xff torn":
            raise Poison("undecodable", "cut off")
        return Done()

    await bench.write(b"1", b"\x00\xff torn", b"3", partition=1)
    async with running(bench.engine(Told(reply))):
        await bench.committed_reaches([0, 3])
    (letter,) = await bench.read_all(bench.topics.dlq("push"))
    assert (letter.key, letter.value) == (b"k1", b"\x00\xff torn")
    assert letter.header("tid-first-topic") == bench.topic.encode()
    assert (letter.header("tid-first-partition"), letter.header("tid-first-offset")) == (b"1", b"1")


async def test_one_answer_too_large_for_the_log_takes_none_of_the_others_down(
    bench: Bench, create_topics: CreateTopics
) -> None:
    """K40: 2 MB among 1,000, published together."""
    out = bench.topics.lane("sms", "bulk")
    create_topics(out)

    def reply(record: Record) -> Answer:
        value = b"x" * 2_000_000 if record.value == b"500" else record.value
        return Done(publish=(Outgoing(out, record.key, value),))

    await bench.write(*(b"%d" % n for n in range(1_000)))
    async with running(bench.engine(Told(reply))):
        await bench.committed_reaches([500, 500])
    written = {int(record.value or b"") for record in await bench.read_all(out)}
    assert written == set(range(1_000)) - {500}
    (letter,) = await bench.read_all(bench.topics.dlq("push"))
    assert (letter.value, letter.header("tid-error-class")) == (b"500", b"too_large")


@pytest.mark.long
@pytest.mark.timeout(90)
async def test_a_topic_that_the_broker_learns_of_later_is_read_within_seconds(
    bench: Bench, create_topics: CreateTopics
) -> None:
    late = bench.topics.lane("sms", "bulk")
    handler = Told()
    kafka = replace(bench.options.kafka, topics=(bench.topic, late))
    async with running(bench.engine(handler, kafka=kafka)):
        create_topics(late)
        await bench.publisher.publish([Outgoing(late, b"k", b"late")])
        await handler.until_got(1)
    assert [(record.topic, record.value) for record in handler.got] == [(late, b"late")]


async def test_a_lane_full_of_poison_stops_the_engine_instead_of_being_emptied(bench: Bench) -> None:
    def reply(record: Record) -> Answer:
        raise Poison("undecodable", "cut off")

    await bench.write(*(b"bad" for _ in range(500)), partition=0)
    with pytest.raises(TooManyParked, match=f"the newest from {bench.topic};"):
        async with asyncio.timeout(20):
            await bench.engine(Told(reply)).run()
    assert 20 <= len(await bench.read_all(bench.topics.dlq("push"))) <= 50


async def test_after_such_a_stop_it_goes_on_behind_what_was_parked(bench: Bench) -> None:
    def reply(record: Record) -> Answer:
        if record.value == b"bad":
            raise Poison("undecodable", "cut off")
        return Done()

    await bench.write(*(b"bad" for _ in range(50)), b"good", partition=0)
    for _ in range(2):
        with pytest.raises(TooManyParked):
            async with asyncio.timeout(20):
                await bench.engine(Told(reply)).run()
    async with running(bench.engine(Told(reply))):
        await bench.committed_reaches([51, 0])
    letters = await bench.read_all(bench.topics.dlq("push"))
    assert sorted(int(letter.header("tid-first-offset") or b"") for letter in letters) == list(range(50))


async def test_an_unwell_world_only_delays(bench: Bench) -> None:
    failures = [Transient("redis is away")] * 3

    def reply(record: Record) -> Answer:
        if failures:
            raise failures.pop()
        return Done()

    await bench.write(*(b"%d" % n for n in range(30)))
    async with running(bench.engine(Told(reply))):
        await bench.committed_reaches([15, 15])
    assert await bench.read_all(bench.topics.dlq("push")) == []


async def test_a_deferred_record_comes_back_at_its_time_and_not_before(bench: Bench) -> None:
    seen_ms: list[int] = []
    due_ms = 0

    def reply(record: Record) -> Answer:
        nonlocal due_ms
        now_ms = clock.now_ms()
        seen_ms.append(now_ms)
        due_ms = due_ms or now_ms + 700
        return Done() if now_ms >= due_ms else Defer(due_ms)

    clock = bench.clock
    handler = Told(reply)
    await bench.write(b"later", partition=0)
    async with running(bench.engine(handler)) as engine:
        await engine.signals.reached("deferred")
        await bench.committed_reaches([1, 0])
    assert len(seen_ms) == 2
    assert due_ms <= seen_ms[1] <= due_ms + 500


@pytest.mark.long
@pytest.mark.parametrize("bench", [1], indirect=True)
async def test_one_stuck_record_stops_the_reading_at_the_span_and_memory_stays_bounded(bench: Bench) -> None:
    """K17: one send hangs, a great many records lie behind it."""
    pressure = PressureOptions(span=1_000, records=400)
    await bench.write(*(b"x" * 200 for _ in range(20_000)))
    handler = Told(lambda record: None if record.offset == 0 else Done())
    engine = bench.engine(handler, kafka=replace(bench.options.kafka, pressure=pressure))
    async with running(engine):
        (tracker,) = engine.trackers
        await eventually(lambda: tracker.pause_cause == "stuck")
        read_to = tracker.handed_to
        assert read_to <= 1_000 + 500
        await asyncio.sleep(0.5)
        assert tracker.handed_to == read_to
        assert await bench.committed() == [0]
        handler.open[0, 0](Done())
        await bench.committed_reaches([20_000])
    assert len(handler.got) == 20_000


async def test_in_flight_records_are_bounded(bench: Bench) -> None:
    await bench.write(*(b"%d" % n for n in range(1_000)))
    handler = Told(lambda record: None)
    async with running(bench.engine(handler)):
        await handler.until_got(200)
        await asyncio.sleep(0.3)
        assert len(handler.got) == 200
        for answer in list(handler.open.values()):
            answer(Done())
        await handler.until_got(300)
        handler.reply = lambda record: Done()
        while len(handler.got) < 1_000:
            for place in list(handler.open):
                handler.open.pop(place)(Done())
            await asyncio.sleep(0.01)
