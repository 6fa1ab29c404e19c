"""While Redis is away: login codes whose template opted in are sent by their snapshot, everything else waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consumers import claims
from consumers.claims import VerdictClass
from consumers.lane_worker import LaneWorker
from consumers.limits import Rate, Token
from consumers.local_rate import LocalTokens
from schemas import keys, metrics
from schemas.errors import StoreDown
from schemas.messages import Channel, Delivery, EventKind, Priority, Snapshot
from schemas.outcomes import Kind, Outcome
from schemas.policies import WhenRedisIsDown
from schemas.records import Answer, Defer, Done, Record
from tests.doubles import deliveries
from tests.doubles.manual_clock import START_MS
from tests.doubles.sender_bench import SecondProvider, SenderBench, done, events, next_delivery, shown

NUMBER = "+4930123456"


@pytest.fixture
def bench(tmp_path: Path) -> SenderBench:
    made = SenderBench(tmp_path)
    made.policy = replace(made.policy, when_redis_is_down=WhenRedisIsDown.SEND)

    made.alone = [LocalTokens(Rate(100.0, 20), lambda: 1.0, made.clock, _no_time(made))]
    return made


class Watched(dict[bytes, claims.Entry]):
    """Claims; tells when one is written."""

    def __init__(self, written: asyncio.Event) -> None:
        super().__init__()
        self._written = written

    def __setitem__(self, key: bytes, entry: claims.Entry) -> None:
        super().__setitem__(key, entry)
        self._written.set()


Start = Callable[[], LaneWorker]
Stuck = Callable[..., Awaitable[tuple[asyncio.Event, asyncio.Task[list[Answer]]]]]


@pytest.fixture
async def start(bench: SenderBench) -> AsyncIterator[Start]:
    """Starts a worker; all of them are stopped at the end."""
    started: list[LaneWorker] = []

    def begin() -> LaneWorker:
        started.append(bench.worker())
        return started[-1]

    yield begin
    bench.trips.down = True
    for worker in started:
        await worker.close(within_s=0)


def code(event_id: str = "order-1", **changes: Any) -> Delivery:
    snapshot = Snapshot(START_MS, NUMBER, "de")
    return deliveries.single(event_id=event_id, **{"snapshot": snapshot, **changes})


async def away(bench: SenderBench, worker: LaneWorker, *sent: Delivery, log_is_away: bool = False) -> list[Answer]:
    """What becomes of them once Redis has been away for long enough."""
    bench.trips.down = True
    first = sent or [code("the first to notice")]
    assert all(isinstance(one, Defer) for one in await hand(bench, worker, *first)), "a moment's trouble is waited out"
    bench.clock.advance(2_000)
    return await hand(bench, worker, *sent, log_is_away=log_is_away) if sent else []


async def hand(bench: SenderBench, worker: LaneWorker, *sent: Delivery, log_is_away: bool = False) -> list[Answer]:
    """Their answers in order. The worker goes on working. log_is_away: what they led to is not written yet."""
    records = [bench.record(one) for one in sent]
    answers: dict[int, Answer] = {}
    all_answered = asyncio.Event()

    def answer(record: Record, given: Answer) -> None:
        assert record.offset not in answers, "answered twice"
        answers[record.offset] = given
        if isinstance(given, Done) and given.acked is not None and not log_is_away:
            given.acked()
        if len(answers) == len(records):
            all_answered.set()

    await worker.handle(records, answer)
    async with asyncio.timeout(10):
        await all_answered.wait()
    return [answers[record.offset] for record in records]


async def test_a_code_arrives_at_the_address_in_its_record_and_counts_as_a_possible_duplicate(
    bench: SenderBench,
    start: Start,
) -> None:
    before = metrics.CALLS_WITHOUT_REDIS.labels("sms", "snapshot")._value.get()
    (answer,) = await away(bench, start(), code())
    (call,) = bench.provider.calls
    assert (call.to, call.content.text) == (NUMBER, "Hallo Ada")
    assert [event.kind for event in events(answer)] == [EventKind.POSSIBLE_DUPLICATE, EventKind.SENT]
    assert {event.call for event in events(answer)} == {1}
    assert metrics.CALLS_WITHOUT_REDIS.labels("sms", "snapshot")._value.get() == before + 1


async def test_an_emptied_redis_counts_as_away(bench: SenderBench, start: Start) -> None:
    worker = start()
    bench.trips.epoch = None
    await hand(bench, worker, code())
    bench.clock.advance(2_000)
    (answer,) = await hand(bench, worker, code())
    assert shown(answer)[-1] == ("sent", "")


@pytest.mark.parametrize(
    "waits",
    [
        code(snapshot=None),
        code(snapshot=Snapshot(START_MS - 300_000, NUMBER)),
        code(priority=Priority.BULK),
        code(channel=Channel.INAPP, snapshot=Snapshot(START_MS, "42")),
        code(template="unknown"),
    ],
    ids=["without a snapshot", "with an old one", "bulk", "inbox", "of an unknown template"],
)
async def test_whatever_else_lies_in_the_lane_waits(bench: SenderBench, start: Start, waits: Delivery) -> None:
    (answer,) = await away(bench, start(), waits)
    assert isinstance(answer, Defer)
    assert bench.provider.calls == []


async def test_a_template_that_did_not_opt_in_waits(bench: SenderBench, start: Start) -> None:
    bench.policy = replace(bench.policy, when_redis_is_down=WhenRedisIsDown.WAIT)
    (answer,) = await away(bench, start(), code())
    assert isinstance(answer, Defer) and bench.provider.calls == []


async def test_once_redis_is_back_its_claim_is_there_before_anybody_looks_and_a_replay_sends_nothing(
    bench: SenderBench,
    start: Start,
) -> None:
    worker = start()
    await away(bench, worker, code())
    bench.trips.down = False
    (answer,) = await hand(bench, worker, deliveries.single(event_id="another"))
    assert shown(answer) == [("sent", "")]
    key = keys.redis_claim("default", "42", keys.delivery_key("default/e/order-1", Channel.SMS))
    assert bench.claims.entries[key].verdict is VerdictClass.SENT
    (again,) = await bench.send(code())
    assert isinstance(again, Done) and again.events == ()
    assert len(bench.provider.calls) == 2


@pytest.mark.parametrize("is_back", [False, True])
async def test_a_copy_of_the_record_is_not_sent_while_no_claim_can_say_so(
    bench: SenderBench, start: Start, is_back: bool
) -> None:
    worker = start()
    await away(bench, worker, code())
    bench.trips.down = not is_back
    (copy,) = await hand(bench, worker, code())
    assert isinstance(copy, Done) and copy.events == ()
    assert len(bench.provider.calls) == 1


class TestTheLogIsAwayToo:
    """The claim of a call is written before the log has what the call came to."""

    @pytest.mark.parametrize("kind", [Kind.DONE, Kind.RETRY])
    async def test_a_worker_that_dies_then_leaves_it_to_the_next_to_say_so(
        self, bench: SenderBench, start: Start, kind: Kind
    ) -> None:
        worker = start()
        bench.provider.script = [Outcome(kind)]
        (untold,) = await away(bench, worker, code(), log_is_away=True)
        bench.trips.down = False
        await hand(bench, worker, deliveries.single(event_id="another"))
        (again,) = await bench.send(code())
        assert (shown(again), done(again).publish) == (shown(untold), done(untold).publish)
        assert len(bench.provider.calls) == 2

    async def test_once_the_log_has_it_a_copy_says_nothing_more(self, bench: SenderBench, start: Start) -> None:
        worker = start()
        (untold,) = await away(bench, worker, code(), log_is_away=True)
        bench.trips.down = False
        await hand(bench, worker, deliveries.single(event_id="another"))
        acked = done(untold).acked
        assert acked is not None
        acked()
        await hand(bench, worker, deliveries.single(event_id="a third"))
        (again,) = await bench.send(code())
        assert isinstance(again, Done) and again.events == ()

    async def test_a_copy_of_the_record_waits_for_the_log(self, bench: SenderBench, start: Start) -> None:
        worker = start()
        (untold,) = await away(bench, worker, code(), log_is_away=True)
        (copy,) = await hand(bench, worker, code())
        assert isinstance(copy, Defer)
        acked = done(untold).acked
        assert acked is not None
        acked()
        (copy,) = await hand(bench, worker, code())
        assert isinstance(copy, Done) and copy.events == ()
        assert len(bench.provider.calls) == 1


async def test_the_same_wish_accepted_twice_is_sent_once(bench: SenderBench, start: Start) -> None:
    """Without Redis the door cannot tell a repeated Idempotency-Key."""
    worker = start()
    await away(bench, worker, code())
    (second,) = await hand(bench, worker, code(offset=36))
    assert shown(second) == [("suppressed", "duplicate_of")]
    assert len(bench.provider.calls) == 1


async def test_two_copies_that_come_together_make_one_call(bench: SenderBench, start: Start) -> None:
    first, second = await away(bench, start(), code(), code())
    assert sorted([type(first).__name__, type(second).__name__]) == ["Defer", "Done"]
    assert len(bench.provider.calls) == 1


async def test_a_call_in_doubt_is_not_repeated_at_another_provider(bench: SenderBench, start: Start) -> None:
    doubt: dict[str, Any] = {"doubted_at": "second", "doubted_at_ms": bench.clock.now_ms()}
    bench.others, bench.alone = [SecondProvider()], bench.alone * 2
    worker = start()
    (waits,) = await away(bench, worker, code(**doubt))
    assert isinstance(waits, Defer) and bench.provider.calls == []
    bench.clock.advance(600_001)
    (answer,) = await hand(bench, worker, code(**doubt, snapshot=Snapshot(bench.clock.now_ms(), NUMBER)))
    assert shown(answer)[-1] == ("sent", "")


class TestAnAnswerThatNeverComes:
    """Redis swallows what a copy asks: that it is away is known seconds later than to others of the same worker."""

    @pytest.fixture
    def stuck(self, bench: SenderBench, monkeypatch: pytest.MonkeyPatch) -> Stuck:
        """Hands a copy of a code to a worker. Its trip fails once the event is set that comes with its answer."""

        async def swallow(worker: LaneWorker, offset: int = 35) -> tuple[asyncio.Event, asyncio.Task[list[Answer]]]:
            asked, failed, begin = asyncio.Event(), asyncio.Event(), bench.trips.begin

            async def execute() -> list[Any]:
                asked.set()
                await failed.wait()
                raise StoreDown("no answer")

            def begin_stuck() -> Any:
                monkeypatch.setattr(bench.trips, "begin", begin)
                trip = begin()
                monkeypatch.setattr(trip, "execute", execute)
                return trip

            monkeypatch.setattr(bench.trips, "begin", begin_stuck)
            copy = asyncio.create_task(hand(bench, worker, code(offset=offset)))
            await asked.wait()
            return failed, copy

        return swallow

    @pytest.fixture
    async def worker(self, bench: SenderBench, start: Start) -> LaneWorker:
        """Redis has been away for long enough."""
        worker = start()
        await away(bench, worker)
        return worker

    @pytest.mark.parametrize(("offset", "told"), [(35, []), (36, [("suppressed", "duplicate_of")])])
    async def test_what_was_called_meanwhile_is_not_called_again(
        self,
        bench: SenderBench,
        worker: LaneWorker,
        stuck: Stuck,
        offset: int,
        told: list[tuple[str, str]],
    ) -> None:
        failed, copy = await stuck(worker, offset)
        (sent,) = await hand(bench, worker, code())
        assert shown(sent)[-1] == ("sent", "")
        failed.set()
        assert [shown(answer) for answer in await copy] == [told]
        assert len(bench.provider.calls) == 1

    async def test_nor_what_was_called_without_redis_and_is_claimed_by_now(
        self, bench: SenderBench, worker: LaneWorker, stuck: Stuck
    ) -> None:
        written = asyncio.Event()
        bench.claims.entries = Watched(written)
        failed, copy = await stuck(worker)
        await hand(bench, worker, code())
        bench.trips.down = False
        async with asyncio.timeout(10):
            await written.wait()
        failed.set()
        (answer,) = await copy
        assert isinstance(answer, Defer) and len(bench.provider.calls) == 1

    async def test_redis_that_answers_others_is_not_away(self, bench: SenderBench, start: Start, stuck: Stuck) -> None:
        worker = start()
        failed, copy = await stuck(worker)
        bench.clock.advance(5_000)
        (sent,) = await hand(bench, worker, code())
        assert shown(sent) == [("sent", "")]
        failed.set()
        (answer,) = await copy
        assert isinstance(answer, Defer) and len(bench.provider.calls) == 1


async def test_what_failed_for_good_is_not_called_again_while_its_end_waits_for_redis(
    bench: SenderBench, start: Start
) -> None:
    bench.provider.script = [Outcome(Kind.DROP, detail="status 400")]
    called = asyncio.Event()

    async def gap(name: str) -> None:
        if name == "after_send":
            called.set()

    bench.gap = gap
    worker = start()
    await away(bench, worker)
    ending = asyncio.create_task(hand(bench, worker, code()))
    async with asyncio.timeout(10):
        await called.wait()
    for is_down in (True, False):
        bench.trips.down = is_down
        (copy,) = await hand(bench, worker, code())
        assert isinstance(copy, Defer)
    (answer,) = await ending
    assert shown(answer) == [("failed", "refused_by_provider")]
    (copy,) = await hand(bench, worker, code())
    assert isinstance(copy, Done) and len(bench.provider.calls) == 1


@pytest.mark.parametrize("broken", ["ask", "read"])
async def test_where_the_claim_of_an_end_cannot_be_had_what_comes_of_it_later_is_not_kept_back_for_ever(
    bench: SenderBench, start: Start, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """A person sends the code again in the next outage."""
    bench.provider.script = [Outcome(Kind.DROP, detail="status 400")]
    called = asyncio.Event()

    async def gap(name: str) -> None:
        if name == "after_send":
            called.set()

    bench.gap = gap
    worker = start()
    await away(bench, worker)
    ending = asyncio.create_task(hand(bench, worker, code()))
    async with asyncio.timeout(10):
        await called.wait()
    with monkeypatch.context() as broke:
        if broken == "ask":
            broke.setattr(bench.claims, "ask_end", lambda trip, *_: trip.execute_command(lambda: ValueError("broken")))
        else:
            broke.setattr(bench.claims, "read_end", lambda reply: 1 // 0)
        bench.trips.down = False
        await ending
    await hand(bench, worker, deliveries.single(event_id="another"))
    again = code(generation=1, force=True)
    (answer,) = await away(bench, worker, again)
    assert shown(answer)[-1] == ("sent", "")


async def test_a_provider_that_is_unwell_is_tried_again_without_redis_as_well(bench: SenderBench, start: Start) -> None:
    worker = start()
    bench.provider.script = [Outcome(Kind.RETRY, detail="status 503")]
    (answer,) = await away(bench, worker, code())
    assert shown(answer)[-1] == ("retrying", "provider_error")
    later = next_delivery(done(answer).publish[0])
    assert (later.call, later.tries, later.snapshot) == (2, 1, code().snapshot)
    (sent,) = await hand(bench, worker, later)
    assert shown(sent)[-1] == ("sent", "")
    bench.trips.down = False
    await hand(bench, worker, deliveries.single(event_id="another"))
    (again,) = await bench.send(later)
    assert isinstance(again, Done) and len(bench.provider.calls) == 3


async def test_what_expired_meanwhile_is_not_sent(bench: SenderBench, start: Start) -> None:
    (answer,) = await away(bench, start(), code(expires_at_ms=START_MS + 1_000))
    assert shown(answer) == [("expired", "expired")]
    assert bench.provider.calls == []


async def test_no_more_goes_out_than_this_workers_part_of_the_reserved_slice(bench: SenderBench, start: Start) -> None:
    bench.alone = [LocalTokens(Rate(2.0, 2), lambda: 0.5, bench.clock, _no_time(bench))]
    codes = [code(f"e{number}") for number in range(6)]
    worker = start()
    await away(bench, worker, *codes)
    assert len(bench.provider.calls) == 6
    spent_s = (bench.clock.now_ms() - START_MS) / 1000 - 2
    assert spent_s >= 5.9, "each of six waits for its turn, one a second"


def _no_time(bench: SenderBench) -> Any:
    async def pause(seconds: float) -> None:
        await asyncio.sleep(0)  # what has its token by now makes its call
        bench.clock.advance(seconds * 1000)

    return pause


async def test_the_number_of_calls_without_a_claim_is_bounded_by_what_can_be_remembered(
    bench: SenderBench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.alone = [LocalTokens(Rate(1e9, 1_000_000), lambda: 1.0, bench.clock, _no_time(bench))]
    worker = start()
    worker._away._options = replace(worker._away._options, kept=3)
    answers = await away(bench, worker, *(code(f"e{number}") for number in range(5)))
    assert [type(one) for one in answers].count(Done) == len(bench.provider.calls) == 3


async def test_a_claim_that_a_lost_answer_had_taken_is_settled_once_its_lease_is_over(
    bench: SenderBench, start: Start
) -> None:
    """The bid went through, and Redis with it before anybody heard: nobody holds the claim, nobody gave it back."""
    worker = start()
    await away(bench, worker, code())
    key = keys.redis_claim("default", "42", keys.delivery_key("default/e/order-1", Channel.SMS))
    bid = claims.bid_for(code())
    bench.claims.entries[key] = bench.claims.fresh(bid)
    bench.trips.down = False
    await hand(bench, worker, deliveries.single(event_id="another"))
    assert bench.claims.entries[key].is_open()
    (copy,) = await hand(bench, worker, code())
    assert isinstance(copy, Done) and len(bench.provider.calls) == 2, "it is known all the while"
    bench.clock.advance(30_001)
    await hand(bench, worker, deliveries.single(event_id="a third"))
    assert bench.claims.entries[key].verdict is VerdictClass.SENT


async def test_claims_are_written_also_when_nothing_more_comes_in_the_lane(bench: SenderBench, start: Start) -> None:
    written = asyncio.Event()
    bench.claims.entries = Watched(written)
    worker = start()
    await away(bench, worker, code())
    bench.trips.down = False
    key = keys.redis_claim("default", "42", keys.delivery_key("default/e/order-1", Channel.SMS))
    async with asyncio.timeout(10):
        await written.wait()
    assert bench.claims.entries[key].verdict is VerdictClass.SENT


async def test_what_fails_for_good_ends_once_redis_can_say_what_follows(bench: SenderBench, start: Start) -> None:
    called = asyncio.Event()

    async def gap(name: str) -> None:
        if name == "after_send":
            called.set()

    bench.provider.script, bench.gap = [Outcome(Kind.DROP, detail="status 400")], gap
    bench.trips.down = True
    worker = start()
    await hand(bench, worker, code())
    bench.clock.advance(2_000)
    answering = asyncio.create_task(hand(bench, worker, code()))
    async with asyncio.timeout(10):
        await called.wait()
    assert not answering.done()
    bench.trips.down = False
    (answer,) = await answering
    assert shown(answer) == [("failed", "refused_by_provider")]


async def test_what_was_answered_before_redis_went_away_is_not_sent_beside_that(
    bench: SenderBench, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a code that was sent, and a new one: between looking and claiming Redis is gone for seconds."""
    await bench.send(code("order-1"))
    take = bench.tokens.take

    async def goes_away(wanted: int, wait_s: float, rank: int = 0) -> list[Token]:
        bench.trips.down = True
        bench.clock.advance(5_000)
        return await take(wanted, wait_s, rank)

    monkeypatch.setattr(bench.tokens, "take", goes_away)
    copy, new = await hand(bench, start(), code("order-1"), code("order-2"))
    assert (shown(copy), shown(new)[-1]) == ([], ("sent", ""))
    assert [call.delivery_key for call in bench.provider.calls] == ["default/e/order-1:sms", "default/e/order-2:sms"]
