"""Makes a broker match the catalogue: the difference first, then the change, then a second look.

Besides topics it gives every consumer group its first offsets, so that consumers can run with
`auto.offset.reset=error`: an offset that went missing later stops a process instead of moving it silently.
`tidings provision` and `tidings up` apply; every other role only checks and refuses to start on a difference.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from rich.table import Table

from deploy import broker_state
from deploy.blueprint import PENDING, Blueprint, Change, Kind, differences
from deploy.broker_state import RECHECK_S, TIMEOUT_S, Found
from schemas import metrics
from schemas.errors import Misconfigured, Transient

_SHOWN = 10


def plan(admin: AdminClient, wanted: Blueprint) -> list[Change]:
    """Every difference between broker and blueprint; changes nothing.

    Raises Transient when the broker does not answer, Misconfigured when it refuses to.
    """
    names = {spec.name for spec in wanted.specs}
    found = broker_state.find(admin, names, wanted.groups)
    keyed = {s.name: found.topics[s.name].partitions for s in wanted.specs if s.keyed and s.name in found.topics}
    full = broker_state.with_records(admin, keyed)
    topics = {name: replace(topic, has_records=name in full) for name, topic in found.topics.items()}
    return differences(wanted, Found(topics, found.committed))


def apply(admin: AdminClient, wanted: Blueprint, changes: Sequence[Change]) -> None:
    """Makes the planned changes and looks again. An existing offset is never touched, a partition never removed.

    Raises Misconfigured on a conflict, on running members of a group that needs offsets (both before anything is
    changed), and when a difference remains afterwards.
    """
    _refuse_conflicts(changes)
    _refuse_busy(admin, [change for change in changes if change.kind is Kind.OFFSETS])
    created = {c.name: int(c.wanted) for c in changes if c.kind is Kind.CREATE}
    extended = {c.name: int(c.wanted) for c in changes if c.kind is Kind.PARTITIONS}
    with broker_state.translated():
        _create(admin, wanted, created)
        _extend(admin, extended)
        _configure(admin, [c for c in changes if c.kind is Kind.CONFIG])
        _await_leaders(admin, created | extended)
        _commit_first(admin, [c for c in changes if c.kind is Kind.OFFSETS])
    for change in changes:
        metrics.PROVISION_CHANGES.labels(change.kind).inc()
    check(admin, wanted)


def check(admin: AdminClient, wanted: Blueprint) -> None:
    """Raises Misconfigured naming the differences when a process must not start on this broker."""
    changes = plan(admin, wanted)
    _refuse_conflicts(changes)
    pending = [change for change in changes if change.kind in PENDING]
    if pending:
        shown = "\n".join(f"  {change}" for change in pending[:_SHOWN])
        more = f"\n  and {len(pending) - _SHOWN} more" if len(pending) > _SHOWN else ""
        raise Misconfigured(f"the broker is not as it must be; run `tidings provision`:\n{shown}{more}")


def table(changes: Sequence[Change]) -> Table:
    """The plan for a person to read."""
    shown = Table("change", "topic or group", "what", "now", "wanted")
    for change in changes:
        shown.add_row(change.kind.value, change.name, change.what, change.now, change.wanted)
    return shown


def _refuse_conflicts(changes: Iterable[Change]) -> None:
    conflicts = [str(change) for change in changes if change.kind is Kind.CONFLICT]
    if conflicts:
        raise Misconfigured("\n".join(conflicts))


def _refuse_busy(admin: AdminClient, changes: Sequence[Change]) -> None:
    busy = broker_state.busy_groups(admin, sorted({change.name for change in changes}))
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
            raise Transient(f"no leader yet for {', '.join(missing[:_SHOWN])}; run `tidings provision` again")
        time.sleep(RECHECK_S)


def _lacking(admin: AdminClient, counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return []
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    led = {name: sum(p.leader >= 0 for p in topic.partitions.values()) for name, topic in topics.items()}
    return [name for name, count in counts.items() if led.get(name, 0) < count]


def _commit_first(admin: AdminClient, changes: Sequence[Change]) -> None:
    """Commits the log's start for each partition that has no offset: 0 for a new topic."""
    places = [TopicPartition(change.what, p) for change in changes for p in change.partitions]
    starts = broker_state.offsets(admin, places, OffsetSpec.earliest())
    by_group: dict[str, list[TopicPartition]] = {}
    for change in changes:
        first = [TopicPartition(change.what, p, starts[change.what, p]) for p in change.partitions]
        by_group.setdefault(change.name, []).extend(first)
    asked: dict[str, Any] = {}
    for group, offsets in by_group.items():
        request = [ConsumerGroupTopicPartitions(group, offsets)]
        asked |= admin.alter_consumer_group_offsets(request, request_timeout=TIMEOUT_S)
    for group, future in asked.items():
        refused = [place for place in future.result().topic_partitions if place.error is not None]
        if refused:
            raise Misconfigured(f"no first offset for {group}: {refused[0].error.str()}; stop its processes first")
