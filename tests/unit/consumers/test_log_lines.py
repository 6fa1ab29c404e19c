"""What a sender writes into its log: never whom it wrote to, nor what."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from deploy import logs
from schemas.outcomes import Kind, Outcome
from tests.doubles import deliveries
from tests.doubles.sender_bench import SenderBench

PHONE = "+4930123456"
NAME = "Ada Lovelace"


async def test_a_senders_log_names_nobody_and_says_nothing_of_the_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Sent, refused, tried again, an adapter that breaks with all of it in its words, a value that is missing."""
    caplog.set_level(logging.DEBUG)
    bench = SenderBench(tmp_path)
    bench.provider.script = [
        Outcome(Kind.DONE, provider_id="m1"),
        Outcome(Kind.DROP, detail="status 400"),
        Outcome(Kind.RETRY, detail="status 503"),
        ValueError(f"cannot write {NAME!r} to {PHONE}"),
    ]
    named = json.dumps({"name": NAME})
    sent = [deliveries.single(event_id=f"e{number}", params=named) for number in range(4)]
    await bench.send(*sent, deliveries.single(event_id="e4", params=json.dumps({"nme": NAME})))
    assert len(bench.provider.calls) == 4 and {PHONE} == {call.to for call in bench.provider.calls}
    lines = [logs.JsonLines("work sms.transactional").format(record) for record in caplog.records]
    assert any("call.failed" in line for line in lines)
    assert [line for line in lines if PHONE in line or NAME in line] == []
