"""`tidings simulate`: the provider stand-ins, listening where the settings' providers point."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

from deploy import ready
from deploy.settings import Settings
from deploy.simulators import faults, run
from deploy.simulators.callbacks import Target
from schemas.errors import Misconfigured

HTTP_PORT = 9000
SMTP_PORT = 2525
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def options(settings: Settings, http_port: int | None, smtp_port: int | None, ordered: str) -> run.Options:
    """Ports not given are those of the providers on this machine; callbacks go to each provider's own address.

    ordered: faults as JSON. Raises Misconfigured when they cannot be read.
    """
    try:
        fate = faults.parse(json.loads(ordered or "{}"))
    except (ValueError, AttributeError) as error:
        raise Misconfigured(f"--faults: {error}") from None
    return run.Options(
        http_port=_port(settings, "http", HTTP_PORT) if http_port is None else http_port,
        smtp_port=_port(settings, "smtp", SMTP_PORT) if smtp_port is None else smtp_port,
        callbacks=dict(_targets(settings)),
        faults=fate,
        id_prefix=f"sim-{secrets.token_hex(3)}",
    )


async def simulate(chosen: run.Options) -> None:
    """Until cancelled."""
    async with run.running(chosen) as world:
        print(f"HTTP provider and ledger: http://{chosen.host}:{world.http_port}/ledger", flush=True)
        print(f"mail server: smtp://{chosen.host}:{world.smtp_port}", flush=True)
        ready.tell()
        await asyncio.Event().wait()


def _port(settings: Settings, kind: str, otherwise: int) -> int:
    for provider in settings.providers.values():
        address = urlsplit(provider.url)
        if provider.kind == kind and address.hostname in _LOOPBACK and address.port:
            return address.port
    return otherwise


def _targets(settings: Settings) -> Iterator[tuple[str, Target]]:
    for name, provider in settings.providers.items():
        if provider.kind == "http":
            url = f"http://{settings.callbacks.listen}/v1/callbacks/{name}"
            secret = provider.callback_secret[0].get_secret_value() if provider.callback_secret else ""
            yield urlsplit(provider.url).path or "/", Target(url, secret)
