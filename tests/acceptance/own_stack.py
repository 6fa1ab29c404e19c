"""A Kafka and a Redis of a test's own, to be killed, started again, emptied and set back to an earlier moment."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import redis

from deploy import children
from deploy.local import jars, kafka, tools
from deploy.local import redis as local_redis
from schemas.errors import Misconfigured

HEAP_MB = 512


class OwnStack:
    """Both keep their ports through every restart. Its calls block: a child must belong to the main thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._java, self._program = tools.java() or "", tools.redis_server() or ""
        if not self._java or not self._program:
            raise Misconfigured("a stack of one's own needs Java and Redis")
        self._kafka_port = self._redis_port = 0
        self.start_kafka()
        self.start_redis()

    def start_kafka(self) -> None:
        """Returns once it answers."""
        self._kafka = kafka.start(self._java, jars.fetch(), self._folder / "kafka", HEAP_MB, self._kafka_port)
        self.bootstrap = self._kafka.bootstrap
        self._kafka_port = int(self.bootstrap.rpartition(":")[2])

    def kill_kafka(self) -> None:
        self._kafka.child.kill()
        self._kafka.child.wait()

    def start_redis(self) -> None:
        """Returns once it has read its file and answers."""
        self._redis = local_redis.start(self._program, self._redis_folder, self._redis_port)
        self.redis_url = self._redis.url
        self._redis_port = int(self.redis_url.rpartition(":")[2].partition("/")[0])

    def kill_redis(self) -> None:
        self._redis.child.kill()
        self._redis.child.wait()

    def empty_redis(self) -> None:
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushall()

    def keep_redis(self) -> None:
        """Remembers the file as it is now, for `roll_back_redis`."""
        shutil.rmtree(self._kept_folder, ignore_errors=True)
        shutil.copytree(self._redis_folder, self._kept_folder)

    def roll_back_redis(self) -> None:
        """Redis dies, and starts from what it held when it was kept: as a replica that lagged behind."""
        self.kill_redis()
        shutil.rmtree(self._redis_folder)
        shutil.copytree(self._kept_folder, self._redis_folder)
        self.start_redis()

    def mend(self) -> None:
        """Starts what a test that failed has left dead."""
        if self._kafka.child.poll() is not None:
            self.start_kafka()
        if self._redis.child.poll() is not None:
            self.start_redis()

    def stop(self) -> None:
        for child in (self._kafka.child, self._redis.child):
            children.stop(child)

    @property
    def _redis_folder(self) -> Path:
        return self._folder / "redis"

    @property
    def _kept_folder(self) -> Path:
        return self._folder / "redis-kept"


@contextlib.contextmanager
def started(folder: Path) -> Iterator[OwnStack]:
    """Both, answering; stopped, and their data removed, on the way out."""
    stack = OwnStack(folder)
    try:
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(folder, ignore_errors=True)
