"""Pages passed over are noted, and their recipients are exactly those that all other pages leave."""

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.messages import AudiencePage, CampaignCursor, CampaignRequested, Recipient
from streams import cursors
from streams.page_reader import PageAt
from tests.doubles.campaigns import request


def at(number: int, recipients: int) -> PageAt:
    page = AudiencePage("default", "spring", "upload-1", number, (Recipient("ann"),) * recipients)
    return PageAt(100 + number, page)


def walked(sizes: list[int], held: list[bool]) -> tuple[CampaignCursor | None, CampaignRequested]:
    """The cursor after the last page, when the log holds only some of them."""
    wanted = request(pages=len(sizes), recipients=sum(sizes))
    cursor = None
    for number, (size, is_held) in enumerate(zip(sizes, held, strict=True)):
        if is_held:
            cursor = cursors.moved(cursor, wanted, at(number, size))
    if not held[-1]:
        cursor = cursors.moved(cursor, wanted, None)
    return cursor, wanted


pages = st.lists(st.tuples(st.integers(1, 250), st.booleans()), min_size=1, max_size=12)


@settings(deadline=None)
@given(pages, st.integers(1, 5))
def test_the_sum_closes_whatever_is_missing_and_no_page_gets_more_than_it_can_hold(
    found: list[tuple[int, bool]], at_once: int
) -> None:
    sizes, held = [size for size, _ in found], [is_held for _, is_held in found]
    cursor, wanted = walked(sizes, held)
    assert cursor is not None and cursor.next_page == len(sizes)
    ended: dict[int, int] = {}
    while cursor.missing:
        shares = cursors.shares(cursor, wanted, at_once)
        assert cursors.shares(cursor, wanted, at_once) == shares, "a repeat after a crash says the same"
        ended |= dict(shares)
        cursor = cursors.ended(cursor, shares)
    assert list(ended) == [number for number, is_held in enumerate(held) if not is_held]
    assert all(0 <= count <= 250 for count in ended.values())
    assert cursor.released == wanted.recipients


def test_full_pages_before_the_last_get_the_number_they_had() -> None:
    cursor, wanted = walked([250, 250, 250, 17], [True, False, True, False])
    assert cursor is not None
    assert cursor.missing == (1, 2, 3, 4)
    assert cursors.shares(cursor, wanted, 9) == [(1, 250), (3, 17)]
