"""An engine as a process of its own, to be killed: arguments are the bootstrap servers and the topic prefix.

Copies each record of push.bulk to sms.bulk. A value may say what happens first: "slow" takes a while, "hangs" a long
one, "kill" ends the process on the spot. Prints "assigned", then a line for each record it is given. SIGTERM stops it
cleanly.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from random import Random

from consumers.engine import Engine, EngineOptions
from consumers.loop.options import KafkaOptions
from consumers.loop.outbox import OutboxOptions
from producers.publisher import KafkaPublisher
from retry_topics.dead_letters import DeadLetters
from schemas.clock import SystemClock
from schemas.records import AnswerTo, Done, Outgoing, Record
from schemas.topics import Topics

SLOW_S = 0.05
HANGS_S = 30.0


class Copier:
    def __init__(self, lane: str) -> None:
        self._lane = lane

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        for record in records:
            print(record.partition, record.offset, flush=True)
            if record.value == b"kill":
                os._exit(9)
            if record.value == b"hangs":
                asyncio.get_running_loop().call_later(HANGS_S, self._copy, record, answer)
                continue
            if record.value == b"slow":
                await asyncio.sleep(SLOW_S)
            self._copy(record, answer)

    def _copy(self, record: Record, answer: AnswerTo) -> None:
        answer(record, Done(publish=(Outgoing(self._lane, record.key, record.value),)))


async def main(bootstrap: str, prefix: str) -> None:
    topics, kafka = Topics(prefix), {"bootstrap.servers": bootstrap}
    publisher = KafkaPublisher(kafka)
    options = EngineOptions(
        KafkaOptions(
            topics.group("work push.bulk"),
            (topics.lane("push", "bulk"),),
            session_timeout_s=6.0,
            commit_every_s=0.05,
        ),
        OutboxOptions(topics.status),
    )
    handler = Copier(topics.lane("sms", "bulk"))
    engine = Engine(handler, publisher, options, kafka, DeadLetters(topics, SystemClock()).parked, rng=Random(1))
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []
    loop.add_signal_handler(signal.SIGTERM, lambda: stopping.append(loop.create_task(engine.stop())))
    announcing = loop.create_task(announce(engine))
    await engine.run()
    announcing.cancel()
    await publisher.close()


async def announce(engine: Engine) -> None:
    await engine.signals.reached("assigned")
    print("assigned", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
