"""The end of a blast, for people and for machines."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from deploy.blast import judging
from deploy.blast.facts import Facts
from deploy.blast.judging import Calm, Judgement
from deploy.demo.judge import percentile

WORDS = {True: "[green]yes[/green]", False: "[red]NO[/red]", None: "not judged"}


def show(facts: Facts, judgements: Sequence[Judgement], console: Console) -> None:
    """Tables: what was promised, and what else is worth knowing."""
    plan = facts.plan
    title = f"{plan.recipients:,} recipients, a provider of {plan.rate_per_s:,}/s, {os.cpu_count()} cores"
    table = Table(title=title)
    for heading in ("what", "promised", "found", "holds", ""):
        table.add_column(heading)
    for one in judgements:
        table.add_row(one.name, one.limit, _number(one.figure), WORDS[one.holds], one.said)
    console.print(table)
    console.print(_others(facts))


def as_json(facts: Facts, judgements: Sequence[Judgement]) -> dict[str, Any]:
    return {
        "plan": asdict(facts.plan),
        "cores": os.cpu_count(),
        "holds": not judging.failed(judgements),
        "judgements": [asdict(one) for one in judgements],
        "kills": [asdict(kill) for kill in facts.kills],
        "figures": figures(facts),
        "peaks_mb": rounded(facts.peaks_mb),
        "cores_used": rounded(facts.cores, 2),
        "campaigns": facts.told,
    }


def figures(facts: Facts) -> dict[str, float]:
    """What is not judged."""
    waits = judging.calm_waits_ms(facts, Calm(facts.kills))
    took_s = facts.large.last_new_s - facts.large.first_s
    return {
        "seconds until the 202 of the large campaign": round(facts.uploaded_s, 1),
        "seconds from its first send to its last": round(took_s, 1),
        "sends a second, on average": round(facts.large.distinct / max(took_s, 1e-3), 1),
        "login codes": facts.codes,
        "slowest login code in a calm time, ms": round(percentile(waits, 1.0), 1),
        "cores used, everything together": round(sum(facts.cores.values()), 2),
    }


def _others(facts: Facts) -> Table:
    table = Table(show_header=False, title="Beside it")
    for name, value in figures(facts).items():
        table.add_row(name, _number(value))
    table.add_row("peak MB", _listed(facts.peaks_mb, 0))
    if facts.cores:
        table.add_row("of a core", _listed(facts.cores, 2))
    for kill in facts.kills:
        back = "never back" if kill.back_after_s is None else f"back after {kill.back_after_s:.0f} s"
        table.add_row(f"kill -9 {kill.role}", f"{back}{', with an empty disk' if kill.disk else ''}")
    return table


def rounded(values: Mapping[str, float], digits: int = 0) -> dict[str, float]:
    """The largest first."""
    return {name: round(value, digits) for name, value in sorted(values.items(), key=lambda pair: -pair[1])}


def _listed(values: Mapping[str, float], digits: int) -> str:
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in rounded(values, digits).items())


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() or value >= 1000 else f"{value:,.3g}"
