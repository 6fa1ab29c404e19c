"""Goal: what is put into hold twice lies there once, and what was let go is what its tombstone names."""

from dataclasses import replace

from retry_topics import hold
from schemas import codec
from schemas.messages import Channel, Held, HeldPage
from schemas.topics import Topics
from tests.doubles.deliveries import single

TOPICS = Topics()
PART = Held("acme", 1_000, "quiet_hours", 1, 10, page=HeldPage("spring", 7, 4711, (3, 9)))


def key(held: Held) -> bytes:
    made = hold.record(TOPICS, held)
    assert made.topic == TOPICS.hold
    assert codec.decode(made.value, Held) == held
    assert made.key is not None
    return made.key


def test_parts_of_a_page_lie_under_its_row_their_slots_and_their_hop() -> None:
    assert key(PART) == b"acme/spring:c.spring.7/p3.bf8f2131#1"
    assert key(replace(PART, page=HeldPage("spring", 7, 4711, ()))) == b"acme/spring:c.spring.7/p0#1"
    assert key(replace(PART, hop=2)) != key(PART)


def test_a_smaller_part_of_the_same_slots_takes_nobodys_place() -> None:
    """A new leader lets a page go in other pieces than the one before: what waits of both must go."""
    assert key(replace(PART, page=HeldPage("spring", 7, 4711, (3,)))) != key(PART)


def test_each_delivery_of_a_slot_lies_under_an_id_of_its_own() -> None:
    push = single(tenant="acme", user_id="a/b#1", row="n.1234abcd.0.5", slot=2, channel=Channel.PUSH, device="d1")
    mail = replace(push, channel=Channel.EMAIL, device="")
    held = [Held("acme", 1_000, "scheduled", 1, 10, delivery=one) for one in (push, mail)]
    assert key(held[1]) == b"acme/a%2Fb%231:n.1234abcd.0.5/d2.email#1"
    assert key(held[0]) != key(held[1])


def test_a_tombstone_names_what_was_let_go() -> None:
    assert hold.tombstone(TOPICS, key(PART)) == (TOPICS.hold, key(PART), None, (), None)


def test_a_wave_is_spread_evenly_and_each_time_the_same_way() -> None:
    delays = [hold.spread_ms(f"c.spring.{page}") for page in range(3_000)]
    assert delays == [hold.spread_ms(f"c.spring.{page}") for page in range(3_000)]
    assert 0 <= min(delays) < 60_000
    assert 29 * 60_000 < max(delays) < 30 * 60_000
    by_ten_minutes = [sum(10 * 60_000 * n <= delay < 10 * 60_000 * (n + 1) for delay in delays) for n in range(3)]
    assert min(by_ten_minutes) > 850
