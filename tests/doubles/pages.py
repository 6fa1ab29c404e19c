"""Builders of released pages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from schemas.messages import Priority, Recipient, ReleasedPage
from tests.doubles.manual_clock import START_MS


def page(*recipients: Recipient | str, **changes: Any) -> ReleasedPage:
    """Page 3 of the campaign "spring", released now; strings are user ids."""
    found = tuple(Recipient(r) if isinstance(r, str) else r for r in recipients)
    released = ReleasedPage(
        tenant="default",
        campaign_id="spring",
        page=3,
        template="offer",
        params='{"sale": 7}',
        channels=(),
        priority=Priority.BULK,
        accepted_at_ms=START_MS - 5_000,
        released_at_ms=START_MS,
        expires_at_ms=START_MS + 3_600_000,
        source_offset=41,
        hop=0,
        slots=(),
        recipients=found,
    )
    return replace(released, **changes)
