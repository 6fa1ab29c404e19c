"""The way out of a tier: a handler that keeps each record until it is due and hands it back to its lane.

Run by the engine as `tidings forward`. It looks at one header only, and copies the record's bytes as they are:
a record that a lane cannot read is the lane's to park.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from retry_topics.ladder import LadderOptions
from schemas import metrics
from schemas.clock import Clock
from schemas.messages import Channel, Priority
from schemas.records import AnswerTo, Defer, Done, Outgoing, Record
from schemas.topics import TIERS, Topics

NOT_BEFORE = "tid-not-before"
_MILLISECONDS = re.compile(rb"\d{1,16}")


class Forwarder:
    """Handler for all tiers of a deployment. tiers: name -> longest wait in milliseconds, as the ladder has them."""

    def __init__(self, topics: Topics, clock: Clock, tiers: Mapping[str, int] = TIERS) -> None:
        self._clock = clock
        self._rooms = {
            topics.tier(channel, priority, tier): (topics.lane(channel, priority), longest_ms)
            for channel in Channel
            for priority in Priority
            for tier, longest_ms in tiers.items()
        }

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        now_ms = self._clock.now_ms()
        overdue_ms: dict[str, int] = {}
        for record in records:
            due_ms = self.due_ms(record)
            if due_ms > now_ms:
                answer(record, Defer(due_ms))
                continue
            overdue_ms[record.topic] = max(overdue_ms.get(record.topic, 0), now_ms - due_ms)
            metrics.FORWARDED.labels(record.topic).inc()
            answer(record, Done(publish=(self._forwarded(record),)))
        for tier, late_ms in overdue_ms.items():
            metrics.TIER_OVERDUE_S.labels(tier).set(late_ms / 1000)

    def due_ms(self, record: Record) -> int:
        """When the record may go on: its header, but never later than the tier's longest wait after it was written.

        Without a header that can be read: at that latest time.
        """
        _, longest_ms = self._rooms[record.topic]
        latest_ms = record.timestamp_ms + longest_ms
        wish = record.header(NOT_BEFORE)
        if wish is None or _MILLISECONDS.fullmatch(wish) is None:
            return latest_ms
        return min(int(wish), latest_ms)

    def _forwarded(self, record: Record) -> Outgoing:
        lane, _ = self._rooms[record.topic]
        return Outgoing(lane, record.key, record.value, record.headers)


def read_behind_ms(topics: Topics, tiers: Mapping[str, int] = TIERS) -> dict[str, int]:
    """Tier topic -> its shortest wait: what was written later than that ago cannot be due, and is not read yet."""
    options = LadderOptions(tiers=tiers)
    return {
        topics.tier(channel, priority, tier): options.range_ms(tier)[0]
        for channel in Channel
        for priority in Priority
        for tier in tiers
    }
