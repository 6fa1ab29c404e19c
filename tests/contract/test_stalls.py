"""A provider that falls silent before anything was sent: the call ends as not sent, never as perhaps sent.

With the time of the provider and the deadline of the call alike, as they are unless somebody says otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from consumers.providers.contract import Call, Provider
from deploy import senders
from deploy.sections import Provider as ProviderSection
from deploy.sections import Sending
from deploy.settings import Settings
from schemas.clock import SystemClock
from schemas.content import Content
from schemas.messages import Channel
from schemas.outcomes import Outcome
from schemas.policies import OnUnknown
from tests.doubles import deliveries
from tests.doubles.sender_bench import SenderBench, shown

TIME_S = 0.4
LONGEST_S = Sending(deadline_s=TIME_S).longest_call_s
CALL = Call("default", "mia", "key", "n1", "ref", Channel.EMAIL, "welcome", "mia@example.com", Content(text="Hi"), 0)
GREETED = (b"220 me\r\n", b"250-me\r\n250 PIPELINING\r\n")


@asynccontextmanager
async def stalling_server(*lines: bytes) -> AsyncIterator[int]:
    """Says one of these with each read, and then nothing more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for line in lines:
            writer.write(line)
            await reader.read(4096)
        while await reader.read(4096):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def provider(url: str, **more: object) -> Provider:
    kind = "smtp" if url.startswith("smtp") else "http"
    section = {"kind": kind, "url": url, "from": "Shop <a@b.org>", "rate_per_s": 9, "burst": 9, "timeout_s": TIME_S}
    given = ProviderSection.model_validate({**section, **more})
    return senders.outside(Settings(sending=Sending(deadline_s=TIME_S), providers={"one": given}), "one", SystemClock())


@pytest.mark.parametrize(
    ("scheme", "lines"),
    [("smtp", ()), ("smtp", (*GREETED, b"250 2.1.0 ok\r\n")), ("smtps", ()), ("https", ())],
    ids=["no banner", "silence at the recipient", "no TLS for mail", "no TLS for HTTP"],
)
async def test_a_stall_before_the_content_is_no_possible_duplicate_and_no_loss(
    tmp_path: Path, scheme: str, lines: tuple[bytes, ...]
) -> None:
    bench = SenderBench(tmp_path, deadline_s=TIME_S)
    bench.policy = replace(bench.policy, channels=(Channel.EMAIL,), on_unknown=OnUnknown.RISK_LOSS)
    async with stalling_server(*lines) as port:
        bench.provider = provider(f"{scheme}://127.0.0.1:{port}/")  # type: ignore[assignment]
        (answer,) = await bench.send(deliveries.single(channel=Channel.EMAIL))
        await bench.provider.close()
    assert shown(answer) == [("retrying", "provider_down")]


@pytest.mark.parametrize(("scheme", "lines"), [("smtp", GREETED), ("http", ())])
async def test_waiting_for_a_connection_and_the_call_take_no_longer_together_than_the_time_of_the_provider(
    scheme: str, lines: tuple[bytes, ...]
) -> None:
    """A worker that is told to stop waits for that long, and no longer."""
    loop = asyncio.get_running_loop()
    async with stalling_server(*lines) as port:
        slow = provider(f"{scheme}://127.0.0.1:{port}/", concurrency=1)
        other = await slow.reach()
        assert not isinstance(other, Outcome)
        began_s = loop.time()
        loop.call_later(0.9 * LONGEST_S, other.leave)
        way = await slow.reach()
        assert not isinstance(way, Outcome)
        await way.send(CALL)
        assert 0.9 * LONGEST_S < loop.time() - began_s < 1.6 * LONGEST_S
        way.leave()
        await slow.close()
