"""The long waiting room: schedules, quiet hours, paused campaigns, look-alikes. What lies there, and when it may go.

Topic `hold`, compacted: one record for each thing that waits, under an id that ends in the hop of what comes out of
it. Whoever lets something go publishes what comes out, and then the tombstone of exactly that hop: a crash between
the two lets the same hop go again, which plans and claims absorb. The same thing put in twice has the same id.
"""

from __future__ import annotations

import hashlib

from schemas import codec, keys, quiet_hours
from schemas.messages import Held
from schemas.records import Headers, Outgoing
from schemas.topics import Topics

SPREAD_MS = quiet_hours.SPREAD_MS
"""Over how long things are spread that would all be due at the same moment, e.g. at the end of quiet hours."""


def record(topics: Topics, held: Held, headers: Headers = ()) -> Outgoing:
    """The record that puts this into hold. headers: those it travels with."""
    return page_record(topics, held, headers) if held.page is not None else delivery_record(topics, held, headers)


def page_record(topics: Topics, held: Held, headers: Headers = ()) -> Outgoing:
    """The record that puts this part of a page into hold."""
    page = held.page
    assert page is not None, "a part of a page"
    hold_id = keys.held_page_id(held.tenant, page.campaign_id, page.page, page.slots, held.hop)
    return Outgoing(topics.hold, hold_id.encode(), codec.encode(held), headers)


def delivery_record(topics: Topics, held: Held, headers: Headers = ()) -> Outgoing:
    """The record that puts this delivery into hold."""
    waits = held.delivery
    assert waits is not None, "a delivery"
    suffix = keys.delivery_suffix(waits.channel, waits.device)
    address = keys.Address(waits.row, waits.slot)
    hold_id = keys.held_delivery_id(held.tenant, waits.user_id, address, suffix, held.hop)
    return Outgoing(topics.hold, hold_id.encode(), codec.encode(held), headers)


def tombstone(topics: Topics, hold_id: bytes) -> Outgoing:
    """Says that what lies under this id was let go. Only once what came out of it is in the log."""
    return Outgoing(topics.hold, hold_id, None)


def spread_ms(name: str, over_ms: int = SPREAD_MS) -> int:
    """A delay of 0 to over_ms (less than it), the same for a name each time. name: an intent, or a row."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") * over_ms >> 64


def fitted_ms(delay_ms: int, begins_ms: int, expires_ms: int) -> int:
    """The delay behind begins_ms, shorter where it would take more than half of the time that is left by then.

    Who is let go a moment before the message expires is not reached in time.
    """
    half_ms = (expires_ms - begins_ms) // 2
    return delay_ms % half_ms if half_ms > 0 else 0
