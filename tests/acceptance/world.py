"""What a test can do and see: HTTP in, the providers' ledger and the status out, the log, and SIGKILL.

Every wait polls a condition until a deadline, and says in its failure what was seen last.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from deploy.simulators.ledger import short_hash
from schemas.topics import Topics
from tests.acceptance.broker import Broker, ToWrite, Written
from tests.acceptance.deployment import COMMAND, SETTINGS, Deployment

T = TypeVar("T")
WITHIN_S = 60.0
LOOK_EVERY_S = 0.1
FINISHED = frozenset({"processed", "partially_processed", "expired", "cancelled"})
PUSH, SMS, MAIL = "/send", "/sms", "smtp"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; body is its JSON, or its text."""

    status: int
    body: Any
    headers: Mapping[str, str]


class World:
    """One test's view of the deployment. token: makes the names of this test its own."""

    def __init__(self, deployment: Deployment, client: aiohttp.ClientSession) -> None:
        self.deployment = deployment
        self.topics: Topics = deployment.topics
        self.token = secrets.token_hex(3)
        self.broker = Broker(deployment.kafka)
        self._client = client

    def name(self, word: str) -> str:
        """An id that no other test uses."""
        return f"{word}-{self.token}"

    # HTTP

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        """One request to the API (or to a full URL), answered whatever it is."""
        url = path if path.startswith("http") else self.deployment.api + path
        async with self._client.request(method, url, **options) as answer:
            text = await answer.text()
            body = json.loads(text) if "json" in answer.content_type and "ndjson" not in answer.content_type else text
            return Answer(answer.status, body, answer.headers)

    async def must(self, method: str, path: str, **options: Any) -> Any:
        """The body of an answer below 400. As a patient caller: 503 and a dead API are tried again."""
        made = options.pop("body", None)

        async def once() -> Answer | str:
            sent = {"data": made()} if made is not None else {}
            try:
                return await self.ask(method, path, **sent, **options)
            except (aiohttp.ClientError, ConnectionError) as error:
                return f"{type(error).__name__}: {error}"

        answer = await self.until(
            once,
            lambda seen: isinstance(seen, Answer) and seen.status not in (409, 503),
            f"{method} {path} is answered",
        )
        assert isinstance(answer, Answer) and answer.status < 400, f"{method} {path}: {answer}"
        return answer.body

    async def user(self, user_id: str, **profile: Any) -> None:
        await self.must("PUT", f"/v1/users/{user_id}", json=profile)

    async def notify(self, user_id: str, template: str, key: str = "", **wish: Any) -> str:
        """POST of one notification, accepted; its id. key: the Idempotency-Key, else a new one."""
        body = {"user_id": user_id, "template": template, **wish}
        headers = {"Idempotency-Key": key or secrets.token_hex(8)}
        answer = await self.must("POST", "/v1/notifications", json=body, headers=headers)
        return str(answer["notification_id"])

    async def status(self, notification_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.must("GET", f"/v1/notifications/{notification_id}")
        return found

    async def until_status(self, notification_id: str, *states: str, within_s: float = WITHIN_S) -> dict[str, Any]:
        """Until the notification is in one of these states on all of its deliveries."""

        def holds(told: dict[str, Any]) -> bool:
            shown = [delivery["state"] for delivery in told["deliveries"]] or [told["status"]]
            return all(state in states for state in shown)

        return await self.until(
            lambda: self.status(notification_id), holds, f"{notification_id} is {' or '.join(states)}", within_s
        )

    async def campaign(self, template: str, recipients: Iterable[Mapping[str, Any]], **wish: Any) -> str:
        """POST of a campaign as a stream of lines, accepted; its id."""
        lines = b"".join(json.dumps(line).encode() + b"\n" for line in recipients)
        definition = {"campaign_id": self.name(template), "template": template, **wish}
        await self.must("POST", "/v1/campaigns", body=lambda: upload(definition, io.BytesIO(lines)))
        return str(definition["campaign_id"])

    async def told(self, campaign_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.must("GET", f"/v1/campaigns/{campaign_id}")
        return found

    async def until_told(
        self, campaign_id: str, holds: Callable[[dict[str, Any]], bool], what: str, within_s: float = WITHIN_S
    ) -> dict[str, Any]:
        return await self.until(lambda: self.told(campaign_id), holds, f"campaign {campaign_id} {what}", within_s)

    async def until_finished(self, campaign_id: str, within_s: float = 2 * WITHIN_S) -> dict[str, Any]:
        return await self.until_told(campaign_id, lambda told: told["status"] in FINISHED, "is finished", within_s)

    async def until_repeats_are_told(self, campaign_id: str, repeats: int) -> None:
        """Until so many possible duplicates are told: a provider has a message before its answer is counted."""

        def holds(told: dict[str, Any]) -> bool:
            return bool(told["possible_duplicates"] >= repeats)

        await self.until_told(campaign_id, holds, f"tells of its {repeats} repeats")

    async def recipients(self, campaign_id: str, outcome: str = "") -> list[dict[str, Any]]:
        text = await self.must("GET", f"/v1/campaigns/{campaign_id}/recipients?outcome={outcome}")
        return [json.loads(line) for line in str(text).splitlines()]

    @contextlib.asynccontextmanager
    async def events(self, path: str) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        """The server-sent events at this path: (name, JSON)."""
        async with self._client.get(self.deployment.api + path) as answer:
            assert answer.status == 200, await answer.text()
            yield _events(answer.content)

    # The outside world

    async def ledger(self, service: str) -> dict[str, Any]:
        """The book of one service; zeros before its first call."""
        found = await self.must("GET", f"{self.deployment.outside}/ledger")
        empty = {"calls": 0, "sends": 0, "distinct_keys": 0, "repeats": 0, "max_in_flight": 0, "per_second": {}}
        return {**empty, **found["services"].get(service, {})}

    async def calls(self, service: str, keys: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Delivery key -> (calls, sends) at this service; (0, 0) when it was never called with it."""
        text = await self.must("GET", f"{self.deployment.outside}/ledger?keys=1")
        lines = [json.loads(line) for line in text.splitlines()]
        book = {line["key"]: (line["calls"], line["sends"]) for line in lines if line["service"] == service}
        return {key: book.get(f"{short_hash(key):016x}", (0, 0)) for key in keys}

    async def messages(self, to: str) -> list[dict[str, Any]]:
        """What the providers were told for this address lately."""
        found = await self.must("GET", f"{self.deployment.outside}/messages?to={to.replace('+', '%2B')}")
        return [message["message"] for message in found]

    async def faults(self, service: str, **faults: Any) -> None:
        """From now on, until the test ends or sets others."""
        await self.must("POST", f"{self.deployment.outside}/faults", json={"service": service, **faults})

    async def new_ledger(self) -> None:
        """The outside world forgets what it has seen."""
        await self.must("POST", f"{self.deployment.outside}/ledger/reset")

    async def all_is_well(self) -> None:
        await self.must("DELETE", f"{self.deployment.outside}/faults")

    # Processes

    def kill(self, role: str) -> int:
        """SIGKILL, as a machine would lose it; its process id. The supervisor starts another one."""
        pid = self.deployment.pid(role)
        assert pid is not None, f"{role} is not running"
        os.kill(pid, signal.SIGKILL)
        return pid

    def end(self, role: str) -> int:
        """SIGTERM, as a new release would come; its process id. The supervisor starts another one."""
        pid = self.deployment.pid(role)
        assert pid is not None, f"{role} is not running"
        os.kill(pid, signal.SIGTERM)
        return pid

    @contextlib.asynccontextmanager
    async def stopped(self, *roles: str) -> AsyncIterator[None]:
        """The roles stand still (SIGSTOP): what comes to them lies in their topics meanwhile."""
        pids = [await self.running(role) for role in roles]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    async def running(self, role: str, besides: int = 0) -> int:
        """The process of this role, once there is one beside the one named."""

        async def look() -> int | None:
            return self.deployment.pid(role)

        pid = await self.until(look, lambda seen: seen not in (None, besides), f"{role} runs")
        assert pid is not None
        return pid

    async def numbers(self, role: str) -> dict[str, float]:
        """What the running process of this role counts: each metric with its labels, as it is shown, and its value."""
        url = self.metrics_url(role)
        assert url is not None, f"{role} is not running"
        lines = str((await self.ask("GET", url)).body).splitlines()
        pairs = (line.rpartition(" ") for line in lines if line.startswith("tidings_"))
        return {name: float(value) for name, _, value in pairs}

    def metrics_url(self, role: str) -> str | None:
        """Where the running process of this role shows its numbers; None while there is none."""
        shown = json.loads((self.deployment.logs / "metrics.json").read_text())
        return str(shown[role]["metrics"]) if role in shown else None

    async def explained(self, *words: str) -> str:
        """What `tidings explain` prints."""
        command = [str(COMMAND), "explain", *words, "--config", str(self.deployment.folder / SETTINGS)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=WITHIN_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # The log

    async def holds(self, *words: str) -> str:
        """What `tidings holds` prints."""
        command = [str(COMMAND), "holds", *words, "--config", str(self.deployment.folder / SETTINGS)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=2 * WITHIN_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def write(self, topic: str, *records: ToWrite) -> None:
        await asyncio.to_thread(self.broker.write, topic, records)

    async def records(self, topic: str) -> list[Written]:
        return await asyncio.to_thread(self.broker.read, topic)

    async def until_read(self, role: str, within_s: float = 2 * WITHIN_S) -> None:
        """Until this role has finished and committed all that is in its topics."""
        group = self.topics.group(role)
        topics = self.topics.groups()[group]

        async def left() -> dict[str, int]:
            return await asyncio.to_thread(self.broker.left, group, topics)

        await self.until(left, lambda seen: not seen, f"{role} has read everything", within_s)

    async def until(
        self, look: Callable[[], Awaitable[T]], holds: Callable[[T], bool], what: str, within_s: float = WITHIN_S
    ) -> T:
        """What was looked at, once it holds."""
        deadline_s = time.monotonic() + within_s
        while True:
            seen = await look()
            if holds(seen):
                return seen
            assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}; last seen: {seen}"
            await asyncio.sleep(LOOK_EVERY_S)


async def _events(lines: AsyncIterable[bytes]) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in lines:
        word, _, value = line.decode().rstrip("\n").partition(": ")
        if word == "event":
            name = value
        elif word == "data":
            yield name, json.loads(value)


def upload(definition: Mapping[str, Any], lines: Any) -> aiohttp.MultipartWriter:
    """The two parts of a campaign. lines: bytes, a stream, or an asynchronous iterator of them."""
    parts = aiohttp.MultipartWriter("form-data")
    parts.append_json(dict(definition)).set_content_disposition("form-data", name="campaign")
    audience = parts.append(lines, {"Content-Type": "application/x-ndjson"})
    audience.set_content_disposition("form-data", name="recipients", filename="audience.ndjson")
    return parts
