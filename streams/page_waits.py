"""Who of a page is due later or has quiet hours now, and in which parts they wait until then.

`streams/fan_out.py` asks before it plans anything: people are planned, and written to, as they are known when they
are due. Pure: a campaign's dues follow from its request and a person's zone, quiet hours from the moment as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from retry_topics import hold
from schemas import keys, local_times, quiet_hours
from schemas.messages import EventKind, Held, HeldPage, ReleasedPage, StatusEvent
from schemas.quiet_hours import Nights
from schemas.reasons import Reason
from streams import planning

MOST_PARTS = 4
"""A page waits in at most so many records at once, however many zones its people live in.

So 10 million recipients, in 40,000 pages, are 40,000 records where all live in one zone, and at most 160,000. A part
waits for the first of its moments; those of its people who are due later by then wait on, as one part.
"""
SPREAD_PER_S = 100
"""Pages are spread over as long as so many recipients a second need up to them, at most over hold.SPREAD_MS: a campaign
of 250 starts at once, one of 10,000 within 100 s, one of a million over all of the half hour."""
PAGE_RECIPIENTS = 250
TOO_LATE = "its start comes after its expiry in the user's time zone"


class Wait(NamedTuple):
    """Somebody who is due later. reason: SCHEDULED, UNKNOWN_ZONE where the default zone stands in, or QUIET_HOURS."""

    slot: int
    until_ms: int
    reason: Reason


class Never(NamedTuple):
    """Somebody who would only be due after the expiry, and why, in words."""

    slot: int
    text: str


class Later(NamedTuple):
    """Those of a page who are not due yet, or never."""

    waits: Sequence[Wait] = ()
    never: Sequence[Never] = ()

    def slots(self) -> set[int]:
        return {one.slot for found in (self.waits, self.never) for one in found}


def later(page: ReleasedPage, zones: Iterable[tuple[int, str]], nights: Nights, now_ms: int) -> Later:
    """Who of these is due later, by the campaign's local start and by quiet hours. zones: (slot, own zone or "").

    A page let go by a clock that is ahead of this one is judged by that clock: it would come back at once.
    """
    if not page.send_at_local and nights.window is None:
        return Later()
    judged_at_ms, delay_ms = max(now_ms, page.released_at_ms), _spread_ms(page)
    waits: list[Wait] = []
    never: list[Never] = []
    for slot, own in zones:
        found = _judged(page, slot, own, nights, judged_at_ms, delay_ms)
        if isinstance(found, Wait):
            waits.append(found)
        elif found is not None:
            never.append(found)
    return Later(waits, never)


def _judged(page: ReleasedPage, slot: int, own: str, nights: Nights, now_ms: int, delay_ms: int) -> Wait | Never | None:
    """What keeps this one from being reached now; None: nothing does."""
    zone, known = local_times.known_zone(own, nights.zone)
    due_ms = 0
    if page.send_at_local:
        due_ms = local_times.due_ms(page.send_on, page.send_at_local, zone, page.accepted_at_ms)
    begins_ms = max(due_ms, now_ms)
    if due_ms > now_ms and due_ms >= page.expires_at_ms:
        return Never(slot, TOO_LATE)
    if quiet_until_ms := nights.until_ms(zone, begins_ms):
        if quiet_until_ms >= page.expires_at_ms:
            return Never(slot, quiet_hours.TOO_LONG)
        delay_ms = hold.fitted_ms(delay_ms, quiet_until_ms, page.expires_at_ms)
        return Wait(slot, nights.until_ms(zone, begins_ms, delay_ms), Reason.QUIET_HOURS)
    if due_ms <= now_ms:
        return None
    spread_ms = due_ms + hold.fitted_ms(delay_ms, due_ms, page.expires_at_ms)
    return Wait(
        slot,
        due_ms if nights.until_ms(zone, spread_ms) else spread_ms,
        Reason.SCHEDULED if known else Reason.UNKNOWN_ZONE,
    )


def parts(page: ReleasedPage, waits: Sequence[Wait], now_ms: int) -> list[Held]:
    """What is put into hold for them."""
    group_of = _groups({wait.until_ms for wait in waits}, MOST_PARTS if page.hop == 0 else 1)
    groups: dict[int, list[Wait]] = {}
    for wait in waits:
        groups.setdefault(group_of[wait.until_ms], []).append(wait)
    return [_part(page, groups[number], now_ms) for number in sorted(groups)]


def told(page: ReleasedPage, found: Later, now_ms: int) -> list[StatusEvent]:
    """What the row is told of each."""
    return [*(_told(page, wait, now_ms) for wait in found.waits), *_ends(page, found.never, now_ms)]


def _told(page: ReleasedPage, wait: Wait, now_ms: int) -> StatusEvent:
    return StatusEvent(
        wait.slot,
        EventKind.HELD if wait.reason is Reason.QUIET_HOURS else EventKind.SCHEDULED,
        now_ms,
        hop=page.hop + 1,
        reason=wait.reason,
        until_ms=wait.until_ms,
        user_id=page.recipients[wait.slot].user_id,
        template=page.template,
        accepted_at_ms=page.accepted_at_ms,
    )


def _ends(page: ReleasedPage, never: Sequence[Never], now_ms: int) -> list[StatusEvent]:
    return [
        planning.slot_end(
            one.slot,
            EventKind.EXPIRED,
            Reason.EXPIRED,
            now_ms,
            page.recipients[one.slot].user_id,
            page.template,
            page.accepted_at_ms,
            one.text,
        )
        for one in never
    ]


def _groups(moments: set[int], most: int) -> Mapping[int, int]:
    """Moment -> the number of its part, of at most so many; neighbours lie together."""
    count = min(most, len(moments))
    return {moment: place * count // len(moments) for place, moment in enumerate(sorted(moments))}


def _part(page: ReleasedPage, waits: Sequence[Wait], now_ms: int) -> Held:
    slots = tuple(sorted(wait.slot for wait in waits))
    first = min(waits, key=lambda wait: wait.until_ms)
    return Held(
        tenant=page.tenant,
        due_ms=first.until_ms,
        reason=Reason.QUIET_HOURS if first.reason is Reason.QUIET_HOURS else Reason.SCHEDULED,
        hop=page.hop + 1,
        held_at_ms=now_ms,
        page=HeldPage(
            page.campaign_id, page.page, page.source_offset, () if len(slots) == len(page.recipients) else slots
        ),
    )


def _spread_ms(page: ReleasedPage) -> int:
    """How much later than its moment a page goes: the same for all of it, so that it stays in few parts."""
    over_ms = min(hold.SPREAD_MS, page.page * PAGE_RECIPIENTS * 1_000 // SPREAD_PER_S)
    row = keys.recipient_address(page.campaign_id, page.page, 0).row
    return hold.spread_ms(keys.row_key(page.tenant, row), over_ms)
