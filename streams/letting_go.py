"""What comes out of hold: parts of pages read again from the audience, deliveries from the hold itself.

Neighbour of `streams/holds.py`, which knows what is due; `streams/dispatch.py` publishes what is made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from retry_topics import hold
from schemas import codec, keys, metrics
from schemas.errors import Poison
from schemas.messages import CampaignRequested, Delivery, Held, Recipient
from schemas.reasons import Reason
from schemas.records import LogReader, Outgoing, Publisher, Record
from schemas.rows import CAMPAIGN_SLOTS
from schemas.stores import StatusReads
from schemas.topics import Topics
from streams import holds
from streams.holds import Holds, Part, Thing, Waiting
from streams.page_reader import PageAt, PageReader
from streams.went_before import WentBefore

READ_OVER = 300
"""So many records in between are read over rather than sought behind."""
ROWS_KNOW_AFTER_MS = 20 * 3_600_000
"""Plans are kept for 24 h. Who may have been let go before that is asked for in the rows (`streams/fan_out.py`); what
may have gone of whole pages `streams/released_before.py` knows.
"""
LONG_AGO_MS = 23 * 3_600_000
"""How long ago fan-out must believe a page was let go to ask its row."""
_NOBODY = Recipient("")


@dataclass(frozen=True, slots=True)
class Piece:
    """Slots of a part. page: what it is a part of; None: the log does not hold it any more. rest: the slots of the
    part that stay behind when these go.
    """

    part: Part
    page: PageAt | None
    mask: int
    rest: int = 0

    @property
    def size(self) -> int:
        return self.mask.bit_count()

    @property
    def slots(self) -> tuple[int, ...]:
        return holds.slots(self.mask)

    @property
    def recipients(self) -> tuple[Recipient, ...]:
        """By position; those of other slots are left empty. Nobody where the page is lost."""
        everyone = self.page.page.recipients if self.page is not None else ()
        return tuple([one if self.mask >> slot & 1 else _NOBODY for slot, one in enumerate(everyone)])

    def users(self) -> list[tuple[int, str]]:
        """(slot, user id) of each; the id is "" where the page is lost."""
        everyone = self.page.page.recipients if self.page is not None else ()
        return [(slot, everyone[slot].user_id if slot < len(everyone) else "") for slot in self.slots]

    def first(self, most: int) -> Piece:
        """Its first slots, at most so many."""
        mask = sum(1 << slot for slot in self.slots[:most])
        return replace(self, mask=mask, rest=self.mask & ~mask)

    def released_at_ms(self, now_ms: int) -> int:
        """Now, or so long ago that fan-out asks the row whether this part went before and its plans are forgotten."""
        return now_ms if now_ms - self.part.since_ms < ROWS_KNOW_AFTER_MS else now_ms - LONG_AGO_MS


class Found(NamedTuple):
    """A delivery read again from `hold`."""

    thing: Waiting
    record: Record
    held: Held
    delivery: Delivery


class LettingGo:
    """Makes records of what is due in `holds`. rows: see `streams/went_before.py`."""

    def __init__(self, held: Holds, reader: LogReader, pages: PageReader, topics: Topics, rows: StatusReads) -> None:
        self.holds = held
        self._went_before = WentBefore(rows)
        self._reader = reader
        self._pages = pages
        self._topics = topics

    async def piece(self, request: CampaignRequested, part: Part) -> Piece:
        """All of a part. Raises Transient on a broker failure."""
        page = await self._pages.at(request, part.page, part.source_offset)
        if page is not None:
            return Piece(part, page, part.mask & _first_slots(len(page.page.recipients)))
        usual = _usual_size(request, part.page) if part.mask == holds.ALL else CAMPAIGN_SLOTS
        return Piece(part, None, part.mask & _first_slots(usual))

    async def found(self, things: Iterable[Waiting]) -> list[Found]:
        """What still lies where it was put. Raises Transient on a broker failure."""
        wanted = {(thing.partition, thing.offset): thing for thing in things}
        found = []
        for partition, first, last in _ranges(wanted):
            async for record in self._reader.read_range(self._topics.hold, partition, first, last):
                thing = wanted.get((partition, record.offset))
                held = _held(record) if thing is not None and record.key == thing.hold_id else None
                if thing is not None and held is not None and held.delivery is not None:
                    found.append(Found(thing, record, held, held.delivery))
        return found

    async def went_before(self, found: Sequence[Found], now_ms: int) -> list[bool | None]:
        """For each whether it went long ago; None where that cannot be known now."""
        return await self._went_before.among([(one.held, one.delivery) for one in found], now_ms)

    async def deliveries(self, things: Sequence[Waiting], now_ms: int) -> list[tuple[Waiting, Outgoing | None]]:
        """These, as records of their lanes; None for one that went long ago.

        Left out: what lies there no more, as it was put in again or let go; and what may have gone long ago while
        nobody knows whether it did. Raises Transient on a broker failure.
        """
        found = await self.found(things)
        went = await self.went_before(found, now_ms)
        return [
            (one.thing, None if gone else _released(one, now_ms))
            for one, gone in zip(found, went, strict=True)
            if gone is not None
        ]

    async def bury(self, things: Sequence[Part | Thing], publisher: Publisher) -> None:
        """The tombstones of these, acked: the last step of whatever becomes of them. Raises Transient."""
        await publisher.publish([hold.tombstone(self._topics, thing.hold_id) for thing in things])
        self.holds.gone(things)
        for thing in things:
            metrics.HELD_LET_GO.labels(thing.reason).inc()


def _released(one: Found, now_ms: int) -> Outgoing:
    """Into its lane. Who waited for others and was alone has waited enough: the digest is of one.

    A look-alike comes out when an operator said so, or to end: nobody needs to be asked again.
    """
    gathered = max(1, one.delivery.digest_of) if one.held.reason == Reason.DIGEST else one.delivery.digest_of
    later = replace(one.delivery, hop=one.held.hop, released_at_ms=now_ms, digest_of=gathered)
    later = replace(later, force=True) if one.held.reason == Reason.LOOKALIKE else later
    key = keys.user_key(later.tenant, later.user_id).encode()
    return Outgoing(one.thing.flow.lane, key, codec.encode(later), one.record.headers)


def _held(record: Record) -> Held | None:
    try:
        return codec.decode(record.value, Held)
    except Poison:
        return None


def _ranges(places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """(partition, first offset, last) that together hold all these places, with few others."""
    for partition, group in groupby(sorted(places), key=lambda place: place[0]):
        first = last = -1
        for _, offset in group:
            if first >= 0 and offset - last > READ_OVER:
                yield partition, first, last
                first = -1
            first, last = offset if first < 0 else first, offset
        yield partition, first, last


def _first_slots(count: int) -> int:
    return (1 << count) - 1


def _usual_size(request: CampaignRequested, page: int) -> int:
    """How many recipients a page has that nobody can read: as an upload fills them, all but the last to the brim."""
    before = min(page, request.pages - 1) * CAMPAIGN_SLOTS
    return max(0, min(CAMPAIGN_SLOTS, request.recipients - before))
