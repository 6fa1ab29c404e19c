"""What the API is made of: the ports and options that `deploy` hands to `app.build_app`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from producers import auth, campaign_view, idempotency, requests
from schemas.clock import Clock
from schemas.gaps import Gap
from schemas.keys import Ids
from schemas.policies import Policies
from schemas.records import LogReader, Publisher
from schemas.standstill import WaitsFor
from schemas.stores import Cancellations, StatusReads
from schemas.topics import Topics


class EntryLogs:
    """Log epoch of each entry topic, both ways."""

    def __init__(self, epoch_by_topic: Mapping[str, str]) -> None:
        self._epoch_by_topic = dict(epoch_by_topic)
        self._topic_by_epoch = {epoch: topic for topic, epoch in epoch_by_topic.items()}

    def epoch(self, topic: str) -> str:
        return self._epoch_by_topic[topic]

    def topic(self, epoch: str) -> str | None:
        """The topic whose records carry this epoch; None when it was deleted or lives in another region."""
        return self._topic_by_epoch.get(epoch)


@dataclass(frozen=True, slots=True)
class ApiParts:
    """random_bytes: of chance, for request and trace ids. limits: what the door lets through.

    away: the log or Redis, while it does not answer; the log where neither does. gap: see `schemas/gaps.py`.
    """

    publisher: Publisher
    log: LogReader
    reads: StatusReads
    cancellations: Cancellations
    idempotency: idempotency.Store
    campaigns: campaign_view.CampaignView
    keys: auth.Keys
    ids: Ids
    topics: Topics
    entries: EntryLogs
    policies: Policies
    clock: Clock
    random_bytes: Callable[[int], bytes]
    limits: requests.Limits = field(default_factory=requests.Limits)
    away: Callable[[], WaitsFor | None] = lambda: None
    gap: Gap | None = None


PARTS = web.AppKey("parts", ApiParts)
