"""An address that refused a message and may be right all the same: used again once, and then no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas import keys, stores
from schemas.messages import Channel, Delivery
from schemas.outcomes import Kind, Outcome
from tests.doubles import deliveries
from tests.doubles.sender_bench import SenderBench, published, shown

REFUSED = Outcome(Kind.SOFT_BOUNCE, detail="rcpt to: 550 5.2.1")
ADDRESS = "ada@example.org"


@pytest.fixture
def bench(tmp_path: Path) -> SenderBench:
    return SenderBench(tmp_path)


def letter(event_id: str, user: str = "42") -> Delivery:
    return deliveries.single(user, event_id, channel=Channel.EMAIL)


async def test_the_first_ends_as_refused_and_is_nobodys_to_mend(bench: SenderBench) -> None:
    bench.provider.script = [REFUSED]
    (answer,) = await bench.send(letter("e1"))
    assert (shown(answer), published(answer)) == ([("failed", "address_refused")], [])
    (answer,) = await bench.send(letter("e2"))
    assert shown(answer) == [("sent", "")], "the address is used again"


async def test_the_second_within_a_month_suppresses_the_address(bench: SenderBench) -> None:
    bench.provider.script = [REFUSED, REFUSED]
    await bench.send(letter("e1"))
    (answer,) = await bench.send(letter("e2"))
    assert (shown(answer), published(answer)) == ([("failed", "address_refused")], ["suppressions"])
    _, *how = bench.trips.kept[_mark()]
    assert how[-2:] == ["EX", 30 * 86_400]


async def test_two_of_one_moment_are_two(bench: SenderBench) -> None:
    bench.provider.script = [REFUSED, REFUSED]
    answers = await bench.send(letter("e1"), letter("e2"))
    assert sorted(published(answer) for answer in answers) == [[], ["suppressions"]]


async def test_a_message_read_again_after_a_crash_is_not_the_second(bench: SenderBench) -> None:
    """Its verdict is in the claim; whoever publishes it in the dead worker's place suppresses nothing."""
    bench.provider.script = [REFUSED]
    await bench.die(letter("e1"), "after_settle")
    (answer,) = await bench.send(letter("e1"))
    assert (shown(answer), published(answer)) == ([("failed", "address_refused")], [])


async def test_a_message_whose_first_answer_from_redis_was_lost_is_not_its_own_second(bench: SenderBench) -> None:
    bench.provider.script = [REFUSED]
    bench.trips.kept[_mark()] = (keys.delivery_key(keys.single_intent("default", "e1"), Channel.EMAIL),)
    (answer,) = await bench.send(letter("e1"))
    assert (shown(answer), published(answer)) == ([("failed", "address_refused")], [])


async def test_what_is_known_of_others_addresses_says_nothing(bench: SenderBench) -> None:
    bench.provider.script = [REFUSED, REFUSED]
    await bench.send(letter("e1"))
    bench.people.write("43", stores.Profile(1, email="mia@example.org"))
    (answer,) = await bench.send(letter("e2", user="43"))
    assert published(answer) == []


def _mark() -> str:
    return keys.redis_soft_bounce("default", Channel.EMAIL, keys.address_hash(Channel.EMAIL, ADDRESS))
