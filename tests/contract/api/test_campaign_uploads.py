"""Uploads that break off, come twice, or race each other for one id."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp.test_utils import TestClient

from schemas import messages
from tests.acceptance import world
from tests.doubles.api import Api

Client = TestClient[Any, Any]
PATH = "/v1/campaigns"
NEWS: dict[str, Any] = {"campaign_id": "spring", "template": "news"}
SIZE = 6_000
HEAD = (
    b"POST /v1/campaigns HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    b"Content-Length: 1000000000\r\n\r\n"
    b'--x\r\nContent-Disposition: form-data; name="campaign"\r\n\r\n' + json.dumps(NEWS).encode() + b"\r\n"
    b'--x\r\nContent-Disposition: form-data; name="recipients"\r\n\r\n'
)
SECONDS_TO_NOTICE = 20


def lines(word: str = "u", size: int = SIZE) -> bytes:
    return b"".join(b'{"user_id":"%s%d"}\n' % (word.encode(), number) for number in range(size))


async def streamed(word: str, size: int) -> AsyncIterator[bytes]:
    """A slow caller: others have their turn between the pieces."""
    text = lines(word, size)
    for start in range(0, len(text), 20_000):
        yield text[start : start + 20_000]
        await asyncio.sleep(0)


async def hang_up(api: Api, client: Client) -> None:
    """Begins an upload and is gone in its middle, once some of its pages are written."""
    before = written(api)
    _, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(HEAD + lines())
    await writer.drain()
    await until(lambda: written(api) > before)
    writer.transport.abort()


def of_upload(api: Api, upload_id: str) -> list[messages.AudiencePage]:
    return [page for page in api.pages() if page.upload_id == upload_id]


def written(api: Api) -> int:
    return len(api.log.records(api.topics.audience))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_TO_NOTICE):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


async def test_an_upload_cut_off_in_the_middle_sends_nothing_and_may_be_repeated(api: Api, client: Client) -> None:
    await client.get("/healthz")
    tasks = len(asyncio.all_tasks())
    await hang_up(api, client)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    assert not api.campaigns()
    assert (await client.get(f"{PATH}/spring")).status == 404

    answer = await client.post(PATH, data=world.upload(NEWS, streamed("u", SIZE)))
    assert (answer.status, (await answer.json())["expected"]) == (202, SIZE)
    [request] = api.campaigns()
    users = [recipient.user_id for page in of_upload(api, request.upload_id) for recipient in page.recipients]
    assert users == [f"u{number}" for number in range(SIZE)]


async def test_callers_who_hang_up_leave_nothing_behind(api: Api, client: Client) -> None:
    """N23: half-closed callers left tasks and memory behind for good."""
    await client.get("/healthz")
    tasks = len(asyncio.all_tasks())
    for _ in range(20):
        await hang_up(api, client)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_of_two_uploads_at_once_one_is_the_campaign_and_the_other_is_told_so(api: Api, client: Client) -> None:
    """Their pages lie among each other's; the campaign's own are whole and in order."""
    posts = [client.post(PATH, data=world.upload(NEWS, streamed(word, SIZE))) for word in ("a", "b")]
    answers = await asyncio.gather(*posts)
    assert sorted(answer.status for answer in answers) == [202, 422]
    first = api.campaigns()[0]
    pages = of_upload(api, first.upload_id)
    assert [page.page for page in pages] == list(range(first.pages))
    assert len({recipient.user_id[0] for page in pages for recipient in page.recipients}) == 1
    assert sum(len(page.recipients) for page in pages) == first.recipients == SIZE
    assert {page.upload_id for page in api.pages()} > {first.upload_id}


async def test_of_two_equal_uploads_at_once_both_are_told_the_same(api: Api, client: Client) -> None:
    posts = [client.post(PATH, data=world.upload(NEWS, streamed("a", SIZE))) for _ in range(2)]
    answers = await asyncio.gather(*posts)
    assert [answer.status for answer in answers] == [202, 202]
    assert sorted("Idempotent-Replayed" in answer.headers for answer in answers) == [False, True]
    assert await answers[0].json() == await answers[1].json()


async def test_another_list_under_the_id_of_a_campaign_is_refused_also_once_it_was_steered(
    api: Api, client: Client
) -> None:
    assert (await client.post(PATH, data=world.upload(NEWS, streamed("a", 300)))).status == 202
    for word in ("pause", "cancel"):
        await client.post(f"{PATH}/spring/{word}")
        other = await client.post(PATH, data=world.upload(NEWS, streamed("b", 300)))
        assert (other.status, (await other.json())["field"]) == (422, "campaign_id")
        assert (await client.post(PATH, data=world.upload(NEWS, streamed("a", 300)))).status == 202
    assert len(api.campaigns()) == 1
    assert (await (await client.get(f"{PATH}/spring")).json())["status"] == "cancelled"


async def test_an_upload_that_takes_longer_than_until_its_start_is_accepted_all_the_same(
    api: Api, client: Client
) -> None:
    start = datetime.fromtimestamp(api.clock.now_ms() / 1000, UTC) + timedelta(minutes=1)

    async def slow() -> AsyncIterator[bytes]:
        yield lines()
        await until(lambda: written(api) > 0)
        api.clock.advance(timedelta(minutes=20) / timedelta(milliseconds=1))
        yield lines("late", 1)

    answer = await client.post(PATH, data=world.upload({**NEWS, "send_at": start.isoformat()}, slow()))
    assert answer.status == 202, await answer.text()
    [request] = api.campaigns()
    assert request.send_at_ms < api.clock.now_ms() < request.expires_at_ms
