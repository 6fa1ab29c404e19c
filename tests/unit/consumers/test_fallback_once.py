"""Whatever becomes of a notification's devices, in whatever order: the next channel is tried once, or not at all."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from consumers.providers.contract import Call
from schemas import keys, slots, stores
from schemas.messages import Channel, Delivery, Device, EventKind, Priority, StatusEvent
from schemas.outcomes import Kind, Outcome
from schemas.records import Answer
from schemas.topics import TIERS
from tests.doubles import deliveries
from tests.doubles.manual_clock import START_MS
from tests.doubles.scripted_provider import ScriptedProvider
from tests.doubles.sender_bench import SenderBench, done, events, next_delivery, published

UNREACHED = (Outcome(Kind.DEAD_ADDRESS), Outcome(Kind.RETRY), Outcome(Kind.NOT_PROCESSED))
"""What keeps a device from being reached: it is dead, or its provider fails until tries or time are used up."""
FATES = st.sampled_from((*UNREACHED, Outcome(Kind.DONE)))
ROUNDS, LATE = 30, 20
EXPIRY_MS = 3_600_000
GOES_ON = {
    f"{channel}.{part}"
    for channel in (Channel.PUSH, Channel.SMS)
    for part in (*Priority, *(f"{bulk}retry.{tier}" for bulk in ("", "bulk.") for tier in TIERS))
}


class Fates(ScriptedProvider):
    """Answers each device, named by its token, always the same."""

    def __init__(self, fates: dict[str, Outcome]) -> None:
        super().__init__()
        self.fates = fates
        self.reached: list[str] = []

    async def send(self, call: Call) -> Outcome:
        await asyncio.sleep(0)
        self.calls.append(call)
        outcome = self.fates.get(call.to, Outcome(Kind.DONE))
        if outcome.kind is Kind.DONE:
            self.reached.append(call.to)
        return outcome


class Story:
    """One notification to several devices, worked by several workers until nothing of it is left."""

    def __init__(self, folder: Path, fates: list[Outcome], rng: random.Random, priority: Priority) -> None:
        self.bench = SenderBench(folder)
        self.rng = rng
        self.names = [f"device{number}" for number in range(len(fates))]
        self.provider = Fates(dict(zip(self.names, fates, strict=True)))
        self.bench.provider = self.provider
        devices = tuple(Device(name, name, "android") for name in self.names)
        self.bench.people.write("42", stores.Profile(1, phone="+4930123456", devices=devices))
        self.priority = priority
        self.events: list[StatusEvent] = []
        self.fallbacks: list[Delivery] = []

    @property
    def suffixes(self) -> tuple[str, ...]:
        return tuple(keys.delivery_suffix(Channel.PUSH, name) for name in self.names)

    async def run(self) -> None:
        left = [self._push(at) for at in range(len(self.names))]
        for number in range(ROUNDS):
            if not left:
                return
            if number == LATE:  # who waits for a provider beside a device that was reached waits until then
                self.bench.clock.advance(EXPIRY_MS)
            self.rng.shuffle(left)
            at_once = left[: self.rng.randint(1, len(left))]
            left = left[len(at_once) :]
            answers = await asyncio.gather(*(self._handled(delivery) for delivery in at_once))
            left += [again for found in answers for again in found]
            self.bench.clock.advance(self.rng.choice((0, 1_000, 20_000, 40_000)))
        raise AssertionError(f"goes on for ever: {left}")

    async def _handled(self, delivery: Delivery) -> list[Delivery]:
        """By a worker of its own; some records come twice."""
        answers = [await self.bench.hand(self.bench.worker(), delivery)]
        if self.rng.random() < 0.2:
            answers.append(await self.bench.hand(self.bench.worker(), delivery))
        return [again for (answer,) in answers for again in self._told(delivery, answer)]

    def _told(self, delivery: Delivery, answer: Answer) -> list[Delivery]:
        """What of the first channel goes on."""
        if not hasattr(answer, "events"):
            return [delivery]
        self.events += events(answer)
        written = zip(published(answer), done(answer).publish, strict=True)
        goes_on = [next_delivery(record) for topic, record in written if topic in GOES_ON]
        self.fallbacks += [one for one in goes_on if one.channel is Channel.SMS]
        return [one for one in goes_on if one.channel is Channel.PUSH]

    def _push(self, at: int) -> Delivery:
        return deliveries.single(
            channel=Channel.PUSH,
            device=self.names[at],
            index=at,
            tries=6,
            priority=self.priority,
            siblings=tuple(name for other, name in enumerate(self.suffixes) if other != at),
            fallback=(Channel.SMS,),
            expires_at_ms=START_MS + EXPIRY_MS,
        )


@settings(max_examples=20, deadline=None)
@given(
    fates=st.lists(FATES, min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
    priority=st.sampled_from(Priority),
)
def test_nobody_reached_turns_to_the_next_channel_once_and_anybody_reached_never(
    fates: list[Outcome], seed: int, priority: Priority
) -> None:
    if priority is Priority.BULK:  # there a provider that takes nothing is waited for until it does
        fates = [Outcome(Kind.RETRY) if fate.kind is Kind.NOT_PROCESSED else fate for fate in fates]
    with TemporaryDirectory() as folder:
        story = Story(Path(folder), fates, random.Random(seed), priority)
        asyncio.run(story.run())
    assert len(story.fallbacks) == (0 if story.provider.reached else 1)
    _is_never_finished_in_between(story, random.Random(seed))


def _is_never_finished_in_between(story: Story, rng: random.Random) -> None:
    """Whatever the order in which the row hears of it."""
    plan = StatusEvent(3, EventKind.PLANNED, START_MS, plan=story.suffixes, source_offset=1)
    told = [plan, *story.events]
    rng.shuffle(told)
    slot = slots.EMPTY
    for event in told:
        slot = slots.merge(slot, event, True)
        assert not (story.fallbacks and slots.is_finished(slot))
    if story.fallbacks:
        slot = slots.merge(slot, StatusEvent(3, EventKind.SENT, START_MS, "sms", call=1), True)
    assert slots.is_finished(slot) and slots.tally(slot).sent == 1


async def test_two_notifications_of_one_person_turn_each_by_itself(tmp_path: Path) -> None:
    story = Story(tmp_path, [UNREACHED[0]], random.Random(1), Priority.TRANSACTIONAL)
    await story.run()
    other = replace(story._push(0), intent=keys.single_intent("default", "order-2"), slot=4)
    await story._handled(other)
    assert [one.slot for one in story.fallbacks] == [3, 4]
