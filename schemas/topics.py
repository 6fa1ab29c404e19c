"""The catalogue of topics: every name, who keys it, what it carries, how it is cut and how long it is kept.

`deploy/provision.py` makes a broker match it; `docs/topics.md` is generated from it. Nothing is auto-created.
Every producer must use the murmur2 partitioner (`partitioner=murmur2_random` in librdkafka), or rows and
their table land in different partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from schemas.errors import Misconfigured
from schemas.messages import Channel, Priority

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MAX_MESSAGE_BYTES = 1_048_576
"""Of every topic; producers use the same cap."""
HEADERS_MAX_BYTES = 4_096
"""All headers of a record together."""
DLQ_MAX_MESSAGE_BYTES = MAX_MESSAGE_BYTES + HEADERS_MAX_BYTES
"""A dead letter is its source record plus our error headers."""
ENTRY_DAYS = 22
"""Of entry topics: a day longer than what was accepted may still be sent, as a cancel reads it there."""
NAME_MAX = 249
TIERS: Mapping[str, int] = {"10s": 10_000, "1m": 60_000, "10m": 600_000}
"""Tier name -> its longest wait in milliseconds, shortest first, unless the settings say otherwise."""
STATUS_TABLE = "rows"
"""Name of the status table; Faust derives the changelog's name from the application's id and it."""
DEFAULT_TENANT = "default"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as it must be. key and value say what a record holds; value is a message's name where it is one.

    keyed: readers rely on a key staying in its partition, so the count may not change once there are records.
    cut_like: the topic that this one must have as many partitions as ("" = none).
    """

    name: str
    partitions: int
    partitions_production: int
    config: Mapping[str, str]
    key: str
    value: str
    keyed: bool = False
    cut_like: str = ""


class Topics:
    """Names of all topics and consumer groups of one deployment.

    prefix is put before every name. With several tenants the entry topics end in the tenant's name.
    """

    def __init__(self, prefix: str = "", tenants: Sequence[str] = ()) -> None:
        self.prefix = prefix
        self.tenants = tuple(tenants) or (DEFAULT_TENANT,)
        self.control = prefix + "notification.control"
        self.audience = prefix + "campaign.audience"
        self.campaign_requests = prefix + "campaign.requests"
        self.campaign_control = prefix + "campaign.control"
        self.pages = prefix + "campaign.pages"
        self.hold = prefix + "hold"
        self.hold_control = prefix + "hold.control"
        self.callbacks = prefix + "provider.callbacks"
        self.status = prefix + "delivery.status"
        self.state = prefix + "notification.state"
        self.campaign_state = prefix + "campaign.state"
        self.progress = prefix + "campaign.progress"
        self.cursor = prefix + "campaign.cursor"
        self.recipients = prefix + "recipients"
        self.suppressions = prefix + "suppressions"
        self.inbox = prefix + "inbox"
        self.leader = prefix + "dispatch.leader"
        self.requests_dlq = prefix + "requests.dlq"
        self.internal_dlq = prefix + "internal.dlq"
        self.status_changelog = f"{self.group('status')}-{STATUS_TABLE}-changelog"
        self._entry_topics = frozenset(topic for tenant in self.tenants for topic in self._entries(tenant))
        for spec in self.specs():
            _check_name(spec.name)

    def requests(self, tenant: str) -> str:
        """Entry topic of transactional singles."""
        return f"{self.prefix}notification.requests{self._suffix(tenant)}"

    def requests_bulk(self, tenant: str) -> str:
        """Entry topic of bulk singles."""
        return f"{self.prefix}notification.requests.bulk{self._suffix(tenant)}"

    def lane(self, channel: str, priority: str) -> str:
        return f"{self.prefix}{channel}.{priority}"

    def tier(self, channel: str, priority: str, wait: str) -> str:
        """The waiting room of a lane for waits up to `wait` (a key of TIERS)."""
        infix = ".bulk" if priority == Priority.BULK else ""
        return f"{self.prefix}{channel}{infix}.retry.{wait}"

    def dlq(self, channel: str) -> str:
        return f"{self.prefix}{channel}.dlq"

    def dlq_for(self, topic: str) -> str:
        """Where poison of this topic is parked."""
        if topic in self._entry_topics:
            return self.requests_dlq
        channel = topic.removeprefix(self.prefix).partition(".")[0]
        return self.dlq(channel) if channel in list(Channel) else self.internal_dlq

    def lanes(self) -> tuple[str, ...]:
        return tuple(self.lane(channel, priority) for channel in Channel for priority in Priority)

    def tiers(self) -> tuple[str, ...]:
        return tuple(self.tier(c, p, wait) for c in Channel for p in Priority for wait in TIERS)

    def tiers_of_lanes(self) -> dict[str, tuple[str, ...]]:
        """Lane -> its tiers."""
        return {
            self.lane(channel, priority): tuple(self.tier(channel, priority, wait) for wait in TIERS)
            for channel in Channel
            for priority in Priority
        }

    def group(self, role: str) -> str:
        """Consumer group of a process, e.g. "route requests", "work push.bulk", "forward", "status".

        For the Faust roles it is also the application's id.
        """
        return f"{self.prefix}tidings-{role.replace(' ', '-').replace('.', '-')}"

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Consumer group -> the topics it reads. Each gets its first offsets from `tidings provision`."""
        by_role = {
            "route requests": tuple(self.requests(tenant) for tenant in self.tenants),
            "route bulk": tuple(self.requests_bulk(tenant) for tenant in self.tenants),
            "route callbacks": (self.callbacks,),
            "route recipients": (self.recipients, self.suppressions, self.inbox, self.control),
            "dispatch": (self.leader,),
            "fan_out": (self.pages,),
            "status": (self.status,),
            "forward": self.tiers(),
            "reconcile": (self.state,),
            **{f"work {c}.{p}": (self.lane(c, p),) for c in Channel for p in Priority},
        }
        return {self.group(role): topics for role, topics in by_role.items()}

    def specs(self) -> tuple[TopicSpec, ...]:
        """Every topic, in the order of the road."""
        return (*self._entry_specs(), *self._campaign_specs(), *self._lane_specs(), *self._result_specs())

    def _entries(self, tenant: str) -> tuple[str, str]:
        return self.requests(tenant), self.requests_bulk(tenant)

    def _suffix(self, tenant: str) -> str:
        if tenant not in self.tenants:
            raise Misconfigured(f"no tenant is called {tenant!r}; add [tenants.{tenant}] to the settings")
        return f".{tenant}" if len(self.tenants) > 1 else ""

    def _entry_specs(self) -> Iterator[TopicSpec]:
        for tenant in self.tenants:
            for name in self._entries(tenant):
                yield _spec(name, "tenant/user", "NotificationRequested", _kept(ENTRY_DAYS))
        yield _spec(self.control, "notification id", "NotificationCancelled", _compacted(30))

    def _campaign_specs(self) -> Iterator[TopicSpec]:
        campaign = "tenant/campaign"
        yield _spec(self.audience, campaign, "AudiencePage", _kept(30))
        yield _spec(self.campaign_requests, campaign, "CampaignRequested", _kept(30), keyed=True)
        yield _spec(
            self.campaign_control,
            "tenant/campaign; #cancel, #pace, #weight behind it",
            "CampaignControl",
            _compacted(),
        )
        yield _spec(self.pages, "tenant/campaign:page", "ReleasedPage", _kept(7))
        yield _spec(self.cursor, campaign, "CampaignCursor", _compacted())
        yield _spec(self.hold, "hold id, ends in #hop", "Held", _compacted())
        yield _spec(self.hold_control, "hold id", "HoldOrdered", _compacted(30))
        yield _spec(self.leader, "none", "LeaderRecord", _compacted(), 1, 1)

    def _lane_specs(self) -> Iterator[TopicSpec]:
        for lane in self.lanes():
            yield _spec(lane, "tenant/user", "Delivery", _kept(3))
        for tier in self.tiers():
            yield _spec(tier, "tenant/user", "Delivery", _kept(4), 4, 6)
        for dlq in (*map(self.dlq, Channel), self.requests_dlq, self.internal_dlq):
            yield _spec(dlq, "as in its source", "the source record's bytes", _kept(30, DLQ_MAX_MESSAGE_BYTES), 1, 3)

    def _result_specs(self) -> Iterator[TopicSpec]:
        yield _spec(self.callbacks, "the provider's message id", "RawCallback", _kept(7))
        yield _spec(self.status, "tenant/row", "StatusBatch", _kept(7), keyed=True)
        yield _spec(self.status_changelog, "tenant/row", "packed status row", _compacted(30), cut_like=self.status)
        yield _spec(self.state, "delivery id", "DeliveryState", _compacted(30))
        yield _spec(self.progress, "tenant/campaign:partition", "CampaignProgress", _compacted())
        yield _spec(self.campaign_state, "tenant/campaign", "CampaignState", _compacted(30))
        yield _spec(self.recipients, "tenant/user/facet", "RecipientFacet", _compacted())
        yield _spec(self.suppressions, "tenant/channel:address hash", "Suppression", _compacted())
        yield _spec(self.inbox, "tenant/user:notification id", "InboxMessage", _compacted(30))


def _spec(
    name: str,
    key: str,
    value: str,
    config: Mapping[str, str],
    partitions: int = 4,
    production: int = 12,
    *,
    keyed: bool = False,
    cut_like: str = "",
) -> TopicSpec:
    keyed = keyed or "compact" in config["cleanup.policy"]
    return TopicSpec(name, partitions, production, config, key, value, keyed, cut_like)


def _kept(days: int, max_message_bytes: int = MAX_MESSAGE_BYTES) -> dict[str, str]:
    """Deleted after some days. Segments are rolled daily, else a trickle is kept for a week longer."""
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(days * DAY_MS),
        "segment.ms": str(DAY_MS),
        "max.message.bytes": str(max_message_bytes),
        "unclean.leader.election.enable": "false",
    }


def _compacted(days: int = 0) -> dict[str, str]:
    """The newest value of each key; with days, not for ever.

    A value goes when all in its segment are as old, and compaction puts old ones beside new ones until a segment has
    1 GB: in a topic in use they stay for longer than the days. What must go in time needs a tombstone. The active
    segment is never compacted, hence the short segments. A reader that rebuilds itself slower than
    delete.retention.ms could miss a tombstone.
    """
    return {
        "cleanup.policy": "compact,delete" if days else "compact",
        "retention.ms": str(days * DAY_MS) if days else "-1",
        "segment.ms": str(HOUR_MS),
        "max.compaction.lag.ms": str(6 * HOUR_MS),
        "min.cleanable.dirty.ratio": "0.3",
        "delete.retention.ms": str(48 * HOUR_MS),
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        "unclean.leader.election.enable": "false",
    }


def _check_name(name: str) -> None:
    if len(name) > NAME_MAX or not all(c.isascii() and (c.isalnum() or c in "._-") for c in name):
        raise Misconfigured(
            f"{name!r} cannot be a topic: use ASCII letters, digits, '.', '_' and '-', at most {NAME_MAX} in all, "
            "in the topic prefix and the tenants' names"
        )
