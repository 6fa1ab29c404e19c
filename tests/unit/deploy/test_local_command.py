"""Whoever starts a Kafka and a Redis to develop against hears where they are."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from deploy import cli
from deploy.commands import local
from deploy.local.stack import Stack


def _told(monkeypatch: pytest.MonkeyPatch, running: Stack) -> tuple[str, str]:
    """(what may be pasted, what is said beside it)."""
    monkeypatch.setattr(local, "up", lambda: running)
    answer = CliRunner().invoke(cli.app, ["local", "up"], env={"KAFKA_BOOTSTRAP": "", "REDIS_URL": ""})
    assert answer.exit_code == 0
    return answer.stdout, answer.stderr


def test_a_port_that_was_taken_is_told_beside_the_exports(monkeypatch: pytest.MonkeyPatch) -> None:
    exports, said = _told(monkeypatch, Stack("127.0.0.1:9092", "redis://127.0.0.1:20867/0"))
    assert "REDIS_URL=redis://127.0.0.1:20867/0" in exports and "taken" not in exports
    assert said == (
        "tidings: port 6379 was taken, so this Redis answers at 127.0.0.1:20867; "
        "paste its export, which wins over tidings.toml\n"
    )


def test_on_the_usual_ports_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    exports, said = _told(monkeypatch, Stack("127.0.0.1:9092", "redis://127.0.0.1:6379/0"))
    assert "KAFKA_BOOTSTRAP=127.0.0.1:9092" in exports and said == ""


def test_servers_that_the_environment_names_left_no_port() -> None:
    named = {"KAFKA_BOOTSTRAP": "kafka.example:19092", "REDIS_URL": "redis://redis.example:6380/0"}
    assert local.taken(Stack(named["KAFKA_BOOTSTRAP"], named["REDIS_URL"]), named) == []
