"""What a broker must have, and how what it has differs from that: pure, so it can be read before anything is done.

`provision.py` finds out, shows and carries out. A partition is never removed, an existing offset never touched, and
where readers rely on a key staying in its partition none is added once there are records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from deploy.broker_state import Found, FoundTopic
from schemas.topics import Topics, TopicSpec


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What a broker must have. production chooses the larger partition counts."""

    specs: tuple[TopicSpec, ...]
    groups: Mapping[str, tuple[str, ...]]
    production: bool = False
    replication_factor: int = 1
    min_insync_replicas: int = 1

    def spec(self, name: str) -> TopicSpec:
        return next(spec for spec in self.specs if spec.name == name)

    def config(self, spec: TopicSpec) -> dict[str, str]:
        return {**spec.config, "min.insync.replicas": str(self.min_insync_replicas)}

    def partitions(self, spec: TopicSpec, found: Mapping[str, FoundTopic]) -> int:
        """How many the topic should have; a table has as many as its source will have."""
        if spec.cut_like:
            return self.partitions_afterwards(self.spec(spec.cut_like), found)
        return spec.partitions_production if self.production else spec.partitions

    def partitions_afterwards(self, spec: TopicSpec, found: Mapping[str, FoundTopic]) -> int:
        """How many the topic will have once the plan is carried out."""
        should, topic = self.partitions(spec, found), found.get(spec.name)
        if topic is None:
            return should
        may_grow = not (spec.keyed and topic.has_records)
        return should if topic.partitions < should and may_grow else topic.partitions


def blueprint(topics: Topics, production: bool = False, replication_factor: int = 1) -> Blueprint:
    """Everything in the catalogue. A write needs two copies where there are three or more, so one may be away."""
    insync = 2 if replication_factor > 2 else 1
    return Blueprint(topics.specs(), topics.groups(), production, replication_factor, insync)


class Kind(StrEnum):
    """CREATE to OFFSETS are made; KEPT is a difference that stays; CONFLICT needs a person."""

    CREATE = "create topic"
    PARTITIONS = "add partitions"
    CONFIG = "set"
    OFFSETS = "first offsets"
    KEPT = "kept"
    CONFLICT = "conflict"


PENDING = (Kind.CREATE, Kind.PARTITIONS, Kind.CONFIG, Kind.OFFSETS)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. name: topic or group; what: the setting, or the group's topic.

    partitions: of a group's topic, those that have no offset.
    """

    kind: Kind
    name: str
    what: str
    now: str
    wanted: str
    partitions: tuple[int, ...] = ()

    @property
    def is_made(self) -> bool:
        """Whether `provision.apply` makes it; else the difference stays."""
        return self.kind in PENDING

    def told(self, applied: bool) -> str:
        """A line for people. applied: the plan was carried out."""
        return f"{'done ' if applied else 'would '}{self}" if self.is_made else str(self)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.what} is {self.now}, wanted {self.wanted}"


def differences(wanted: Blueprint, found: Found) -> list[Change]:
    """Every difference, topics in the order of the road, then groups."""
    changes: list[Change] = []
    for spec in wanted.specs:
        topic = found.topics.get(spec.name)
        if topic is None:
            count = wanted.partitions_afterwards(spec, found.topics)
            changes.append(Change(Kind.CREATE, spec.name, "partitions", "missing", str(count)))
        else:
            changes += _cut(wanted, spec, topic, found.topics)
            changes += _copies(wanted, spec, topic)
            changes += _settings(wanted, spec, topic)
    return changes + list(_offsets(wanted, found))


def _cut(wanted: Blueprint, spec: TopicSpec, topic: FoundTopic, found: Mapping[str, FoundTopic]) -> Iterator[Change]:
    should, will, has = wanted.partitions(spec, found), wanted.partitions_afterwards(spec, found), topic.partitions
    if will > has:
        yield Change(Kind.PARTITIONS, spec.name, "partitions", str(has), str(will))
    elif spec.cut_like and has != should:
        text = f"{should}, like {spec.cut_like}: stop `tidings streams status` and delete {spec.name}"
        yield Change(Kind.CONFLICT, spec.name, "partitions", str(has), text)
    elif has != should:
        why = "more do no harm" if has > should else "its keys would move"
        yield Change(Kind.KEPT, spec.name, "partitions", str(has), f"{should}; {why}")


def _copies(wanted: Blueprint, spec: TopicSpec, topic: FoundTopic) -> Iterator[Change]:
    """Fewer copies than must be in sync would refuse every write."""
    if topic.replicas < wanted.replication_factor:
        kind = Kind.CONFLICT if topic.replicas < wanted.min_insync_replicas else Kind.KEPT
        text = f"{wanted.replication_factor}; reassign its replicas"
        yield Change(kind, spec.name, "replicas", str(topic.replicas), text)


def _settings(wanted: Blueprint, spec: TopicSpec, topic: FoundTopic) -> Iterator[Change]:
    for key, value in wanted.config(spec).items():
        if topic.config.get(key) != value:
            yield Change(Kind.CONFIG, spec.name, key, str(topic.config.get(key)), value)


def _offsets(wanted: Blueprint, found: Found) -> Iterator[Change]:
    for group, topics in wanted.groups.items():
        committed = found.committed.get(group, frozenset())
        for name in topics:
            count = wanted.partitions_afterwards(wanted.spec(name), found.topics)
            missing = tuple(p for p in range(count) if (name, p) not in committed)
            if missing:
                now = f"in {count - len(missing)} of {count} partitions"
                yield Change(Kind.OFFSETS, group, name, now, "in all", missing)
