"""Kafka and Redis for the whole run, a topic prefix for each module.

KAFKA_BOOTSTRAP and REDIS_URL point the tests at running servers; otherwise the local stack is started once,
in a folder of its own that is removed afterwards. A failing test shows the end of the stack's logs.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import Phase, settings

from deploy.local import places, stack

# An example may take long on a busy machine; what must be quick has a benchmark.
settings.register_profile("tidings", deadline=None)
# For tests that are meant to fail: the first example that does is enough.
settings.register_profile("teeth", deadline=None, phases=(Phase.explicit, Phase.generate))
settings.load_profile("tidings")

BROKER_TIMEOUT_S = 30
_LOGS = pytest.StashKey[tuple[Path, ...]]()


class Spec(Protocol):
    """What a topic needs to be made: an entry of the catalogue has it."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> Mapping[str, str]: ...


CreateTopics = Callable[..., None]


@pytest.fixture(scope="session")
def local_stack(request: pytest.FixtureRequest) -> Iterator[stack.Stack]:
    _remove_leftovers()
    folder = places.home() / f"test-{os.getpid()}"
    with stack.running(folder, os.environ) as running:
        request.config.stash[_LOGS] = running.logs
        yield running
    if not request.session.testsfailed:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers() -> None:
    """Folders of failed or killed runs are kept for their logs until the next run."""
    for folder in places.home().glob("test-*"):
        try:
            os.kill(int(folder.name.removeprefix("test-")), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def kafka_bootstrap(local_stack: stack.Stack) -> str:
    return local_stack.kafka_bootstrap


@pytest.fixture(scope="session")
def redis_url(local_stack: stack.Stack) -> str:
    return local_stack.redis_url


@pytest.fixture(scope="module")
def topic_prefix(request: pytest.FixtureRequest) -> str:
    """Unique for the module, readable in the broker's logs; ends in a dot."""
    words = re.sub(r"[^a-z0-9]", "", request.module.__name__.rpartition(".")[2].removeprefix("test_"))
    return f"t-{words[:24]}-{uuid.uuid4().hex[:6]}."


@pytest.fixture(scope="module")
def create_topics(kafka_bootstrap: str, topic_prefix: str) -> Iterator[CreateTopics]:
    """create_topics(spec_or_name, ..., partitions=1): makes what the module uses.

    At the module's end everything that begins with its prefix is deleted.
    """
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap, "log_level": 0})

    def create(*specs: Spec | str, partitions: int = 1) -> None:
        new = [_new_topic(spec, partitions) for spec in specs]
        _wait(admin.create_topics(new))
        _until_known(admin, [topic.topic for topic in new])

    yield create
    names = [name for name in admin.list_topics(timeout=BROKER_TIMEOUT_S).topics if name.startswith(topic_prefix)]
    if names:
        _wait(admin.delete_topics(names))


def _new_topic(spec: Spec | str, partitions: int) -> NewTopic:
    name, config = (spec, {}) if isinstance(spec, str) else (spec.name, dict(spec.config))
    return NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)


def _until_known(admin: AdminClient, names: list[str]) -> None:
    """A busy broker answers for a moment that it does not know a topic which its controller has made."""
    until_s = time.monotonic() + BROKER_TIMEOUT_S
    for name in names:
        while admin.list_topics(name, timeout=BROKER_TIMEOUT_S).topics[name].error is not None:
            assert time.monotonic() < until_s, f"{name} was made, and the broker does not know it"


def _wait(futures: Mapping[str, object]) -> None:
    for future in futures.values():
        future.result(timeout=BROKER_TIMEOUT_S)  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the end of the stack's logs to a failure of a test that used it."""
    report = yield
    if report.failed and "local_stack" in getattr(item, "fixturenames", ()):
        for log in item.config.stash.get(_LOGS, ()):
            report.sections.append((log.name, places.tail(log)))
    return report
