"""The in-app channel: a message is in the log before it counts as sent, and a repeat is no second message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

from consumers.providers.contract import Call
from consumers.providers.inapp import InappProvider
from schemas import codec
from schemas.content import Content
from schemas.errors import StoreDown
from schemas.messages import Channel, InboxMessage
from schemas.outcomes import Kind
from schemas.stores import InboxNews, InboxView
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_log import MemoryLog

CALL = Call(
    tenant="t",
    user_id="u/1",
    delivery_key="k",
    notification_id="n1",
    reference="r",
    channel=Channel.INAPP,
    template="welcome",
    to="u/1",
    content=Content(text="Hello", title="Hi", data='{"a": 1}'),
    expires_at_ms=0,
    traceparent="00-1-2-01",
)


class Shelf:
    """An inbox that only remembers what was put."""

    def __init__(self) -> None:
        self.is_down = False
        self.put_messages: list[InboxMessage] = []

    async def put(self, message: InboxMessage) -> None:
        if self.is_down:
            raise StoreDown("away")
        self.put_messages.append(message)

    async def view(self, tenant: str, user_id: str) -> InboxView:
        raise NotImplementedError

    async def mark_read(self, tenant: str, user_id: str, notification_ids: Sequence[str], at_ms: int) -> int:
        raise NotImplementedError

    def live(self, tenant: str, user_id: str) -> AbstractAsyncContextManager[AsyncIterator[InboxNews]]:
        raise NotImplementedError


class World:
    def __init__(self) -> None:
        self.log = MemoryLog(1)
        self.shelf = Shelf()
        self.provider = InappProvider("inbox", self.log, self.shelf, ManualClock())


async def test_a_message_is_in_the_log_and_in_the_inbox() -> None:
    world = World()
    assert (await world.provider.send(CALL)).kind is Kind.DONE
    [record] = world.log.records("inbox")
    message = codec.decode(record.value, InboxMessage)
    assert world.shelf.put_messages == [message]
    assert (message.title, message.text, message.data, message.read_at_ms) == ("Hi", "Hello", '{"a": 1}', 0)
    assert (record.key, record.headers) == (b"t/u%2F1:n1", (("traceparent", b"00-1-2-01"),))


async def test_a_repeat_has_the_same_key_in_the_log() -> None:
    world = World()
    await world.provider.send(CALL)
    await world.provider.send(CALL)
    assert len({record.key for record in world.log.records("inbox")}) == 1


async def test_without_the_log_nothing_counts_as_sent_and_it_is_tried_again() -> None:
    world = World()
    world.log.fail = True
    assert (await world.provider.send(CALL)).kind is Kind.RETRY
    assert world.shelf.put_messages == []


async def test_without_redis_it_counts_as_sent_because_the_log_will_bring_it() -> None:
    world = World()
    world.shelf.is_down = True
    assert (await world.provider.send(CALL)).kind is Kind.DONE
    assert len(world.log.records("inbox")) == 1


async def test_a_message_that_fits_into_no_record_is_not_tried_again() -> None:
    world = World()
    huge = CALL._replace(content=Content(text="x" * 2_000_000))
    assert (await world.provider.send(huge)).kind is Kind.DROP
