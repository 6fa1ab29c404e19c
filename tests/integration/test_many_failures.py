"""However often a delivery fails and whatever is said about it, its record stays as small as it was."""

from __future__ import annotations

from pathlib import Path

from producers.publisher import KafkaPublisher
from retry_topics import ladder
from retry_topics.dead_letters import HEADER_OVERHEAD_BYTES
from retry_topics.forwarder import NOT_BEFORE, Forwarder
from schemas.messages import Channel
from schemas.outcomes import Kind, Outcome
from schemas.records import Answer, Headers, Outgoing, Record
from schemas.topics import HEADERS_MAX_BYTES, Topics
from streams.log_reader import KafkaLogReader
from tests.conftest import CreateTopics
from tests.doubles.deliveries import single
from tests.doubles.sender_bench import TOPICS, SenderBench, done

FAILURES = 20
TEXT = "the gateway says no, at length; " * 256
"""8 KB."""
OWN_HEADERS: dict[str, bytes] = {"traceparent": b"00-1-2-01", "x_team": b"shop"}


async def test_twenty_failures_with_long_texts_leave_small_headers_and_a_dead_letter(
    kafka_bootstrap: str, topic_prefix: str, create_topics: CreateTopics, tmp_path: Path
) -> None:
    """K12: the texts of all failures were kept in headers, until no topic took the record any more."""
    bench = SenderBench(tmp_path, ladder=ladder.LadderOptions(tries_most=FAILURES, base_ms=1, cap_ms=2))
    bench.provider.script += [Outcome(Kind.RETRY, detail=TEXT)] * 10 * FAILURES
    record = bench.record(single(), **OWN_HEADERS)
    seen: list[Headers] = []
    while (out := await failed(bench, record)).topic != TOPICS.dlq(Channel.SMS):
        seen.append(out.headers)
        record = await forwarded(bench, out)
    letter = out
    assert len(bench.provider.calls) >= FAILURES
    assert {len(headers) for headers in seen} == {3}, "its own two, and when it is due"
    assert letter.value == record.value
    assert dict(letter.headers)["traceparent"] == b"00-1-2-01"
    assert max(map(size, [*seen, letter.headers])) <= HEADERS_MAX_BYTES

    topic = Topics(topic_prefix).dlq(Channel.SMS)
    create_topics(topic)
    kafka = {"bootstrap.servers": kafka_bootstrap}
    publisher, reader = KafkaPublisher(kafka), KafkaLogReader(kafka)
    await publisher.publish([letter._replace(topic=topic)])
    parked = await reader.read(topic, 0, 0)
    assert parked is not None and parked.value == record.value
    await publisher.close()
    await reader.close()


async def failed(bench: SenderBench, record: Record) -> Outgoing:
    """What a failed call makes of the record."""
    (answer,) = await bench.send(record)
    (out,) = done(answer).publish
    return out


async def forwarded(bench: SenderBench, waiting: Outgoing) -> Record:
    """What the tier hands back to the lane when it is due."""
    bench.clock.advance(max(0, int(dict(waiting.headers)[NOT_BEFORE]) - bench.clock.now_ms()))
    answers: list[Answer] = []
    tier = Record(waiting.topic, 0, 0, waiting.key, waiting.value, waiting.headers, bench.clock.now_ms())
    await Forwarder(TOPICS, bench.clock).handle([tier], lambda record, answer: answers.append(answer))
    (answer,) = answers
    (out,) = done(answer).publish
    return bench.raw(out.value or b"", out.topic, out.key or b"")._replace(headers=out.headers)


def size(headers: Headers) -> int:
    return sum(len(name) + len(value) + HEADER_OVERHEAD_BYTES for name, value in headers)
