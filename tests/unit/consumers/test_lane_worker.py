"""One send after another: what reaches the provider, what the row is told, what is written where."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas import keys
from tests.doubles import deliveries
from tests.doubles.sender_bench import IDS, SenderBench, done, events, published, shown


@pytest.fixture
def bench(tmp_path: Path) -> SenderBench:
    return SenderBench(tmp_path)


async def test_a_delivery_is_sent_once_and_its_row_told(bench: SenderBench) -> None:
    (answer,) = await bench.send(deliveries.single())
    (call,) = bench.provider.calls
    assert (call.to, call.content.text, call.delivery_key) == ("+4930123456", "Hallo Ada", "default/e/order-1:sms")
    assert shown(answer) == [("sent", "")]
    (event,) = events(answer)
    assert (event.provider, event.provider_id, event.call, event.delivery) == ("gateway", "m1", 1, "sms")
    assert published(answer) == []


async def test_a_callback_finds_its_call_by_the_reference(bench: SenderBench) -> None:
    delivery = deliveries.single()
    await bench.send(delivery)
    (call,) = bench.provider.calls
    reference = IDS.read_reference(call.reference)
    assert reference is not None
    assert (reference.address, reference.index, reference.call) == (keys.Address(delivery.row, delivery.slot), 0, 1)


async def test_a_copy_of_a_record_sends_nothing_and_says_nothing_new(bench: SenderBench) -> None:
    await bench.send(deliveries.single())
    (answer,) = await bench.send(deliveries.single())
    assert len(bench.provider.calls) == 1
    assert done(answer).events == ()
