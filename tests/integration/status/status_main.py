"""`streams status` as a process of its own, to be killed: BOOTSTRAP REDIS PREFIX FOLDER PARTITIONS INSTANCE.

Prints its address, then whatever ends it. SIGTERM stops it cleanly.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from aiohttp import web
from redis.asyncio import Redis

from deploy.redis_trips import RedisTrips
from producers.publisher import KafkaPublisher, PublisherOptions
from retry_topics.dead_letters import DeadLetters
from schemas.clock import SystemClock
from schemas.keys import Ids
from schemas.topics import Topics
from streams.agents import FaustOptions
from streams.log_reader import KafkaLogReader
from streams.status_process import StatusOptions, StatusProcess

SECRET = b"of the tests"
SESSION_S = 6.0


async def main(bootstrap: str, redis_url: str, prefix: str, folder: str, partitions: str, instance: str = "") -> None:
    topics, kafka, clock = Topics(prefix), {"bootstrap.servers": bootstrap}, SystemClock()
    publisher = KafkaPublisher(kafka, PublisherOptions(linger_ms=5))
    redis, reader = Redis.from_url(redis_url), KafkaLogReader(kafka)
    trips = RedisTrips(redis, "status owner")
    port = await free_port()
    url = f"http://127.0.0.1:{port}"
    faust = FaustOptions(kafka, Path(folder), instance, SESSION_S, commit_every_s=0.5)
    options = StatusOptions(faust, url, int(partitions))
    letters = DeadLetters(topics, clock)
    process = StatusProcess(topics, options, Ids(SECRET), letters.letter, publisher, reader, trips, clock)
    runner = web.AppRunner(process.view)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.stop)
    print(url, flush=True)
    await process.run()
    await runner.cleanup()
    await publisher.close()
    await redis.aclose()


async def free_port() -> int:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    return port


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
