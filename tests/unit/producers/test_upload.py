"""Cutting an audience into pages, whatever the bytes and chunks it comes in."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers import recipient_lines, upload
from schemas import codec
from schemas.errors import Refused
from schemas.messages import AudiencePage, Recipient
from schemas.records import Outgoing, Placed
from tests.doubles.memory_log import MemoryLog

NOW_MS = 1_796_000_000_000
TARGET = upload.Target("campaign.audience", "default", "c", "up1", ())


async def some(recipients: Sequence[Recipient]) -> AsyncIterator[Sequence[Recipient]]:
    yield recipients


async def written(recipients: Sequence[Recipient]) -> tuple[upload.Upload, list[AudiencePage]]:
    log = MemoryLog()
    result = await upload.upload(some(recipients), b"d", TARGET, log)
    return result, [codec.decode(record.value, AudiencePage) for record in log.records(TARGET.topic)]


_users = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF), min_size=1, max_size=128).filter(
    str.isprintable
)


@given(st.lists(st.builds(Recipient, _users), min_size=1, max_size=700))
def test_pages_hold_everybody_in_order_within_their_bounds(recipients: list[Recipient]) -> None:
    result, pages = asyncio.run(written(recipients))
    assert [one for page in pages for one in page.recipients] == recipients
    assert [page.page for page in pages] == list(range(result.pages))
    assert result.recipients == len(recipients)
    for page in pages:
        assert len(page.recipients) <= upload.PAGE_RECIPIENTS
        assert sum(len(one.user_id.encode()) for one in page.recipients) <= upload.PAGE_USER_ID_BYTES
        assert len(codec.encode(page)) <= upload.PAGE_BYTES


@pytest.mark.parametrize(
    "recipient",
    [Recipient("\u2c00" * 128), Recipient("u", '{"a":"' + "x" * 60_000 + '"}')],
    ids=["long ids", "long params"],
)
async def test_a_page_is_cut_early_when_its_recipients_are_long(recipient: Recipient) -> None:
    result, pages = await written([recipient] * 250)
    assert result.pages > 1
    for page in pages:
        assert sum(len(one.user_id.encode()) for one in page.recipients) <= upload.PAGE_USER_ID_BYTES
        assert len(codec.encode(page)) <= upload.PAGE_BYTES


async def test_measuring_writes_nothing_and_gives_the_same_hash() -> None:
    recipients = [Recipient(f"u{number}") for number in range(600)]
    log = MemoryLog()
    real = await upload.upload(some(recipients), b"d", TARGET, log)
    measured = await upload.upload(some(recipients), b"d", TARGET, None)
    assert measured.content_hash == real.content_hash
    assert (measured.recipients, measured.pages) == (real.recipients, real.pages)
    changed = await upload.upload(some([*recipients[:-1], Recipient("x")]), b"d", TARGET, None)
    assert changed.content_hash != real.content_hash


async def test_pages_of_another_upload_may_lie_between_and_each_names_its_own() -> None:
    log = MemoryLog(1)
    other = upload.Target("campaign.audience", "default", "other", "up2", ())
    recipients = [Recipient(f"u{number}") for number in range(9_000)]
    mine, theirs = await asyncio.gather(
        upload.upload(some(recipients), b"d", TARGET, log), upload.upload(some(recipients), b"d", other, log)
    )
    between = [record async for record in log.read_range("campaign.audience", 0, mine.first_offset, mine.last_offset)]
    own = [page for page in (codec.decode(one.value, AudiencePage) for one in between) if page.upload_id == "up1"]
    assert [page.page for page in own] == list(range(mine.pages))
    assert len(between) > mine.pages
    assert theirs.pages == mine.pages


class HeldLog(MemoryLog):
    """Acknowledges only when told; counts the bytes it was handed meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.release = asyncio.Event()
        self.handed_bytes = 0

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Placed]:
        self.handed_bytes += sum(len(one.value or b"") for one in outgoing)
        await self.release.wait()
        return await super().publish(outgoing)


async def test_a_stream_waits_for_the_log_instead_of_piling_up_in_memory() -> None:
    log, read = HeldLog(), 0

    async def endless() -> AsyncIterator[Sequence[Recipient]]:
        nonlocal read
        while read < 100_000:
            read += 250
            yield [Recipient(f"u{read}", '{"x":"' + "y" * 1_000 + '"}')] * 250

    running = asyncio.create_task(upload.upload(endless(), b"d", TARGET, log))
    for _ in range(500):
        await asyncio.sleep(0)
    assert log.handed_bytes <= upload.BATCH_BYTES + upload.PAGE_BYTES
    assert read * 1_000 <= 3 * (upload.BATCH_BYTES + upload.PAGE_BYTES)
    log.release.set()
    assert (await running).recipients == 100_000


async def test_an_empty_audience_is_refused() -> None:
    with pytest.raises(Refused, match="empty"):
        await upload.upload(some([]), b"d", TARGET, MemoryLog())


async def chunked(raw: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    places = sorted({cut % (len(raw) + 1) for cut in cuts})
    for start, end in zip([0, *places], [*places, len(raw)], strict=True):
        yield raw[start:end]


async def read(raw: bytes, cuts: list[int], reader: recipient_lines.Reader) -> list[Recipient]:
    return [one async for some in recipient_lines.recipients(chunked(raw, cuts), reader) for one in some]


_params = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters='"\r\n'), min_size=1, max_size=5).map(
        lambda name: "p" + name.strip()
    ),
    st.text(max_size=12),
    max_size=3,
)
_cuts = st.lists(st.integers(0, 10_000), max_size=12)


@given(st.lists(st.tuples(_users, _params), max_size=20), _cuts, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_are_read_the_same_however_they_are_cut(
    rows: list[tuple[str, dict[str, str]]], cuts: list[int], end: str, ends_with_break: bool
) -> None:
    text = end.join(json.dumps({"user_id": user, "params": params}) for user, params in rows)
    raw = (text + (end if ends_with_break else "")).encode()
    found = asyncio.run(read(raw, cuts, recipient_lines.Ndjson(NOW_MS)))
    assert [(one.user_id, json.loads(one.params)) for one in found] == rows


_cell = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=10)


@given(st.lists(st.tuples(_users, _cell, _cell), max_size=20), _cuts)
def test_a_table_is_read_as_its_writer_meant_it(rows: list[tuple[str, str, str]], cuts: list[int]) -> None:
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\r\n")
    writer.writerow(["user_id", "a", "b"])
    writer.writerows(rows)
    found = asyncio.run(read(table.getvalue().encode(), cuts, recipient_lines.Csv(NOW_MS)))
    assert [(one.user_id, json.loads(one.params)) for one in found] == [(u, {"a": a, "b": b}) for u, a, b in rows]


async def test_a_device_registered_at_no_likely_time_is_refused_by_its_line() -> None:
    far = {"token": "t", "platform": "ios", "registered_at": "2999-01-01T00:00:00Z"}
    lines = [{"user_id": "u1"}, {"user_id": "u2", "to": {"devices": [far]}}]
    raw = "\n".join(map(json.dumps, lines)).encode()
    with pytest.raises(Refused, match=r"line 2: to\.devices\.0\.registered_at: is more than a day ahead"):
        await read(raw, [], recipient_lines.Ndjson(NOW_MS))


@pytest.mark.parametrize("reader", [recipient_lines.Ndjson, recipient_lines.Csv])
async def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    reader: Callable[[int], recipient_lines.Reader],
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1_000):
            yield b"x" * 10_000
        raise AssertionError("read on")

    with pytest.raises(Refused, match="line 1: is longer"):
        async for _ in recipient_lines.recipients(endless(), reader(NOW_MS)):
            pass


async def test_an_open_quote_before_empty_lines_is_refused_by_its_own_line() -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'user_id,name\nu1,"Ann\n'
        for _ in range(100):
            yield b"\n" * 10_000
        raise AssertionError("read on")

    with pytest.raises(Refused, match="line 2: a quoted cell does not end"):
        async for _ in recipient_lines.recipients(endless(), recipient_lines.Csv(NOW_MS)):
            pass
