"""Records that retention deleted before anybody read them: a person is told, nothing is passed over."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.errors import Misconfigured
from schemas.records import Done
from tests.integration.engine.bench import Bench, Told, running

TIMEOUT_S = 30


async def test_records_deleted_unread_stop_the_engine_instead_of_being_jumped_over(bench: Bench) -> None:
    await bench.write(*(b"%d" % n for n in range(20)), partition=0)
    first_five = Told(lambda record: Done() if record.offset < 5 else None)
    async with running(bench.engine(first_five, kafka=bench.impatient())):
        await bench.committed_reaches([5, 0])
    place = TopicPartition(bench.topic, 0, 12)
    admin = AdminClient({**bench.kafka, "log_level": 0})
    await asyncio.to_thread(admin.delete_records([place])[place].result, TIMEOUT_S)
    handler = Told(lambda record: Done())
    with pytest.raises(Misconfigured, match=f"{bench.topic}/0 lies below the log's start 12"):
        async with running(bench.engine(handler)):
            await handler.until_got(1)
    assert handler.got == []
    assert await bench.committed() == [5, 0]
