"""The example of the settings works against a foreign HTTP server that knows nothing of Tidings."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.acceptance import deployment

EXAMPLE = """
[kafka]
bootstrap = "{kafka}"
[redis]
url = "{redis}"
[api]
listen = "127.0.0.1:{api}"
[callbacks]
listen = "127.0.0.1:{callbacks}"
[templates]
path = "templates"
[channels.push]
providers = ["gateway"]
[providers.gateway]
kind = "http"
url = "http://127.0.0.1:{http}/send"
rate_per_s = 5000
burst = 500
timeout_s = 5
callback_secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
[providers.mail]
kind = "smtp"
url = "smtp://127.0.0.1:2525"
from = "Shop <news@example.org>"
rate_per_s = 2000
burst = 200
[providers.texter]
kind = "http"
url = "http://127.0.0.1:{http}/sms"
rate_per_s = 100
burst = 20
prices = {{ DE = 0.07, default = 0.05 }}
[tenants.default]
time_zone = "Europe/Berlin"
locale = "de"
weight = 1
quiet_hours = {{ from = "22:00", to = "08:00" }}
budget_per_day = {{ sms = 250.0 }}
keys = [{{ hash = "sha256:{key_hash}", scopes = ["send", "campaigns", "users", "read", "operate"] }}]
"""
DATABASE = 14
LOOK_EVERY_S, LOOKS_MOST = 0.1, 600
KEY = "an example key"


class Foreign:
    """A gateway that answers 200 with no body and remembers what it was sent."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, object]] = []
        self.arrived = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        assert request.headers["Idempotency-Key"]
        self.bodies.append(json.loads(await request.read()))
        self.arrived.set()
        return web.Response()

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_post("/send", self.take)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            yield
        finally:
            await runner.cleanup()


def written(folder: Path, kafka: str, redis_url: str, ports: dict[str, int]) -> Path:
    """The example with this machine's addresses, and one template in German."""
    template = folder / "templates" / "shipped"
    template.mkdir(parents=True)
    (template / "template.toml").write_text('class = "transactional"\nchannels = ["push"]\n')
    (template / "push.de.j2").write_text("{% block text %}Hallo {{ name }}{% endblock %}")
    file = folder / "tidings.toml"
    file.write_text(EXAMPLE.format(kafka=kafka, redis=redis_url, key_hash=key_hash(), **ports))
    return file


def key_hash() -> str:
    return hashlib.sha256(KEY.encode()).hexdigest()


async def test_the_example_settings_send_through_a_server_that_knows_nothing_of_tidings(
    tmp_path: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    prefix = f"example-{secrets.token_hex(3)}."
    ports = dict(zip(("api", "callbacks", "http"), deployment.free_ports(3), strict=True))
    redis = deployment.database(redis_url, DATABASE)
    file = written(tmp_path, kafka_bootstrap, redis, ports)
    foreign = Foreign()
    environment = {"TIDINGS_TOPIC_PREFIX": prefix, "TIDINGS_UP__READY_WITHIN_S": "200"}
    async with foreign.serving(ports["http"]):
        with deployment.emptied(redis), deployment.removed_topics(kafka_bootstrap, prefix):
            up = deployment.program(tmp_path, ("up", "--config", str(file)), environment)
            await asyncio.to_thread(up.__enter__)
            try:
                api = f"http://127.0.0.1:{ports['api']}"
                sent = await _send(api)
                async with asyncio.timeout(60):
                    await foreign.arrived.wait()
                await _until_sent(f"{api}/v1/notifications/{sent['notification_id']}")
            finally:
                await asyncio.to_thread(up.__exit__, None, None, None)
    [body] = foreign.bodies
    assert (body["channel"], body["to"], body["text"]) == ("push", "phone-of-mia", "Hallo Mia")


async def _send(api: str) -> dict[str, str]:
    to = {"devices": [{"token": "phone-of-mia", "platform": "android"}]}
    body = {"user_id": "mia", "template": "shipped", "params": {"name": "Mia"}, "to": to}
    headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": "1"}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.post(f"{api}/v1/notifications", json=body) as answer,
    ):
        assert answer.status == 202, await answer.text()
        found: dict[str, str] = await answer.json()
        return found


async def _until_sent(url: str) -> None:
    for _ in range(LOOKS_MOST):
        told = await _ask(url)
        if told.get("status") == "sent":
            return
        await asyncio.sleep(LOOK_EVERY_S)
    raise AssertionError(f"not sent: {told}")


async def _ask(url: str) -> dict[str, str]:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as client, client.get(url) as answer:
        found: dict[str, str] = await answer.json()
        return found
