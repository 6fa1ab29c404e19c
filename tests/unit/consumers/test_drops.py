"""What an operator dropped from hold stays dropped, whatever record of it is read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from consumers.drops import RedisDrops
from schemas import codec
from schemas.errors import StoreDown
from schemas.messages import Channel, Delivery, Held
from schemas.policies import MessageClass, TemplatePolicy
from schemas.trips import Epoch
from tests.doubles import deliveries
from tests.doubles.memory_trips import RUN_ID
from tests.doubles.sender_bench import SenderBench, done, shown

DROPPED = [("cancelled", "dropped_by_operator")]


@pytest.fixture
def bench(tmp_path: Path) -> SenderBench:
    bench = SenderBench(tmp_path)
    bench.policy = TemplatePolicy("welcome", MessageClass.MARKETING, (Channel.SMS,))
    return bench


def drops(bench: SenderBench) -> RedisDrops:
    epoch = Epoch()
    epoch.run_id = RUN_ID
    return RedisDrops(bench.trips, epoch, bench.claims)


async def held(bench: SenderBench) -> tuple[Delivery, Delivery]:
    """A look-alike: as it lies in its lane, and as it lies in hold."""
    copy = deliveries.single(event_id="again", offset=101)
    await bench.send(deliveries.single(event_id="first"))
    (answer,) = await bench.send(copy)
    assert shown(answer) == [("held", "lookalike")]
    waits = codec.decode(done(answer).publish[0].value, Held).delivery
    assert waits is not None
    return copy, waits


async def test_a_copy_of_what_was_dropped_is_not_sent_once_nothing_is_like_it_any_more(bench: SenderBench) -> None:
    copy, waits = await held(bench)
    await drops(bench).drop([waits], bench.clock.now_ms())
    bench.clock.advance(600_001)
    assert shown((await bench.send(copy))[0]) == DROPPED
    assert shown((await bench.send(replace(waits, force=True)))[0]) == [], "told once"
    assert len(bench.provider.calls) == 1


async def test_what_a_copy_of_it_has_sent_already_stays_sent(bench: SenderBench) -> None:
    _, waits = await held(bench)
    released = replace(waits, force=True)
    await bench.send(released)
    await drops(bench).drop([waits], bench.clock.now_ms())
    assert shown((await bench.send(released))[0]) == []


async def test_one_that_nobody_could_claim_keeps_the_others_from_nothing(bench: SenderBench) -> None:
    copy, waits = await held(bench)
    await drops(bench).drop([replace(waits, row="nobody's"), waits], bench.clock.now_ms())
    assert shown((await bench.send(copy))[0]) == DROPPED


async def test_nothing_counts_as_dropped_while_redis_is_away(bench: SenderBench) -> None:
    _, waits = await held(bench)
    bench.trips.down = True
    with pytest.raises(StoreDown):
        await drops(bench).drop([waits], bench.clock.now_ms())
