"""The reference: what is left of a sender without any guard. Consume, render, POST, commit, on the sender's own client.

No dedupe, no limits, no retry, no status. A batch's offsets are committed once it and all before it are answered.
usage: python -m benchmarks.bare_loop BOOTSTRAP TOPIC URL [CA]
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import orjson
import uvloop
from confluent_kafka import Consumer, TopicPartition
from jinja2 import Template

from consumers.providers.http_pool import HttpPool, PoolOptions
from consumers.providers.pool import NotSent
from deploy import ready

CONNECTIONS = 256
BATCH, BATCH_WAIT_S = 500, 0.05
QUEUE = 2_000
TIMEOUT_S = 5.0
CONSUMER: dict[str, str | int | bool] = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 20_000,
}
AGAIN_S = 0.1
TEXT = Template(
    "Hello {{ name }}, your order {{ order }} has left our warehouse and should arrive within two working days. "
    "Track it any time in the app. Thank you for ordering!"
)


@dataclass(slots=True)
class _Batch:
    left: int
    ends: dict[int, int] = field(default_factory=dict)


class Loop:
    """One consumer, one pool."""

    def __init__(self, bootstrap: str, topic: str, url: str, ca: str) -> None:
        tls = ssl.create_default_context(cafile=ca) if ca else None
        self._pool = HttpPool(url, PoolOptions(max_connections=CONNECTIONS, tls=tls))
        self._topic = topic
        self._consumer = Consumer({**CONSUMER, "bootstrap.servers": bootstrap, "group.id": f"{topic}-group"})
        self._queue: asyncio.Queue[tuple[Any, _Batch]] = asyncio.Queue(QUEUE)
        self._batches: deque[_Batch] = deque()

    async def run(self) -> None:
        """Until it is ended."""
        self._consumer.subscribe([self._topic])
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._send_all())
            await self._read_all()

    async def _read_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            found = await loop.run_in_executor(None, self._consumer.consume, BATCH, BATCH_WAIT_S)
            if not found:
                continue
            batch = _Batch(len(found), {message.partition(): message.offset() + 1 for message in found})
            self._batches.append(batch)
            for message in found:
                await self._queue.put((message, batch))

    async def _send_all(self) -> None:
        while True:
            message, batch = await self._queue.get()
            wish = orjson.loads(message.value())
            body = {"key": wish["key"], "to": wish["to"], "text": TEXT.render(name=wish["name"], order=wish["order"])}
            headers = b"Content-Type: application/json\r\nIdempotency-Key: " + wish["key"].encode() + b"\r\n"
            await self._post(headers, orjson.dumps(body))
            self._finished(batch)

    async def _post(self, headers: bytes, body: bytes) -> None:
        """Tried again only where no connection came about: some hundred handshakes at once take their time."""
        while True:
            try:
                answer = await self._pool.post(headers, body, TIMEOUT_S)
            except NotSent:
                await asyncio.sleep(AGAIN_S)
                continue
            if answer.status != 200:
                raise RuntimeError(f"answered {answer.status}")
            return

    def _finished(self, batch: _Batch) -> None:
        batch.left -= 1
        ends: dict[int, int] = {}
        while self._batches and not self._batches[0].left:
            ends.update(self._batches.popleft().ends)
        if ends:
            places = [TopicPartition(self._topic, number, end) for number, end in ends.items()]
            self._consumer.commit(offsets=places, asynchronous=True)


async def main(bootstrap: str, topic: str, url: str, ca: str = "") -> None:
    ready.tell()
    await Loop(bootstrap, topic, url, ca).run()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
