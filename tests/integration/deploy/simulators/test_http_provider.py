"""The HTTP stand-in over real sockets: its wire format, its faults, its callbacks and its book."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from standardwebhooks import Webhook

from deploy.simulators import run
from deploy.simulators.callbacks import Target
from deploy.simulators.faults import Faults

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Listener:
    """Stands where Tidings' callback door stands."""

    def __init__(self) -> None:
        self.posts: list[tuple[dict[str, str], bytes]] = []
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.refuse = 0

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.refuse:
            self.refuse -= 1
            return web.Response(status=503)
        self.posts.append((dict(request.headers), body))
        told = json.loads(body)
        for event in told if isinstance(told, list) else [told]:
            self.events.put_nowait(event)
        return web.Response(status=204)

    async def next(self, count: int) -> list[dict[str, Any]]:
        return [await asyncio.wait_for(self.events.get(), 10) for _ in range(count)]


@pytest.fixture
async def listener() -> AsyncIterator[tuple[Listener, str]]:
    listening = Listener()
    app = web.Application()
    app.router.add_post("/cb", listening.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield listening, f"http://127.0.0.1:{runner.addresses[0][1]}/cb"
    await runner.cleanup()


@pytest.fixture
async def simulator(listener: tuple[Listener, str]) -> AsyncIterator[str]:
    callbacks = {"/send": Target(listener[1], SECRET)}
    faults = Faults(callback_ms=5, late_ms=400)
    async with run.running(run.Options(http_port=0, smtp_port=0, callbacks=callbacks, faults=faults)) as running:
        yield f"http://127.0.0.1:{running.http_port}"


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def _send(client: aiohttp.ClientSession, base: str, key: str, path: str = "/send", to: str = "+491") -> Any:
    message = {"delivery_key": key, "reference": f"ref-{key}", "channel": "push", "to": to, "text": "hi"}
    async with client.post(base + path, json=message, headers={"Idempotency-Key": key}) as answer:
        return answer.status, answer.headers, await answer.json()


async def _order(client: aiohttp.ClientSession, base: str, **faults: Any) -> None:
    async with client.post(f"{base}/faults", json=faults) as answer:
        assert answer.status == 200, await answer.text()


async def _ledger(client: aiohttp.ClientSession, base: str, query: str = "") -> Any:
    async with client.get(f"{base}/ledger{query}") as answer:
        return await answer.json()


async def test_a_call_is_accepted_counted_and_reported_as_delivered(
    client: aiohttp.ClientSession, simulator: str, listener: tuple[Listener, str]
) -> None:
    status, _, body = await _send(client, simulator, "k1")
    assert (status, set(body)) == (202, {"id"})
    (event,) = await listener[0].next(1)
    assert (event["type"], event["reference"], event["id"]) == ("delivered", "ref-k1", body["id"])
    headers, raw = listener[0].posts[0]
    assert Webhook(SECRET).verify(raw, headers)  # a library that is not ours
    assert await _ledger(client, simulator, "?key=k1") == {"/send": {"calls": 1, "sends": 1}}


async def test_a_repeated_key_counts_as_a_repeat_unless_told_to_be_idempotent(
    client: aiohttp.ClientSession, simulator: str
) -> None:
    for _ in range(2):
        await _send(client, simulator, "k1")
    assert (await _ledger(client, simulator))["repeats"] == 1
    await client.post(f"{simulator}/ledger/reset")
    await _order(client, simulator, idempotent=True)
    for _ in range(2):
        await _send(client, simulator, "k1")
    summary = await _ledger(client, simulator)
    assert (summary["calls"], summary["sends"], summary["repeats"]) == (2, 1, 0)


async def test_statuses_refusals_and_retry_after_as_ordered(client: aiohttp.ClientSession, simulator: str) -> None:
    await _order(client, simulator, service="/send", errors={"429": 1}, retry_after_s=3, retry_after_form="date")
    status, headers, _ = await _send(client, simulator, "k1")
    assert status == 429 and headers["Retry-After"].endswith("GMT")
    assert (await _send(client, simulator, "k1", path="/sms"))[0] == 202
    await _order(client, simulator, service="/send", refusals={"dead_address": 1})
    status, _, body = await _send(client, simulator, "k1")
    assert (status, body) == (422, {"error": "dead_address"})
    assert (await _ledger(client, simulator))["services"]["/send"]["sends"] == 0


async def test_a_dropped_reply_was_sent_and_a_hang_was_not(client: aiohttp.ClientSession, simulator: str) -> None:
    await _order(client, simulator, drop_reply=1)
    with pytest.raises(aiohttp.ClientError):
        await _send(client, simulator, "dropped")
    await _order(client, simulator, hang=1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_send(client, simulator, "hung"), 0.2)
    summary = (await _ledger(client, simulator))["services"]["/send"]
    assert (summary["calls"], summary["sends"]) == (2, 1)
    assert summary["answers"]["dropped"] >= 1


async def test_callbacks_twice_out_of_order_silent_and_late(
    client: aiohttp.ClientSession, simulator: str, listener: tuple[Listener, str]
) -> None:
    await _order(client, simulator, complained=1, out_of_order=1, callback_ms=1)
    await _send(client, simulator, "k1")
    assert [event["type"] for event in await listener[0].next(2)] == ["complained", "delivered"]
    await _order(client, simulator, twice=1, bounced=1, callback_ms=1)
    await _send(client, simulator, "k2")
    assert [event["type"] for event in await listener[0].next(2)] == ["bounced", "bounced"]
    await _order(client, simulator, late=1, late_ms=150)
    await _send(client, simulator, "late")
    await _order(client, simulator, silent=1)
    await _send(client, simulator, "silent")
    await _order(client, simulator, callback_ms=1)
    await _send(client, simulator, "prompt")
    assert [event["reference"] for event in await listener[0].next(2)] == ["ref-prompt", "ref-late"]
    assert (await _ledger(client, simulator))["callbacks"]["silent"] == 1


async def test_a_refused_callback_is_posted_again(
    client: aiohttp.ClientSession, simulator: str, listener: tuple[Listener, str]
) -> None:
    listener[0].refuse = 1
    await _send(client, simulator, "k1")
    assert (await listener[0].next(1))[0]["reference"] == "ref-k1"


async def test_keys_are_listed_and_messages_kept_for_reading(client: aiohttp.ClientSession, simulator: str) -> None:
    for n in range(3):
        await _send(client, simulator, f"k{n}", to=f"+49{n}")
    async with client.get(f"{simulator}/ledger?keys=1") as answer:
        lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert [line["sends"] for line in lines] == [1, 1, 1]
    async with client.get(f"{simulator}/messages", params={"to": "+492"}) as answer:
        assert [m["key"] for m in await answer.json()] == ["k2"]


async def test_a_marked_message_is_counted_by_its_name_and_timed(client: aiohttp.ClientSession, simulator: str) -> None:
    wished_s = time.time() - 2.0
    message = {"delivery_key": "k1", "channel": "push", "to": "+491", "text": f"#code@{wished_s:.6f} Your code is 1"}
    for _ in range(2):
        async with client.post(f"{simulator}/send", json=message) as answer:
            assert answer.status == 202
    [(name, told)] = (await _ledger(client, simulator, "/marks")).items()
    assert (name, told["sends"], told["distinct"], told["repeats"]) == ("code", 2, 1, 1)
    [[came_s, wait_s]] = told["waits"]
    assert 2.0 <= wait_s < 10.0 and came_s == pytest.approx(wished_s + wait_s)
    assert (await _ledger(client, simulator, f"/marks?since={came_s + 10}"))["code"]["waits"] == []


async def test_broken_input_is_answered_not_counted(client: aiohttp.ClientSession, simulator: str) -> None:
    async with client.post(f"{simulator}/send", data=b"{broken") as answer:
        assert answer.status == 400
    async with client.post(f"{simulator}/faults", json={"hangg": 1}) as answer:
        assert (answer.status, "hangg" in await answer.text()) == (400, True)
    assert (await _ledger(client, simulator))["calls"] == 0


async def test_calls_sent_together_on_one_connection_are_answered_in_order(simulator: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(simulator.rpartition(":")[2]))
    await _order_answer_time(simulator)
    body = b'{"delivery_key":"k"}'
    request = b"POST /send HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    writer.write(request * 3)
    ids = []
    for _ in range(3):
        await reader.readuntil(b"\r\n\r\n")
        ids.append(json.loads(await reader.readuntil(b"}"))["id"])
    assert ids == sorted(ids) and len(set(ids)) == 3
    writer.close()
    await writer.wait_closed()


async def _order_answer_time(simulator: str) -> None:
    async with aiohttp.ClientSession() as client:
        await _order(client, simulator, answer_ms=5)


async def test_what_became_of_a_message_can_be_asked_also_where_no_callback_comes(
    client: aiohttp.ClientSession, simulator: str
) -> None:
    async def status(message_id: str) -> dict[str, Any]:
        async with client.get(f"{simulator}/send/status", params={"id": message_id}) as answer:
            assert answer.status == 200
            found: dict[str, Any] = await answer.json()
            return found

    await _order(client, simulator, service="/send", silent=1, bounced=1, callback_ms=0)
    _, _, body = await _send(client, simulator, "k1")
    told = await status(body["id"])
    assert (told["type"], told["reference"]) == ("bounced", "ref-k1")
    await _order(client, simulator, service="/send", silent=1, callback_ms=60_000)
    _, _, body = await _send(client, simulator, "k2")
    assert (await status(body["id"]))["type"] == "pending"
    assert (await status("nobody"))["type"] == "unknown"
    await _order(client, simulator, service="/send", asked_errors=1)
    async with client.get(f"{simulator}/send/status", params={"id": body["id"]}) as answer:
        assert answer.status == 503
    assert (await _ledger(client, simulator))["asked"] == {"bounced": 1, "pending": 1, "unknown": 1, "503": 1}
