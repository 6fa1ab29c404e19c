"""`tidings breaker`: what a person sees of the providers, and that workers do as they were told."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner, Result

from consumers.breaker import Breaker, BreakerOptions, Gate, State
from consumers.throttles import Throttle
from deploy import cli, redis_client
from deploy.redis_trips import RedisTrips
from schemas import keys
from schemas.errors import Misconfigured
from schemas.messages import Channel
from schemas.outcomes import Kind, Outcome, Scope
from schemas.trips import Epoch, asked

FILE = """
[redis]
url = "{url}"
[channels.push]
providers = ["{first}", "{second}"]
[providers.{first}]
kind = "http"
url = "http://127.0.0.1:9/send"
rate_per_s = 100
burst = 10
[providers.{second}]
kind = "http"
url = "http://127.0.0.1:9/send"
rate_per_s = 100
burst = 10
"""


class Desk:
    """The command on one file of settings, and the workers' view."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.first, self.second = f"a{uuid.uuid4().hex[:8]}", f"b{uuid.uuid4().hex[:8]}"
        self.file = folder / "tidings.toml"
        self.file.write_text(FILE.format(url=url, first=self.first, second=self.second))

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(cli.app, ["breaker", *words, "--config", str(self.file)])

    def told(self, *words: str) -> Any:
        result = self.run(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.output)

    def seen_by_workers(self) -> State:
        async def look(trips: RedisTrips) -> State:
            worker = Breaker(self.first, BreakerOptions())
            (reply,) = await asked(trips, worker.ask)
            return worker.read(reply, 0)

        found = self.with_redis(look)
        assert isinstance(found, State)
        return found

    def with_redis(self, act: Any) -> Any:
        async def connected() -> Any:
            client = redis_client.connect(self.url, Epoch())
            try:
                return await act(RedisTrips(client, "test"))
            finally:
                await client.aclose()

        return asyncio.run(connected())


@pytest.fixture
def desk(tmp_path: Path, redis_url: str) -> Iterator[Desk]:
    made = Desk(tmp_path, redis_url)
    yield made
    with redis.Redis.from_url(redis_url) as client:
        for name in (made.first, made.second):
            client.delete(keys.redis_breaker(name), keys.redis_bucket(name), keys.redis_throttles(name))


def test_a_person_stops_a_provider_and_lets_it_go_on(desk: Desk) -> None:
    (opened,) = desk.told("open", desk.first)
    assert (opened["state"], opened["reason"], opened["next_probe_in_s"]) == ("open", "operator", None)
    assert desk.seen_by_workers().gate is Gate.OPEN
    first, second = desk.told("list")
    assert (first["provider"], first["state"], first["channels"]) == (desk.first, "open", ["push"])
    assert first["since_ms"] > 0
    assert (second["state"], second["reason"], second["since_ms"]) == ("closed", "", None)
    (closed,) = desk.told("close", desk.first)
    assert closed["state"] == "closed"
    assert desk.seen_by_workers().gate is Gate.CLOSED


def test_the_list_says_why_a_provider_is_open_and_how_far_it_is_slowed_down(desk: Desk) -> None:
    async def calls(trips: RedisTrips) -> None:
        worker, throttle = Breaker(desk.first, BreakerOptions()), Throttle(desk.first)
        for kind in (Kind.DONE, Kind.RETRY, Kind.AUTH_CONFIG):
            worker.note(kind, False)
        throttle.note(Outcome(Kind.THROTTLE, retry_after_ms=30_000), Channel.PUSH, "token-1")
        throttle.note(Outcome(Kind.THROTTLE, retry_after_ms=30_000, scope=Scope.RECIPIENT), Channel.PUSH, "token-1")
        trip = trips.begin()
        throttle.ask_record(trip)
        worker.ask_record(trip)
        await trip.execute()

    desk.with_redis(calls)
    first, _ = desk.told("list")
    assert (first["state"], first["reason"]) == ("open", "config")
    assert 0 < first["next_probe_in_s"] <= 60
    assert (first["slowed_to"], first["left_alone"]) == (0.5, 1)
    assert 0 < first["left_alone_s"] <= 30
    text = desk.run("list").output
    assert "config" in text and desk.first in text


def test_a_name_that_is_not_in_the_settings_is_refused_with_those_that_are(desk: Desk) -> None:
    result = desk.run("open", "nobody")
    assert isinstance(result.exception, Misconfigured)
    assert desk.first in str(result.exception)
