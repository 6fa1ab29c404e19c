"""Goal: exactly those are told as unconfirmed of whom nothing was heard, and who can be asked is asked first."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from schemas import codec, keys
from schemas.errors import Poison, StoreDown, Transient
from schemas.messages import DeliveryState, EventKind, Suppression
from schemas.records import Answer, Defer, Done, Record
from schemas.reports import Report, Silence, StatusApi
from schemas.stores import DeliveryView, SlotView
from schemas.topics import Topics
from streams.reconcile import Reconcile, ReconcileOptions
from tests.doubles.manual_clock import START_MS, ManualClock
from tests.doubles.stores import MemoryReads

HOUR_MS = 3_600_000
IDS, TOPICS = keys.Ids(b"secret"), Topics()
ADDRESS = keys.recipient_address("news", 0, 3)
NOTIFICATION = IDS.notification_id("default", ADDRESS)
SENT = DeliveryState(
    delivery_id=keys.delivery_id(NOTIFICATION, "push/00c0ffee"),
    notification_id=NOTIFICATION,
    tenant="default",
    campaign_id="news",
    user_id="42",
    template="welcome",
    channel="push",
    device="00c0ffee",
    state="sent",
    reason=None,
    detail=None,
    provider="gateway",
    provider_id="m-1",
    calls=2,
    possible_duplicates=0,
    accepted_at=START_MS,
    sent_at=START_MS,
    waits_until=None,
    at=START_MS,
    version=7,
)
VIEW = DeliveryView("push", "00c0ffee", "sent", "", "", "", 2, START_MS, 0, 0, generation=1, call=2)


class Gateway:
    """StatusApi port: says what the test wants."""

    def __init__(self, told: Report | Silence = Silence.UNKNOWN) -> None:
        self.told = told
        self.asked: list[str] = []

    async def ask(self, message_id: str) -> Report | Silence:
        self.asked.append(message_id)
        return self.told


class Bench:
    """The handler an hour after the call, and what it answers. shown: the delivery as its row has it."""

    def __init__(self, api: StatusApi | None = None, shown: DeliveryView | None = VIEW) -> None:
        self.clock = ManualClock(START_MS + HOUR_MS)
        self.reads = MemoryReads()
        if shown is not None:
            self.reads.put("default", ADDRESS, SlotView(shown.state, "", "", "42", "welcome", START_MS, (shown,)))
        channels = {"push": ("gateway",), "sms": ("gateway", "texter")}
        options = ReconcileOptions(HOUR_MS, {"gateway": api}, channels)
        self.handler = Reconcile(self.reads, IDS, TOPICS, self.clock, options)
        self.answers: dict[int, Answer] = {}

    async def hears(self, **changes: Any) -> Answer:
        return await self.reads_record(codec.encode(replace(SENT, **changes)))

    async def reads_record(self, value: bytes | None) -> Answer:
        await self.handler.handle([self.record(value)], self.take)
        return self.answers[0]

    def record(self, value: bytes | None, offset: int = 0) -> Record:
        return Record(TOPICS.state, 0, offset, b"key", value, (), START_MS)

    def take(self, record: Record, answer: Answer) -> None:
        assert record.offset not in self.answers
        self.answers[record.offset] = answer


def told(answer: Answer) -> list[tuple[str, str, int, int, str]]:
    """(kind, delivery, generation, call, the provider's id) of each event."""
    assert isinstance(answer, Done)
    events = [event.event for event in answer.events]
    return [(e.kind.value, e.delivery, e.generation, e.call, e.provider_id) for e in events]


UNCONFIRMED = [("unconfirmed", "push/00c0ffee", 1, 2, "m-1")]


async def test_a_delivery_without_a_word_for_an_hour_is_told_as_unconfirmed_of_its_newest_call() -> None:
    answer = await Bench().hears()
    assert told(answer) == UNCONFIRMED
    assert isinstance(answer, Done) and [(e.tenant, e.row, e.event.slot, e.event.detail) for e in answer.events] == [
        ("default", ADDRESS.row, ADDRESS.slot, "no report came in time")
    ]


@pytest.mark.parametrize(
    "shown",
    [
        replace(VIEW, state="delivered"),
        replace(VIEW, state="unconfirmed"),
        replace(VIEW, state="retrying"),
        replace(VIEW, device="0badcafe"),
        replace(VIEW, sent_at_ms=START_MS + 5_000),
        None,
    ],
    ids=["delivered since", "told before", "tried again", "another device", "called again since", "gone by age"],
)
async def test_whoever_was_heard_of_since_is_left_as_they_are(shown: DeliveryView | None) -> None:
    assert told(await Bench(shown=shown).hears()) == []


@pytest.mark.parametrize(
    "changes",
    [{"provider": "mail"}, {"channel": "sms", "device": None, "provider": None}, {"state": "delivered"}],
    ids=["a provider that promises no report", "none is named, and one of two promises", "another state"],
)
async def test_nobody_is_marked_of_whom_no_word_was_promised(changes: dict[str, Any]) -> None:
    bench = Bench()
    bench.reads.is_recovering = True  # not even looked at
    assert told(await bench.hears(**changes)) == []


async def test_a_state_that_names_no_provider_counts_where_all_of_the_channel_promise() -> None:
    assert told(await Bench().hears(provider=None, provider_id=None)) == [("unconfirmed", "push/00c0ffee", 1, 2, "")]


async def test_before_the_hour_is_over_a_delivery_waits() -> None:
    bench = Bench()
    bench.clock.advance(-1)
    assert await bench.hears() == Defer(START_MS + HOUR_MS)


async def test_while_rows_cannot_be_read_nobody_is_judged() -> None:
    bench = Bench()
    bench.reads.is_recovering = True
    with pytest.raises(Transient):
        await bench.hears()
    assert bench.answers == {}


class Away(Gateway):
    """Whose pace is not known for one message, as Redis is away."""

    async def ask(self, message_id: str) -> Report | Silence:
        await asyncio.sleep(0)
        if message_id == "m-1":
            raise StoreDown("away")
        await asyncio.sleep(0)
        return self.told


async def test_who_cannot_be_asked_about_now_comes_again_and_the_others_are_answered_once() -> None:
    bench = Bench(Away())
    records = [
        bench.record(codec.encode(replace(SENT, provider_id=name)), at) for at, name in enumerate(("m-1", "m-2"))
    ]
    with pytest.raises(Transient):
        await bench.handler.handle(records, bench.take)
    assert {at: len(told(answer)) for at, answer in bench.answers.items()} == {1: 1}


async def test_a_tombstone_is_passed_over_and_a_torn_record_is_poison() -> None:
    bench = Bench()
    assert await bench.reads_record(None) == Done()
    with pytest.raises(Poison):
        await bench.reads_record(codec.encode(SENT)[:-3])


@pytest.mark.parametrize("kind", [EventKind.DELIVERED, EventKind.UNDELIVERED, EventKind.BOUNCED])
async def test_what_the_provider_says_when_asked_is_told_as_if_it_had_come_by_itself(kind: EventKind) -> None:
    gateway = Gateway(Report(kind, "", "m-1", START_MS + 9_000, "so it went"))
    answer = await Bench(gateway).hears()
    assert told(answer) == [(kind.value, "push/00c0ffee", 1, 2, "m-1")]
    assert isinstance(answer, Done) and [(e.event.at_ms, e.event.detail) for e in answer.events] == [
        (START_MS + 9_000, "so it went")
    ]
    assert gateway.asked == ["m-1"]


@pytest.mark.parametrize("silence", list(Silence))
async def test_a_provider_that_tells_nothing_leaves_it_unconfirmed(silence: Silence) -> None:
    assert told(await Bench(Gateway(silence)).hears()) == UNCONFIRMED


async def test_a_message_without_an_id_of_the_providers_cannot_be_asked_about() -> None:
    gateway = Gateway(Report(EventKind.DELIVERED, "", "m-1", START_MS))
    assert told(await Bench(gateway).hears(provider_id=None)) == [("unconfirmed", "push/00c0ffee", 1, 2, "")]
    assert gateway.asked == []


async def test_an_unconfirmed_delivery_is_asked_for_once_more_and_is_not_told_again() -> None:
    shown = replace(VIEW, state="unconfirmed")
    late = Gateway(Report(EventKind.DELIVERED, "", "m-1", START_MS))
    assert [event[0] for event in told(await Bench(late, shown).hears(state="unconfirmed"))] == ["delivered"]
    assert told(await Bench(Gateway(), shown).hears(state="unconfirmed")) == []
    assert told(await Bench(None, shown).hears(state="unconfirmed")) == []


@pytest.mark.parametrize("address", [ADDRESS, keys.recipient_address("other", 0, 3)], ids=["ours", "another's"])
async def test_an_address_that_bounced_is_blocked_where_the_answer_names_it(address: keys.Address) -> None:
    hashed = keys.address_hash("email", "a@example.org")
    reference = IDS.reference(keys.Reference("default", address, 0, 1, 2, "email", hashed))
    gateway = Gateway(Report(EventKind.BOUNCED, reference, "m-1", START_MS, suppress=True))
    answer = await Bench(gateway).hears()
    assert isinstance(answer, Done)
    barred = [codec.decode(out.value, Suppression) for out in answer.publish if out.topic == TOPICS.suppressions]
    assert [(one.address_hash, one.cause) for one in barred] == ([(hashed, "bounced")] if address == ADDRESS else [])
