"""One entry of a user's timeline: what support sees of a delivery, packed for a Redis list.

Senders push entries when a delivery is settled for good; the API reads the newest 100.
"""

from __future__ import annotations

from typing import NamedTuple

ENTRIES = 100
"""A timeline keeps this many, newest first."""
KEPT_S = 30 * 24 * 3600


class Entry(NamedTuple):
    """device is keys.device_hash ("" unless push); state is an EventKind; reason one of reasons.Reason."""

    at_ms: int
    notification_id: str
    channel: str
    device: str
    template: str
    state: str
    reason: str = ""


def pack(entry: Entry) -> bytes:
    """Line breaks part the fields: none of them can hold one."""
    return "\n".join(
        (
            str(entry.at_ms),
            entry.notification_id,
            entry.channel,
            entry.device,
            entry.template,
            entry.state,
            entry.reason,
        )
    ).encode()


def unpack(raw: bytes) -> Entry:
    at_ms, *rest = raw.decode().split("\n")
    return Entry(int(at_ms), *rest)
