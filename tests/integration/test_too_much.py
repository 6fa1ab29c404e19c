"""Many senders at one user's cap, on real Redis: as many messages as it allows are sent, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

from schemas import keys
from schemas.messages import Contact, Delivery
from schemas.policies import ContentCheck
from schemas.records import Done
from tests.doubles import deliveries
from tests.integration.test_lane_worker import WELCOME, Crew, crew, fresh, hand, told, until_it_is_done

__all__ = ["crew"]
WORKERS, CAP = 64, 5


def wishes(count: int) -> list[Delivery]:
    """So many messages to one user, for whom the day does not end while the test runs."""
    user, noon = fresh(), f"Etc/GMT{datetime.now(UTC).hour - 12:+}"
    user = replace(user, to=Contact(phone="+4930123456", time_zone=noon))
    places = [keys.single_address(deliveries.EPOCH, 3, number) for number in range(count)]
    return [
        replace(user, intent=keys.single_intent("default", f"{user.user_id}-{n}"), row=place.row, slot=place.slot)
        for n, place in enumerate(places)
    ]


async def test_of_64_workers_with_a_message_each_as_many_send_as_the_cap_allows_though_one_dies(crew: Crew) -> None:
    crew.policies = {WELCOME.name: replace(WELCOME, caps={"day": CAP})}
    lost, *others = wishes(WORKERS)
    died = asyncio.Event()

    async def die(name: str) -> None:
        if name == "after_send":
            died.set()
            await asyncio.Event().wait()

    victim = crew.worker(0, die)
    asked = asyncio.ensure_future(hand(victim, lost))
    await died.wait()
    await victim.close(within_s=0)
    asked.cancel()

    workers = [crew.worker(seed) for seed in range(1, WORKERS)]
    ends = await asyncio.gather(*map(until_it_is_done, workers, others))
    assert [told(end) for end in ends].count(["sent"]) == CAP - 1
    assert {reason(end) for end in ends if told(end) != ["sent"]} == {"capped"}
    assert told(await until_it_is_done(workers[0], lost)) == ["possible_duplicate", "sent"]
    assert len({call.delivery_key for call in crew.provider.calls}) == CAP
    assert len(crew.provider.calls) == CAP + 1
    for worker in workers:
        await worker.close()


async def test_of_two_workers_with_the_same_for_one_user_one_sends_and_the_other_holds(crew: Crew) -> None:
    crew.policies = {WELCOME.name: replace(WELCOME, content_check=ContentCheck.TEMPLATE)}
    for _ in range(20):
        workers = [crew.worker(seed) for seed in (1, 2)]
        ends = await asyncio.gather(*map(until_it_is_done, workers, wishes(2)))
        assert sorted(told(end) for end in ends) == [["held"], ["sent"]]
        for worker in workers:
            await worker.close()


def reason(end: Done) -> str:
    return end.events[-1].event.reason
