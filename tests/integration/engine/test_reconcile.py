"""`reconcile` on a real broker: several at once, one ends in the middle, and exactly the silent ones are marked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from consumers.loop.handout import HandoutOptions
from schemas import codec, keys
from schemas.messages import DeliveryState, StatusBatch
from schemas.records import Outgoing
from schemas.stores import DeliveryView, SlotView
from streams.reconcile import Reconcile, ReconcileOptions
from tests.conftest import CreateTopics
from tests.doubles.stores import MemoryReads
from tests.integration.engine.bench import PATIENCE_S, Bench, eventually, running

IDS = keys.Ids(b"secret")
AFTER_MS = 1_500
SIZE = 300


class Lost(Exception):
    """The process is gone."""


def states(now_ms: int) -> Iterator[tuple[keys.Address, DeliveryState]]:
    """Everybody was sent to just now: a third by a provider that promises nothing."""
    for number in range(SIZE):
        address = keys.recipient_address("news", number // 50, number % 50)
        found = IDS.notification_id("default", address)
        provider = "mail" if number % 3 == 0 else "gateway"
        who = (keys.delivery_id(found, "push"), found, "default", "news", f"user{number}", "welcome", "push", None)
        yield address, DeliveryState(*who, "sent", None, None, provider, "m", 1, 0, now_ms, now_ms, None, now_ms, 1)


@pytest.mark.long
async def test_several_mark_exactly_the_silent_after_their_time_though_one_of_them_dies(
    bench: Bench, create_topics: CreateTopics
) -> None:
    state, status = bench.topics.state, bench.topics.status
    create_topics(state, partitions=4)
    create_topics(status, partitions=1)
    reads = MemoryReads()
    rules = ReconcileOptions(AFTER_MS, {"gateway": None}, {"push": ("gateway",)})
    handler = Reconcile(reads, IDS, bench.topics, bench.clock, rules)
    options: dict[str, Any] = {
        "kafka": replace(bench.options.kafka, topics=(state,), group=bench.topics.group("reconcile")),
        "handout": HandoutOptions(batch=20, in_flight=60, read_behind_ms={state: AFTER_MS}),
    }

    def dies(gap: str) -> None:
        if gap == "after_publish":
            raise Lost

    doomed = bench.engine(handler, gap=dies, **options)
    async with running(bench.engine(handler, **options)):
        dying = asyncio.create_task(doomed.run())
        await eventually(lambda: bool(doomed.trackers))
        now_ms = bench.clock.now_ms()
        everybody = list(states(now_ms))
        for number, (address, told) in enumerate(everybody):
            shown = "delivered" if number % 2 else "sent"
            push = DeliveryView("push", "", shown, "", "", "", 1, now_ms, 0, 0, call=1)
            reads.put("default", address, SlotView(shown, "", "", told.user_id, "welcome", now_ms, (push,)))
        written = [Outgoing(state, told.delivery_id.encode(), codec.encode(told)) for _, told in everybody]
        await bench.publisher.publish(written)
        with pytest.raises(Lost):
            await dying
        marked = await until_marked(bench, status, SIZE // 3)
    silent = {address for number, (address, _) in enumerate(everybody) if number % 3 and not number % 2}
    assert marked == silent
    first_ms = min(record.timestamp_ms for record in await bench.read_all(status))
    assert first_ms >= now_ms + AFTER_MS


async def until_marked(bench: Bench, status: str, count: int) -> set[keys.Address]:
    """Who was told as unconfirmed, once so many were."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            batches = [codec.decode(record.value, StatusBatch) for record in await bench.read_all(status)]
            marked = {keys.Address(one.row, event.slot) for one in batches for event in one.events}
            if len(marked) >= count:
                return marked
            await asyncio.sleep(0.1)
