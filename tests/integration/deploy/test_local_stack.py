"""The local stack comes up, answers, keeps its data, and never outlives the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from confluent_kafka.admin import AdminClient

from deploy import children
from deploy.local import places, stack, tools
from schemas.errors import Misconfigured
from tests.conftest import CreateTopics


def test_both_servers_answer_and_topics_can_be_made(
    local_stack: stack.Stack, topic_prefix: str, create_topics: CreateTopics
) -> None:
    create_topics(f"{topic_prefix}one", f"{topic_prefix}two", partitions=2)
    found = AdminClient({"bootstrap.servers": local_stack.kafka_bootstrap}).list_topics(timeout=10).topics
    assert len(found[f"{topic_prefix}two"].partitions) == 2
    with redis.Redis.from_url(local_stack.redis_url) as client:
        assert client.ping()


def test_redis_keeps_its_data_over_a_restart_and_evicts_nothing(tmp_path: Path) -> None:
    kafka_elsewhere = {"KAFKA_BOOTSTRAP": "elsewhere:9092"}
    with stack.running(tmp_path, kafka_elsewhere) as first, redis.Redis.from_url(first.redis_url) as client:
        client.set("claim", "sent")
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    with stack.running(tmp_path, kafka_elsewhere) as second, redis.Redis.from_url(second.redis_url) as client:
        assert client.get("claim") == b"sent"
    assert second.kafka_bootstrap == "elsewhere:9092"


def test_the_environment_replaces_both_servers(tmp_path: Path) -> None:
    named = {"KAFKA_BOOTSTRAP": "kafka.example:9092", "REDIS_URL": "redis://redis.example:6379/3"}
    with stack.running(tmp_path, named) as running:
        assert running.environment() == named
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_a_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; from deploy import children;"
        "child = children.spawn(['sleep', '60'], pathlib.Path(sys.argv[1]) / 'log');"
        "print(child.pid, flush=True); child.wait()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child_handle = os.pidfd_open(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    _await_end(child_handle)


def _await_end(handle: int) -> None:
    """A pidfd becomes readable when its process ends; select raises nothing and returns nothing at the deadline."""
    import select

    readable, _, _ = select.select([handle], [], [], 10)
    os.close(handle)
    assert readable


def test_a_server_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    from deploy.local import redis as local_redis

    refusing = tmp_path / "redis-server"
    refusing.write_text("#!/bin/sh\necho 'no memory for you'\nexit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(Misconfigured, match="no memory for you"):
        local_redis.start(str(refusing), tmp_path / "data")


def test_a_child_that_ignores_the_request_to_end_is_made_to(tmp_path: Path) -> None:
    child = children.spawn(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], tmp_path / "log")
    while places.tail(tmp_path / "log") != "ready":
        assert not children.ended_within(child, 0.02)
    assert children.stop(child, timeout_s=0.2) == -signal.SIGKILL


def test_a_machine_without_java_is_told_the_exact_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Misconfigured) as refused:
        tools.ensure(tools.Need(java=True, maven=True, redis=True))
    for command in ("apt-get install -y default-jre-headless", "dnf install", "brew install"):
        assert command in str(refused.value)
