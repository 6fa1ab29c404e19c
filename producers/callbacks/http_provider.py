"""Reads callbacks of the provider kind `http`: one report or a list of them.

`{"type": "delivered" | "undelivered" | "bounced" | "complained", "reference", "id"?, "at"?, "detail"?}`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson

from producers import fields
from schemas import metrics
from schemas.errors import Poison
from schemas.messages import EventKind, RawCallback
from schemas.reasons import ParkReason
from schemas.reports import Report

KINDS: Mapping[str, EventKind] = {
    "delivered": EventKind.DELIVERED,
    "undelivered": EventKind.UNDELIVERED,
    "bounced": EventKind.BOUNCED,
    "complained": EventKind.COMPLAINED,
}
SUPPRESSING = frozenset({EventKind.BOUNCED, EventKind.COMPLAINED})
DETAIL_MAX = 200


def read(raw: RawCallback) -> list[Report]:
    """The reports in a callback. Unknown kinds are counted and skipped: a new one is no reason to refuse the rest."""
    try:
        body = orjson.loads(raw.body)
    except orjson.JSONDecodeError as error:
        raise Poison(ParkReason.BAD_REQUEST, f"a callback of {raw.provider} is not JSON: {error}") from error
    items = body if isinstance(body, list) else [body]
    told = [_report(item, raw.received_at_ms) if isinstance(item, dict) else None for item in items]
    for kind, count in Counter([report.kind.value if report else "unknown" for report in told]).items():
        metrics.CALLBACK_EVENTS.labels(raw.provider, kind).inc(count)
    return [report for report in told if report is not None]


def _report(item: Mapping[str, Any], received_at_ms: int) -> Report | None:
    kind = KINDS.get(_text(item, "type"))
    if kind is None:
        return None
    return Report(
        kind,
        reference=_text(item, "reference"),
        message_id=_text(item, "id"),
        at_ms=_at_ms(item, received_at_ms),
        detail=_text(item, "detail")[:DETAIL_MAX],
        suppress=kind in SUPPRESSING,
    )


def _at_ms(item: Mapping[str, Any], received_at_ms: int) -> int:
    """When it happened, never later than we heard of it; what cannot be read counts as just now."""
    try:
        return min(fields.instant_ms(item.get("at")), received_at_ms)
    except (ValueError, OverflowError):
        return received_at_ms


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""
