"""Pages are read a little ahead of their release: never more than memory holds, whole or in pieces, in order."""

from collections.abc import Sequence
from typing import cast

from schemas.messages import CampaignRequested
from streams import cursors
from streams.campaigns import Campaign
from streams.page_reader import PageAt, PageReader, ReadAhead
from tests.doubles import campaigns as accepted
from tests.doubles.memory_log import MemoryLog
from tests.doubles.status_road import TOPICS, park

Accepted = tuple[Campaign, CampaignRequested]


async def accept(log: MemoryLog, name: str, recipients: int | Sequence[str]) -> Accepted:
    asked = await accepted.accept(log, TOPICS, name, recipients)
    return Campaign(f"default/{name}", request=asked), asked


async def taken(ahead: ReadAhead, one: Accepted, most: int | None = None) -> PageAt:
    """The next piece, with the cursor behind it."""
    campaign, asked = one
    page = await ahead.take(campaign, asked, most)
    assert page is not None
    campaign.cursor = cursors.moved(campaign.cursor, asked, page)
    return page


def reading(log: MemoryLog) -> PageReader:
    return PageReader(log, log, park, TOPICS)


class Counting:
    """Reads as PageReader does, and counts the bytes that were given out."""

    def __init__(self, log: MemoryLog) -> None:
        self._reader = reading(log)
        self.pages = 0

    async def read(
        self, asked: CampaignRequested, next_page: int, next_offset: int, most_bytes: int
    ) -> tuple[list[PageAt], int]:
        pages, after = await self._reader.read(asked, next_page, next_offset, most_bytes)
        self.pages += len(pages)
        return pages, after


async def test_many_campaigns_at_once_share_the_room_for_pages_read_ahead() -> None:
    log = MemoryLog(1)
    found = [await accept(log, f"c{n}", 2_500) for n in range(20)]
    page_bytes = len(log.records(TOPICS.audience)[0].value or b"")
    counting = Counting(log)
    ahead = ReadAhead(cast(PageReader, counting), most_bytes=40 * page_bytes)
    ahead.keep_only({campaign.key for campaign, _ in found})
    for one in found:
        await taken(ahead, one)
    assert counting.pages <= 20 * 3, "two pages each, and the one that passes the limit"


async def test_a_page_in_pieces_reaches_everyone_once_in_pieces_of_about_one_size() -> None:
    log = MemoryLog(1)
    one = await accept(log, "spring", 260)
    ahead = ReadAhead(reading(log))
    pieces = [await taken(ahead, one, 70) for _ in range(5)]
    assert [piece.size for piece in pieces] == [63, 63, 62, 62, 10]
    sent = [user.user_id for piece in pieces for user in piece.recipients if user.user_id]
    assert sent == [f"spring-{n}" for n in range(260)]
    assert all(piece.recipients[slot].user_id for piece in pieces for slot in piece.slots)
    assert await ahead.take(*one) is None


async def test_another_leader_goes_on_in_the_middle_of_a_page() -> None:
    log = MemoryLog(1)
    one = await accept(log, "spring", 500)
    await taken(ReadAhead(reading(log)), one, 100)
    cursor = one[0].cursor
    assert cursor is not None
    assert (cursor.next_page, cursor.released, cursor.next_slot) == (0, 84, 84)
    following = ReadAhead(reading(log))
    rest = [await taken(following, one) for _ in range(2)]
    assert [(piece.page.page, piece.first, piece.size) for piece in rest] == [(0, 84, 166), (1, 0, 250)]
    assert one[0].released == 500


async def test_a_page_lost_after_a_piece_of_it_went_is_missing_as_a_whole() -> None:
    log = MemoryLog(1)
    one = await accept(log, "spring", 500)
    await taken(ReadAhead(reading(log)), one, 100)
    log.expire(TOPICS.audience, 0, 1)
    page = await taken(ReadAhead(reading(log)), one)
    assert (page.page.page, page.size) == (1, 250)
    assert one[0].cursor is not None
    assert (one[0].missing, one[0].released) == ((0, 1), 250)
    assert cursors.shares(one[0].cursor, one[1], 9) == [(0, 250)]
