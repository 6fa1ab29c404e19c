"""Fallbacks on real Redis: many people's devices at several workers, which see records twice and die in the middle."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from consumers.breaker import BreakerOptions
from consumers.lane_worker import LaneWorker
from consumers.providers.contract import Call, Way
from consumers.render import Renderer
from retry_topics.budget import RetryBudget
from schemas import codec, keys
from schemas.messages import Channel, Contact, Delivery, Device, EventKind
from schemas.outcomes import Kind, Outcome
from schemas.records import Answer, Defer, Done, Record
from tests.doubles import deliveries
from tests.integration.test_lane_worker import CLOCK, Crew, crew, hand

__all__ = ["crew"]
PEOPLE, DEVICES, WORKERS = 64, 3, 4
UNREACHED = (Outcome(Kind.DEAD_ADDRESS), Outcome(Kind.RETRY))


class Fates:
    """What the provider says of each device, by its token; everybody has a telephone."""

    carries_reference = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_token: dict[str, Outcome] = {}
        self.devices_reached: Counter[str] = Counter()
        self.texts: Counter[str] = Counter()

    async def reach(self) -> Way | Outcome:
        return self

    def leave(self) -> None:
        return None

    async def send(self, call: Call) -> Outcome:
        await asyncio.sleep(random.random() * 0.01)
        if call.channel is Channel.SMS:
            self.texts[call.user_id] += 1
            return Outcome(Kind.DONE)
        outcome = self.by_token[call.to]
        self.devices_reached[call.user_id] += outcome.kind is Kind.DONE
        return outcome

    async def close(self) -> None:
        return None


def person(fates: Fates, rng: random.Random, number: int) -> list[Delivery]:
    """The last tries of one notification to somebody's devices."""
    user, now_ms = uuid.uuid4().hex[:12], CLOCK.now_ms()
    devices = tuple(Device(f"{user}-{number}", f"{user}-{number}", "android") for number in range(DEVICES))
    for device in devices:
        fates.by_token[device.token] = rng.choice((*UNREACHED, *UNREACHED, Outcome(Kind.DONE)))
    suffixes = [keys.delivery_suffix(Channel.PUSH, device.id) for device in devices]
    first = deliveries.single(
        user,
        user,
        number,
        channel=Channel.PUSH,
        to=Contact(phone="+4930123456", devices=devices),
        tries=7,
        fallback=(Channel.SMS,),
        accepted_at_ms=now_ms,
        released_at_ms=now_ms,
        expires_at_ms=now_ms + 600_000,
    )
    return [
        replace(first, device=device.id, index=at, siblings=(*suffixes[:at], *suffixes[at + 1 :]))
        for at, device in enumerate(devices)
    ]


async def worked(worker: LaneWorker, many: list[Delivery]) -> list[Done]:
    """What each came to; who has to wait comes again, as in a lane."""
    ends: list[Done] = []
    while many:
        answers = await hand(worker, *many)
        ends += [answer for answer in answers if isinstance(answer, Done)]
        many = [one for one, answer in zip(many, answers, strict=True) if isinstance(answer, Defer)]
        await asyncio.sleep(0.05 if many else 0)
    return ends


async def part_of(victim: LaneWorker, many: list[Delivery], died: asyncio.Event) -> list[Done]:
    """What it had told when it died."""
    ends: list[Done] = []

    def answer(record: Record, given: Answer) -> None:
        if isinstance(given, Done):
            ends.append(given)
            if given.acked is not None:
                given.acked()

    records = [Record("push.transactional", 0, n, b"k", codec.encode(one), (), 0) for n, one in enumerate(many)]
    await victim.handle(records, answer)
    await died.wait()
    await victim.close(within_s=0)
    return ends


def texts_of(ends: list[Done]) -> dict[str, set[bytes]]:
    """User -> the records that went to the lane of text messages."""
    found: dict[str, set[bytes]] = {}
    for end in ends:
        for record in end.publish:
            if record.topic == "sms.transactional" and record.value is not None:
                found.setdefault(codec.decode(record.value, Delivery).user_id, set()).add(record.value)
    return found


def told_of(ends: list[Done], kind: EventKind, many: list[Delivery]) -> set[str]:
    """Whose rows are told this of a device."""
    users = {(one.row, one.slot): one.user_id for one in many}
    told = [one for end in ends for one in end.events if one.event.kind is kind]
    return {users[one.row, one.event.slot] for one in told if one.event.delivery.startswith("push")}


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 10))])
async def test_everybody_without_a_live_device_gets_one_text_message_and_nobody_else(
    crew: Crew, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    fates = Fates(crew.provider.name)
    crew.provider = fates  # type: ignore[assignment]
    (tmp_path / "welcome" / "push.de.j2").write_text("{% block text %}Hallo {{ name }}{% endblock %}")
    crew.renderer = Renderer(tmp_path, {"default": "de"})
    crew.budget = RetryBudget(share=1.0)  # else most would wait, with a try left
    crew.breaking = BreakerOptions(least=10_000)  # so would they, were the provider doubted
    many = [one for number in range(PEOPLE) for one in person(fates, rng, number)]
    rng.shuffle(many)
    died, passed = asyncio.Event(), 0

    async def dies_at_the_second(name: str) -> None:
        nonlocal passed
        passed += name in ("after_settle", "after_fallback")
        if passed > 2:
            died.set()
            await asyncio.Event().wait()

    victim = crew.worker(seed, dies_at_the_second)
    workers = [crew.worker(10 * seed + number) for number in range(1, WORKERS)]
    # Each record at two workers.
    halves = [many[at::WORKERS] + many[(at + 1) % WORKERS :: WORKERS] for at in range(WORKERS)]
    told = await asyncio.gather(
        *(worked(worker, half) for worker, half in zip(workers, halves[1:], strict=True)),
        part_of(victim, halves[0], died),
    )
    heir = crew.worker(10 * seed)
    ends = [end for found in told for end in found] + await worked(heir, many)
    texts, sent = texts_of(ends), told_of(ends, EventKind.SENT, many)
    assert set(texts) == {one.user_id for one in many} - sent
    in_doubt = told_of(ends, EventKind.UNCONFIRMED, many)
    assert {user for user in texts if fates.devices_reached[user]} <= in_doubt, (
        "only where the victim's call is unknown"
    )
    assert {len(written) for written in texts.values()} == {1}, "the same record, however often it is written"
    await worked(heir, [codec.decode(value, Delivery) for written in texts.values() for value in written])
    assert fates.texts == Counter(dict.fromkeys(texts, 1))
    for worker in (*workers, heir):
        await worker.close()
