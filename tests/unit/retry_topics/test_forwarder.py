"""Forward: never early, at the latest after the tier's longest wait, and the bytes as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry_topics.forwarder import NOT_BEFORE, Forwarder, read_behind_ms
from schemas.records import Answer, Defer, Done, Record
from schemas.topics import TIERS, Topics
from tests.doubles.manual_clock import START_MS, ManualClock

TOPICS = Topics()


def waiting(tier: str, *headers: tuple[str, bytes], written_ms: int = START_MS) -> Record:
    return Record(TOPICS.tier("push", "bulk", tier), 0, 7, b"key", b"\x00not avro at all", headers, written_ms)


async def answered(record: Record, clock: ManualClock) -> Answer:
    answers: list[Answer] = []
    await Forwarder(TOPICS, clock).handle([record], lambda _, answer: answers.append(answer))
    assert len(answers) == 1
    return answers[0]


async def test_a_record_is_kept_until_its_time_and_not_a_millisecond_less() -> None:
    clock = ManualClock()
    record = waiting("1m", (NOT_BEFORE, str(START_MS + 30_000).encode()))
    clock.advance(29_999)
    assert await answered(record, clock) == Defer(START_MS + 30_000)
    clock.advance(1)
    assert isinstance(await answered(record, clock), Done)


async def test_a_due_record_goes_to_its_lane_unchanged() -> None:
    record = waiting("10s", ("traceparent", b"00-1"), (NOT_BEFORE, b"1"), ("x-unknown", b"\xff"))
    done = await answered(record, ManualClock())
    assert isinstance(done, Done)
    (outgoing,) = done.publish
    assert outgoing.topic == "push.bulk"
    assert (outgoing.key, outgoing.value, outgoing.headers) == (record.key, record.value, record.headers)


@pytest.mark.parametrize("garbage", [None, b"", b"soon", b"-5", b"1e9", b"9" * 40, "١٢".encode()])
def test_without_a_readable_time_it_waits_as_long_as_the_tier_does(garbage: bytes | None) -> None:
    record = waiting("1m") if garbage is None else waiting("1m", (NOT_BEFORE, garbage))
    assert Forwarder(TOPICS, ManualClock()).due_ms(record) == START_MS + TIERS["1m"]


@given(st.sampled_from(list(TIERS)), st.integers(0, 10**16 - 1))
def test_no_wish_reaches_beyond_the_tier(tier: str, wish: int) -> None:
    due = Forwarder(TOPICS, ManualClock()).due_ms(waiting(tier, (NOT_BEFORE, str(wish).encode())))
    assert due == min(wish, START_MS + TIERS[tier])


def test_records_younger_than_a_tiers_shortest_wait_need_not_be_read() -> None:
    behind = read_behind_ms(TOPICS)
    assert [behind[TOPICS.tier("sms", "transactional", tier)] for tier in TIERS] == [0, 10_000, 60_000]


def test_a_deployment_may_cut_its_tiers_otherwise() -> None:
    tiers = {"10s": 500, "1m": 1_000, "10m": 2_000}
    assert Forwarder(TOPICS, ManualClock(), tiers).due_ms(waiting("1m")) == START_MS + 1_000
    behind = read_behind_ms(TOPICS, tiers)
    assert [behind[TOPICS.tier("sms", "transactional", tier)] for tier in tiers] == [0, 500, 1_000]
