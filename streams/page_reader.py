"""A campaign's own pages out of `campaign.audience`, in order, read a little ahead of their release.

Pages of other uploads lie in between and are passed over; so is what cannot be read, into `internal.dlq`, and what
the log does not hold any more. `streams/cursors.py` says what becomes of the recipients of pages passed over.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from schemas import codec
from schemas.errors import Poison
from schemas.messages import AudiencePage, CampaignRequested
from schemas.reasons import ParkReason
from schemas.records import Headers, LogReader, Outgoing, Publisher, Record
from schemas.topics import Topics
from streams.campaigns import Campaign

log = logging.getLogger(__name__)

Park = Callable[[Record, str, str], Outgoing]
"""The dead letter of a record: (record, error class, text)."""
OFFSETS_A_TURN = 32
AHEAD_BYTES = 32_000_000
"""Pages read ahead, all campaigns together."""


@dataclass(frozen=True, slots=True)
class PageAt:
    """A page, the offset it lies at, and the headers it travels with."""

    offset: int
    page: AudiencePage
    headers: Headers = ()


@dataclass(slots=True)
class _Ahead:
    """Pages read and not taken yet, and where to read on."""

    pages: deque[PageAt]
    next_page: int
    next_offset: int


class ReadAhead:
    """The next page of each campaign that releases pages, from its cursor on."""

    def __init__(self, reader: PageReader) -> None:
        self._reader = reader
        self._ahead: dict[str, _Ahead] = {}

    def start_over(self) -> None:
        """Forgets what was read: after a failure, or a change of leader, cursors are where to go on."""
        self._ahead.clear()

    def keep_only(self, keys: Collection[str]) -> None:
        """Forgets what was read of other campaigns."""
        for key in [key for key in self._ahead if key not in keys]:
            del self._ahead[key]

    def size(self, campaign: Campaign, request: CampaignRequested) -> int:
        """Recipients of the next page, or what pages have on average as long as it was not read."""
        ahead = self._ahead.get(campaign.key)
        if ahead is not None and ahead.pages:
            return max(1, len(ahead.pages[0].page.recipients))
        return max(1, -(-request.recipients // max(1, request.pages)))

    async def take(self, campaign: Campaign, request: CampaignRequested, sharing: int) -> PageAt | None:
        """The next page; None when the log holds no more. sharing: campaigns that share the room for pages read ahead.

        Raises Transient on a broker failure.
        """
        ahead = self._ahead.get(campaign.key)
        if ahead is None:
            start = campaign.cursor.next_offset if campaign.cursor is not None else request.first_offset
            ahead = self._ahead[campaign.key] = _Ahead(deque(), campaign.next_page, start)
        await self._read_on(ahead, request, AHEAD_BYTES // sharing)
        page = ahead.pages.popleft() if ahead.pages else None
        number = page.page.page if page is not None else request.pages
        if number > ahead.next_page:
            gap = {"first_page": ahead.next_page, "pages": number - ahead.next_page}
            log.error("campaign.audience_lost", extra={"campaign": campaign.key, **gap})
        ahead.next_page = number + 1
        return page

    async def _read_on(self, ahead: _Ahead, request: CampaignRequested, most_bytes: int) -> None:
        while not ahead.pages and ahead.next_offset <= request.last_offset:
            pages, ahead.next_offset = await self._reader.read(request, ahead.next_page, ahead.next_offset, most_bytes)
            ahead.pages.extend(pages)


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

    async def _page(self, record: Record) -> AudiencePage | None:
        try:
            return codec.decode(record.value, AudiencePage)
        except Poison as error:
            log.error("campaign.page_unreadable", extra={"partition": record.partition, "offset": record.offset})
            await self._publisher.publish([self._park(record, error.reason, error.text)])
            return None
