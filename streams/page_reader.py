"""A campaign's own pages out of `campaign.audience`, in order, whole or in pieces, read a little ahead.

Pages of other uploads lie in between and are passed over; so is what cannot be read, into `internal.dlq`, and what
the log does not hold any more. `streams/cursors.py` says what becomes of the recipients of pages passed over.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from schemas import codec
from schemas.errors import Poison
from schemas.messages import AudiencePage, CampaignRequested, Recipient
from schemas.reasons import ParkReason
from schemas.records import Headers, LogReader, Outgoing, Publisher, Record
from schemas.topics import Topics
from streams.campaigns import Campaign

log = logging.getLogger(__name__)

Park = Callable[[Record, str, str], Outgoing]
"""The dead letter of a record: (record, error class, text)."""
OFFSETS_A_TURN = 32
AHEAD_BYTES = 8_000_000
"""Pages read ahead, all campaigns together, as they lie in the log; in memory they take about eight times as much."""
_NOBODY = Recipient("")
"""Stands in a piece of a page for a recipient of another piece."""


@dataclass(frozen=True, slots=True)
class PageAt:
    """A page, or a piece of one: the recipients from position `first` to before `after` (None: to the end).

    offset: where the page lies; headers: those it travels with.
    """

    offset: int
    page: AudiencePage
    headers: Headers = ()
    first: int = 0
    after: int | None = None

    @property
    def end(self) -> int:
        return len(self.page.recipients) if self.after is None else self.after

    @property
    def size(self) -> int:
        return self.end - self.first

    @property
    def ends_page(self) -> bool:
        return self.end == len(self.page.recipients)

    @property
    def slots(self) -> tuple[int, ...]:
        """As a released page names them: () for all."""
        return () if self.size == len(self.page.recipients) else tuple(range(self.first, self.end))

    @property
    def recipients(self) -> tuple[Recipient, ...]:
        """By position; those of other pieces are left empty, so that each travels once."""
        everyone = self.page.recipients
        before, behind = (_NOBODY,) * self.first, (_NOBODY,) * (len(everyone) - self.end)
        return (*before, *everyone[self.first : self.end], *behind)


@dataclass(slots=True)
class _Ahead:
    """Pages read and not taken yet, and where to read on. taken: recipients of the first that went already."""

    pages: deque[PageAt]
    next_page: int
    next_offset: int
    taken: int

    def drop_others(self) -> None:
        """What was taken of a page that is not there counts no more."""
        if self.pages and self.pages[0].page.page != self.next_page:
            self.taken = 0


class ReadAhead:
    """The next page of each campaign that releases pages, from its cursor on.

    most_bytes: of pages read ahead, all campaigns together, beyond one page for each.
    """

    def __init__(self, reader: PageReader, most_bytes: int = AHEAD_BYTES) -> None:
        self._reader = reader
        self._most_bytes = most_bytes
        self._ahead: dict[str, _Ahead] = {}
        self._sharing = 1

    def start_over(self) -> None:
        """Forgets what was read: after a failure, or a change of leader, cursors are where to go on."""
        self._ahead.clear()

    def keep_only(self, keys: Collection[str]) -> None:
        """Forgets what was read of other campaigns; these share the room for pages read ahead."""
        self._sharing = max(1, len(keys))
        for key in [key for key in self._ahead if key not in keys]:
            del self._ahead[key]

    def size(self, campaign: Campaign, request: CampaignRequested, most: int) -> int:
        """Recipients of the next piece, of at most so many; by what pages have on average until one was read."""
        ahead = self._ahead.get(campaign.key)
        if ahead is not None and ahead.pages:
            left = len(ahead.pages[0].page.recipients) - ahead.taken
        else:
            left = -(-request.recipients // max(1, request.pages))
        return max(1, _piece(left, most))

    async def take(self, campaign: Campaign, request: CampaignRequested, most: int | None = None) -> PageAt | None:
        """What is left of the next page, or a piece of it of at most so many recipients; None: the log holds no more.

        Raises Transient on a broker failure.
        """
        ahead = await self._read_on(campaign, request)
        found = ahead.pages[0] if ahead.pages else None
        number = found.page.page if found is not None else request.pages
        if number > ahead.next_page:
            gap = {"first_page": ahead.next_page, "pages": number - ahead.next_page}
            log.error("campaign.audience_lost", extra={"campaign": campaign.key, **gap})
        ahead.next_page = number
        if found is None:
            return None
        left = found.end - ahead.taken
        piece = replace(found, first=ahead.taken, after=ahead.taken + (left if most is None else _piece(left, most)))
        ahead.taken = piece.end
        if piece.ends_page:
            ahead.pages.popleft()
            ahead.next_page, ahead.taken = number + 1, 0
        return piece

    async def _read_on(self, campaign: Campaign, request: CampaignRequested) -> _Ahead:
        """What was read ahead, with at least one page in it unless there are no more."""
        ahead = self._ahead.get(campaign.key)
        if ahead is None:
            cursor = campaign.cursor
            start, taken = (cursor.next_offset, cursor.next_slot) if cursor is not None else (request.first_offset, 0)
            ahead = self._ahead[campaign.key] = _Ahead(deque(), campaign.next_page, start, taken)
        most_bytes = self._most_bytes // self._sharing
        while not ahead.pages and ahead.next_offset <= request.last_offset:
            pages, ahead.next_offset = await self._reader.read(request, ahead.next_page, ahead.next_offset, most_bytes)
            ahead.pages.extend(pages)
        ahead.drop_others()
        return ahead


def _piece(left: int, most: int) -> int:
    """So many of what is left that all pieces of at most `most` are of about one size."""
    return -(-left // max(1, -(-left // max(1, most))))


class PageReader:
    """Reads for any number of campaigns; keeps nothing between calls."""

    def __init__(self, reader: LogReader, publisher: Publisher, park: Park, topics: Topics) -> None:
        self._reader = reader
        self._publisher = publisher
        self._park = park
        self._topic = topics.audience

    async def read(
        self, request: CampaignRequested, next_page: int, next_offset: int, most_bytes: int
    ) -> tuple[list[PageAt], int]:
        """Some of the campaign's pages from `next_page` on, and the offset after what was read.

        No pages and an offset behind the request's last: there are no more. Raises Transient on a broker failure.
        """
        pages: list[PageAt] = []
        size, last = 0, min(request.last_offset, next_offset + OFFSETS_A_TURN - 1)
        try:
            async for record in self._reader.read_range(self._topic, request.partition, next_offset, last):
                page = await self._page(record)
                if page is not None and page.upload_id == request.upload_id and page.page >= next_page:
                    pages.append(PageAt(record.offset, page, record.headers))
                    next_page = page.page + 1
                    size += len(record.value or b"")
                if size >= most_bytes:
                    return pages, record.offset + 1
        except Poison as error:
            if error.reason != ParkReason.EXPIRED_LOG:
                raise
            start, _ = await self._reader.offsets(self._topic, request.partition)
            return pages, max(start, next_offset + 1)
        return pages, last + 1

    async def at(self, request: CampaignRequested, number: int, offset: int) -> PageAt | None:
        """The campaign's page that lies at this offset; None when the log does not hold it, or it cannot be read.

        Raises Transient on a broker failure.
        """
        record = await self._reader.read(self._topic, request.partition, offset)
        page = await self._page(record) if record is not None else None
        if record is None or page is None or (page.upload_id, page.page) != (request.upload_id, number):
            return None
        return PageAt(offset, page, record.headers)

    async def _page(self, record: Record) -> AudiencePage | None:
        try:
            return codec.decode(record.value, AudiencePage)
        except Poison as error:
            log.error("campaign.page_unreadable", extra={"partition": record.partition, "offset": record.offset})
            await self._publisher.publish([self._park(record, error.reason, error.text)])
            return None
