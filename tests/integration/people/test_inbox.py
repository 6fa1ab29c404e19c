"""A person's in-app messages: counted exactly, whatever comes twice, breaks off or is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiohttp import ClientResponse
from redis.asyncio import Redis

from deploy import redis_client
from deploy.redis_news import RedisLine
from schemas import codec, keys
from schemas.errors import StoreDown
from schemas.messages import FacetKind, InboxMessage, RecipientFacet
from schemas.stores import FacetWrite
from schemas.trips import Epoch
from streams import inbox as inbox_store
from tests.integration.people.api_client import TOPICS, Client, People
from tests.integration.people.commands import run

INBOX = "/v1/users/u1/inbox"
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def people(redis: Redis, epoch: Epoch, tenant: str) -> People:
    return People(redis, epoch, tenant)


@pytest.fixture
async def client(people: People) -> AsyncIterator[Client]:
    async with people.serving() as serving:
        yield serving


def message(people: People, number: int = 1) -> InboxMessage:
    at_ms = people.parts.clock.now_ms() - 1_000 + number
    return InboxMessage(people.tenant, "u1", f"n{number}", "welcome", "Hi", f"text {number}", '{"a": 1}', at_ms, 0)


async def call(client: Client, method: str, path: str, body: Any = None) -> Any:
    async with client.request(method, path, json=body) as response:
        assert response.status == 200
        return await response.json()


async def next_event(stream: ClientResponse) -> tuple[str, int, dict[str, Any]]:
    """(name, id, body) of the next event; heartbeats and the retry hint are passed over."""
    async with asyncio.timeout(10):
        while True:
            block = await stream.content.readuntil(b"\n\n")
            if block.startswith(b"event"):
                name, seq, body = (line.partition(b": ")[2] for line in block.splitlines()[:3])
                return name.decode(), int(seq), orjson.loads(body)


async def test_the_same_message_twice_is_one_message_and_one_unread(people: People, client: Client) -> None:
    """N49."""
    for _ in range(2):
        await people.inbox.put(message(people))
    shown = await call(client, "GET", INBOX)
    assert shown["unread"] == 1
    [one] = shown["messages"]
    assert (one["notification_id"], one["text"], one["data"], one["read"]) == ("n1", "text 1", {"a": 1}, False)


async def test_one_broken_inbox_does_not_spoil_the_messages_that_share_its_round_trip(
    people: People, redis: Redis
) -> None:
    await run(redis, "SET", keys.redis_inbox(people.tenant, "broken"), "x")
    messages = [replace(message(people), user_id=user) for user in ("u1", "broken", "u2")]
    results = await asyncio.gather(*map(people.inbox.put, messages), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), StoreDown, type(None)]
    assert (await people.inbox.view(people.tenant, "u2")).unread == 1


async def test_a_read_message_is_read_on_every_connection_and_stays_read_when_put_again(
    people: People, client: Client
) -> None:
    """N49."""
    await people.inbox.put(message(people))
    async with client.get(INBOX + "/stream") as one, client.get(INBOX + "/stream") as other:
        assert [(await next_event(stream))[2]["unread"] for stream in (one, other)] == [1, 1]
        assert await call(client, "POST", INBOX + "/read", {"ids": ["n1", "unknown"]}) == {"unread": 0}
        assert [(await next_event(stream))[2]["unread"] for stream in (one, other)] == [0, 0]
    await people.inbox.put(message(people))
    assert (await call(client, "GET", INBOX))["unread"] == 0


async def test_who_reconnects_is_told_what_was_missed_and_the_true_count(people: People, client: Client) -> None:
    """N49."""
    async with client.get(INBOX + "/stream") as stream:
        await next_event(stream)
        await people.inbox.put(message(people, 1))
        name, seen, body = await next_event(stream)
        assert (name, body["unread"], body["message"]["notification_id"]) == ("message", 1, "n1")
    await people.inbox.put(message(people, 2))
    await people.inbox.put(message(people, 3))
    async with client.get(INBOX + "/stream", headers={"Last-Event-ID": str(seen)}) as stream:
        events = [await next_event(stream) for _ in range(3)]
    assert [body["message"]["notification_id"] for _, _, body in events[:2]] == ["n2", "n3"]
    assert events[2][2] == {"unread": 3}
    assert events[0][1] < events[1][1]


async def test_a_client_with_an_odd_last_event_id_is_served_from_now_on(people: People, client: Client) -> None:
    await people.inbox.put(message(people))
    async with client.get(INBOX + "/stream", headers={"Last-Event-ID": "²"}) as stream:
        assert await next_event(stream) == ("unread", (await people.inbox.view(people.tenant, "u1")).seq, {"unread": 1})


async def test_reading_all_reads_all_and_the_marks_are_in_the_log(people: People, client: Client) -> None:
    for number in range(3):
        await people.inbox.put(message(people, number))
    assert await call(client, "POST", INBOX + "/read", {"all": True}) == {"unread": 0}
    logged = [codec.decode(record.value, InboxMessage) for record in people.log.records(TOPICS.inbox)]
    assert sorted(one.notification_id for one in logged) == ["n0", "n1", "n2"]
    assert all(one.read_at_ms and one.text for one in logged)


async def test_a_lost_inbox_comes_back_from_the_log_with_its_read_marks(people: People, client: Client) -> None:
    await people.inbox.put(message(people, 1))
    await people.inbox.put(message(people, 2))
    await call(client, "POST", INBOX + "/read", {"ids": ["n1"]})
    marks = [codec.decode(record.value, InboxMessage) for record in people.log.records(TOPICS.inbox)]
    seen = (await people.inbox.view(people.tenant, "u1")).seq
    other = People(people.redis, people.epoch, people.tenant + "x")
    for replayed in (message(people, 1), message(people, 2), *marks, message(people, 1)):
        await other.inbox.put(replace(replayed, tenant=other.tenant))
    view = await other.inbox.view(other.tenant, "u1")
    assert view.unread == 1
    assert [(item.message.notification_id, bool(item.message.read_at_ms)) for item in view.items] == [
        ("n2", False),
        ("n1", True),
    ]
    # Sequence numbers go on rising over the loss, so a reconnecting client misses nothing.
    assert view.items[0].seq > seen


async def test_an_inbox_keeps_the_newest_messages_and_counts_only_those(people: People) -> None:
    for number in range(inbox_store.KEPT + 5):
        await people.inbox.put(message(people, number))
    view = await people.inbox.view(people.tenant, "u1")
    assert view.unread == len(view.items) == inbox_store.KEPT
    assert await people.inbox.mark_read(people.tenant, "u1", [], 1) == inbox_store.KEPT
    assert view.items[-1].message.notification_id == "n5"


async def test_a_message_older_than_the_inbox_keeps_is_not_put_back(people: People) -> None:
    old = replace(message(people), at_ms=people.clock.now_ms() - inbox_store.KEPT_S * 1000 - 1)
    await people.inbox.put(old)
    assert (await people.inbox.view(people.tenant, "u1")).items == ()


async def test_a_message_that_has_become_too_old_is_shown_nowhere_and_counted_nowhere(
    people: People, client: Client
) -> None:
    """Every way to ask for the count gives the same, though nothing came into the inbox since."""
    await people.inbox.put(message(people, 1))
    people.clock.advance(20 * DAY_MS)
    recent = replace(message(people, 2), at_ms=people.clock.now_ms())
    await people.inbox.put(recent)
    people.clock.advance(11 * DAY_MS)
    assert (await call(client, "GET", INBOX))["unread"] == 1
    assert await call(client, "POST", f"{INBOX}/read", {"ids": ["n2"]}) == {"unread": 0}
    assert (await call(client, "GET", INBOX))["unread"] == 0


async def test_nothing_from_before_an_erasure_comes_back_into_the_inbox(people: People) -> None:
    await people.inbox.put(message(people))
    now_ms = people.parts.clock.now_ms()
    erased = RecipientFacet(people.tenant, "u1", FacetKind.ERASED, now_ms)
    await people.profiles.apply(people.tenant, "u1", [FacetWrite("erased", 9, erased)])
    await people.inbox.put(message(people))
    assert (await people.inbox.view(people.tenant, "u1")).items == ()
    await people.inbox.put(replace(message(people, 2), at_ms=now_ms + 1))
    assert (await people.inbox.view(people.tenant, "u1")).unread == 1


async def test_a_stream_whose_news_may_be_missing_ends_so_that_the_client_reconnects(
    people: People, client: Client, redis: Redis
) -> None:
    async with client.get(INBOX + "/stream") as stream:
        await next_event(stream)
        await run(redis, "CLIENT", "KILL", "TYPE", "pubsub")
        async with asyncio.timeout(10):
            assert b"event" not in await stream.content.read()
    await people.inbox.put(message(people))
    async with client.get(INBOX + "/stream") as stream:
        assert (await next_event(stream))[2] == {"unread": 1}


async def test_streams_that_come_back_together_all_hear_their_news_however_often_that_happens(
    people: People, redis: Redis
) -> None:
    """As after every short outage of Redis. Ten rounds would use up the pool if each left a few connections behind."""
    users = [f"u{number}" for number in range(8)]

    async def heard(user: str, together: asyncio.Barrier) -> int:
        async with people.inbox.live(people.tenant, user) as news:
            await together.wait()
            await people.inbox.put(replace(message(people), user_id=user))
            return (await anext(news)).unread

    async with asyncio.timeout(10):
        for _ in range(10):
            together = asyncio.Barrier(len(users))
            assert await asyncio.gather(*(heard(user, together) for user in users)) == [1] * len(users)
            await people.inbox.close()
            await asyncio.gather(*(run(redis, "DEL", keys.redis_inbox(people.tenant, user)) for user in users))


async def test_a_line_closed_while_it_opens_leaves_no_connection_behind(redis: Redis) -> None:
    async with asyncio.timeout(10):
        for _ in range(redis_client.CONNECTIONS + 1):
            line = RedisLine(redis, "inbox")
            opening = asyncio.gather(line.hear(b"a"), line.hear(b"b"), return_exceptions=True)
            await asyncio.sleep(0)
            await line.close()
            await opening
        await run(redis, "PING")


async def test_a_closed_line_stays_closed(redis: Redis) -> None:
    line = RedisLine(redis, "inbox")
    await line.hear(b"a")
    await line.close()
    with pytest.raises(StoreDown):
        await line.hear(b"b")
    with pytest.raises(StoreDown):
        await line.next(1)


async def test_streams_end_when_the_server_stops(people: People) -> None:
    async with people.serving() as client:
        stream = await client.get(INBOX + "/stream")
        await next_event(stream)
        async with asyncio.timeout(5):
            await client.close()
