"""`tidings breaker`: what people are shown of how providers stand."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from deploy.commands import breakers
from deploy.commands.breakers import Stand
from tests.doubles.manual_clock import START_MS

WELL = Stand("mail", ("email",), "closed", "", None, None, 1, 100, 1.0, 0.0, 0)
AWAY = replace(WELL, provider="gateway", state="open", reason="failures", since_ms=START_MS, next_probe_in_s=4.6)


def test_people_see_why_and_since_when_a_provider_is_not_called() -> None:
    shown = Console(width=120, file=io.StringIO())
    shown.print(breakers.sheet([AWAY, WELL]))
    assert isinstance(shown.file, io.StringIO)
    rows = [" ".join(line.split()) for line in shown.file.getvalue().splitlines()]
    assert rows[1] == "gateway email open failures 2026-11-30T00:53:20+00:00 1 of 100 in 5 s 100%"
    assert rows[2] == "mail email closed - - 1 of 100 - 100%"
