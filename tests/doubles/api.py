"""The API on memory doubles, and what its tests say to it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from producers import auth, campaign_view, requests
from producers.api.parts import ApiParts, EntryLogs
from schemas import codec, keys, messages
from schemas.messages import Channel
from schemas.policies import MessageClass, Policies, TemplatePolicy
from schemas.records import Outgoing
from schemas.standstill import WaitsFor
from schemas.topics import Topics
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_log import MemoryLog
from tests.doubles.stores import MemoryCancellations, MemoryIdempotency, MemoryReads

POLICIES: Policies = {
    "code": TemplatePolicy("code", MessageClass.TRANSACTIONAL, (Channel.SMS,), (Channel.EMAIL,)),
    "news": TemplatePolicy("news", MessageClass.MARKETING, (Channel.EMAIL, Channel.PUSH)),
}
CODE = {"user_id": "u1", "template": "code", "params": {"code": "123456"}}


def key(name: str = "k1") -> dict[str, str]:
    return {"Idempotency-Key": name}


def api_key(text: str, tenant: str, *scopes: auth.Scope) -> auth.ApiKey:
    return auth.ApiKey(hashlib.sha256(text.encode()).hexdigest(), tenant, frozenset(scopes))


@dataclass
class Api:
    """The parts of one application, each within the test's reach."""

    topics: Topics = field(default_factory=Topics)
    clock: ManualClock = field(default_factory=ManualClock)
    idempotency: MemoryIdempotency = field(default_factory=MemoryIdempotency)
    reads: MemoryReads = field(default_factory=MemoryReads)
    cancellations: MemoryCancellations = field(default_factory=MemoryCancellations)
    ids: keys.Ids = field(default_factory=lambda: keys.Ids(b"secret of the tests"))
    away: WaitsFor | None = None
    log: MemoryLog = field(init=False)
    parts: ApiParts = field(init=False)

    def __post_init__(self) -> None:
        self.log = MemoryLog(now_ms=self.clock.now_ms)
        self.parts = ApiParts(
            publisher=self.log,
            log=self.log,
            reads=self.reads,
            cancellations=self.cancellations,
            idempotency=self.idempotency,
            campaigns=campaign_view.CampaignView(self.topics, self.clock),
            keys=auth.Keys(),
            ids=self.ids,
            topics=self.topics,
            entries=EntryLogs(entry_epochs(self.topics)),
            policies=POLICIES,
            clock=self.clock,
            random_bytes=random.Random(7).randbytes,
            limits=requests.Limits(),
            away=lambda: self.away,
        )

    def with_keys(self, *configured: auth.ApiKey) -> None:
        self.parts = replace(self.parts, keys=auth.Keys(configured))

    def requested(self) -> list[messages.NotificationRequested]:
        """Every accepted single, in the order of the topics."""
        topics = [name for tenant in self.topics.tenants for name in self._entries(tenant)]
        return [codec.decode(record.value, messages.NotificationRequested) for record in self.log.records(*topics)]

    async def publish_event(self, event: messages.NotificationRequested) -> keys.Address:
        """An event that an upstream team writes to the default tenant's topic by itself; its address."""
        topic = self.topics.requests("default")
        [placed] = await self.log.publish([Outgoing(topic, event.user_id.encode(), codec.encode(event))])
        return keys.single_address(self.parts.entries.epoch(topic), placed.partition, placed.offset)

    def campaigns(self) -> list[messages.CampaignRequested]:
        records = self.log.records(self.topics.campaign_requests)
        return [codec.decode(record.value, messages.CampaignRequested) for record in records]

    def pages(self) -> list[messages.AudiencePage]:
        records = self.log.records(self.topics.audience)
        return [codec.decode(record.value, messages.AudiencePage) for record in records]

    def address(self, notification_id: str, tenant: str = "default") -> keys.Address:
        found = self.ids.address(tenant, notification_id)
        assert found is not None
        return found

    def _entries(self, tenant: str) -> tuple[str, str]:
        return self.topics.requests(tenant), self.topics.requests_bulk(tenant)


def entry_epochs(topics: Topics) -> Mapping[str, str]:
    names = [name for tenant in topics.tenants for name in (topics.requests(tenant), topics.requests_bulk(tenant))]
    return {name: keys.log_epoch("here", name) for name in names}
