"""Makes a broker match the catalogue: the difference first, then the change, then a second look.

Besides topics it gives every consumer group its first offsets, so that consumers can run with
`auto.offset.reset=error`: an offset that went missing later stops a process instead of moving it silently.
`tidings provision` and `tidings up` apply; every other role only checks and refuses to start on a difference.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from rich.table import Table

from deploy.blueprint import Blueprint, Change, Kind, differences
from deploy.broker_state import TIMEOUT_S, Broker, Found
from schemas import metrics
from schemas.errors import Misconfigured, Transient

_SHOWN = 10
_RECHECK_S = 0.05


def plan(broker: Broker, wanted: Blueprint) -> list[Change]:
    """Every difference between broker and blueprint; changes nothing.

    Raises Transient when the broker does not answer, Misconfigured when it refuses to.
    """
    found = broker.find({spec.name for spec in wanted.specs}, wanted.groups)
    full = broker.with_records(_to_grow(wanted, found))
    topics = {name: replace(topic, has_records=name in full) for name, topic in found.topics.items()}
    return differences(wanted, Found(topics, found.committed))


def apply(broker: Broker, wanted: Blueprint, changes: Sequence[Change]) -> None:
    """Makes the planned changes and looks again. An existing offset is never touched, a partition never removed.

    Raises Misconfigured on a conflict, on running members of a group that needs offsets (both before anything is
    changed), and when a difference remains afterwards.
    """
    _refuse_conflicts(changes)
    created = {c.name: int(c.wanted) for c in changes if c.kind is Kind.CREATE}
    _refuse_busy(broker, [c for c in changes if c.kind is Kind.OFFSETS and c.what not in created])
    extended = {c.name: int(c.wanted) for c in changes if c.kind is Kind.PARTITIONS}
    had = {c.name: int(c.now) if c.kind is Kind.PARTITIONS else 0 for c in changes if c.name in created | extended}
    with broker.translated():
        _create(broker.admin, wanted, created)
        _extend(broker.admin, extended)
        _configure(broker.admin, [c for c in changes if c.kind is Kind.CONFIG])
        _await_leaders(broker.admin, created | extended)
    _commit_first(broker, [c for c in changes if c.kind is Kind.OFFSETS], had)
    for change in changes:
        if change.is_made:
            metrics.PROVISION_CHANGES.labels(change.kind).inc()
    check(broker, wanted)


def check(broker: Broker, wanted: Blueprint) -> None:
    """Raises Misconfigured naming the differences when a process must not start on this broker."""
    changes = plan(broker, wanted)
    _refuse_conflicts(changes)
    pending = [change for change in changes if change.is_made]
    if pending:
        shown = "\n".join(f"  {change}" for change in pending[:_SHOWN])
        more = f"\n  and {len(pending) - _SHOWN} more" if len(pending) > _SHOWN else ""
        raise Misconfigured(f"the broker is not as it must be; run `tidings provision --apply`:\n{shown}{more}")


def table(changes: Sequence[Change]) -> Table:
    """The plan for a person to read."""
    shown = Table("change", "topic or group", "what", "now", "wanted")
    for change in changes:
        shown.add_row(change.kind.value, change.name, change.what, change.now, change.wanted)
    return shown


def _to_grow(wanted: Blueprint, found: Found) -> dict[str, int]:
    """Topics with fewer partitions than wanted that may get them only while they are empty, and what they have."""
    keyed = [spec for spec in wanted.specs if spec.keyed and spec.name in found.topics]
    had = {spec.name: found.topics[spec.name].partitions for spec in keyed}
    return {s.name: had[s.name] for s in keyed if had[s.name] < wanted.partitions(s, found.topics)}


def _refuse_conflicts(changes: Iterable[Change]) -> None:
    conflicts = [str(change) for change in changes if change.kind is Kind.CONFLICT]
    if conflicts:
        raise Misconfigured("\n".join(conflicts))


def _refuse_busy(broker: Broker, changes: Sequence[Change]) -> None:
    busy = broker.busy(sorted({change.name for change in changes}))
    if busy:
        raise Misconfigured(f"stop the processes of {', '.join(busy)} first: their groups need first offsets")


def _create(admin: AdminClient, wanted: Blueprint, counts: Mapping[str, int]) -> None:
    if not counts:
        return
    config = {spec.name: wanted.config(spec) for spec in wanted.specs}
    copies = wanted.replication_factor
    made = admin.create_topics(
        [NewTopic(n, num_partitions=c, replication_factor=copies, config=config[n]) for n, c in counts.items()],
        request_timeout=TIMEOUT_S,
    )
    for future in made.values():
        try:
            future.result()
        except KafkaException as error:
            # Somebody else provisions at the same time; the check afterwards compares what came out.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _extend(admin: AdminClient, counts: Mapping[str, int]) -> None:
    if counts:
        asked = admin.create_partitions([NewPartitions(n, c) for n, c in counts.items()], request_timeout=TIMEOUT_S)
        for future in asked.values():
            future.result()


def _configure(admin: AdminClient, changes: Sequence[Change]) -> None:
    by_topic: dict[str, list[ConfigEntry]] = {}
    for change in changes:
        entry = ConfigEntry(change.what, change.wanted, incremental_operation=AlterConfigOpType.SET)
        by_topic.setdefault(change.name, []).append(entry)
    if by_topic:
        resources = [
            ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
            for name, entries in by_topic.items()
        ]
        for future in admin.incremental_alter_configs(resources, request_timeout=TIMEOUT_S).values():
            future.result()


def _await_leaders(admin: AdminClient, counts: Mapping[str, int]) -> None:
    """Returns once each of the topics has so many partitions with a leader. Raises Transient after TIMEOUT_S."""
    deadline = time.monotonic() + TIMEOUT_S
    while missing := _lacking(admin, counts):
        if time.monotonic() > deadline:
            raise Transient(f"no leader yet for {', '.join(missing[:_SHOWN])}; run `tidings provision --apply` again")
        time.sleep(_RECHECK_S)


def _lacking(admin: AdminClient, counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return []
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    led = {name: sum(p.leader >= 0 for p in topic.partitions.values()) for name, topic in topics.items()}
    return [name for name, count in counts.items() if led.get(name, 0) < count]


def _commit_first(broker: Broker, changes: Sequence[Change], had: Mapping[str, int]) -> None:
    """Commits the log's start for each partition that has no offset.

    had: of topics just made or extended, the partitions before that; what is new starts at 0.
    """
    places = [TopicPartition(change.what, p, 0) for change in changes for p in change.partitions]
    old = [place for place in places if place.partition < had.get(place.topic, place.partition + 1)]
    starts = broker.starts(old)
    by_group: dict[str, list[TopicPartition]] = {}
    for change in changes:
        first = [TopicPartition(change.what, p, starts.get((change.what, p), 0)) for p in change.partitions]
        by_group.setdefault(change.name, []).extend(first)
    for group, offsets in by_group.items():
        broker.commit(group, offsets)
