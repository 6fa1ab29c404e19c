"""What the status events say when they are simply merged, and what the public is told: read beside the product.

Fed with every record of the status and state topics as it is written. A finished recipient is finished for good.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from schemas import codec, keys, slots
from schemas.errors import Poison
from schemas.messages import CampaignCursor, CampaignState, DeliveryState, StatusBatch
from schemas.records import Record
from schemas.slots import EMPTY, Slot
from tests.doubles.memory_log import MemoryLog
from tests.simulation.site import TOPICS


class Truth:
    """slots: (row, slot) -> merged. states: campaign -> its public states in the order of the log. expected: campaign
    -> where its recipients are; early: campaign -> what was wrong when it was said to have ended.
    """

    def __init__(self, log: MemoryLog, expected: Mapping[str, Sequence[keys.Address]]) -> None:
        self._expected = expected
        self.early: dict[str, list[str]] = {}
        self.slots: dict[tuple[str, int], Slot] = {}
        self.states: defaultdict[str, list[CampaignState]] = defaultdict(list)
        self.cursors: defaultdict[str, list[CampaignCursor]] = defaultdict(list)
        self.deliveries: defaultdict[str, list[DeliveryState]] = defaultdict(list)
        self.unreadable = 0
        log.listen(TOPICS.status, self._status)
        log.listen(TOPICS.campaign_state, self._campaign)
        log.listen(TOPICS.state, self._delivery)
        log.listen(TOPICS.cursor, self._cursor)

    def newest(self, campaign_id: str) -> CampaignState | None:
        """As a reader keeps it: of two with the same version the later one."""
        return max(reversed(self.states[campaign_id]), key=lambda state: (state.epoch, state.version), default=None)

    def is_finished(self, row: str, slot: int) -> bool:
        return slots.is_finished(self.slots.get((row, slot), EMPTY))

    def _status(self, record: Record) -> None:
        try:
            batch = codec.decode(record.value, StatusBatch)
        except Poison:
            self.unreadable += 1
            return
        exact = not keys.is_campaign_row(batch.row)
        for event in batch.events:
            place = (batch.row, event.slot)
            self.slots[place] = slots.merge(self.slots.get(place, EMPTY), event, exact)

    def _campaign(self, record: Record) -> None:
        state = codec.decode(record.value, CampaignState)
        self.states[state.campaign_id].append(state)
        if state.finished_at is not None and state.campaign_id not in self.early:
            unfinished = [at for at in self._expected[state.campaign_id] if not self.is_finished(*at)]
            self.early[state.campaign_id] = [f"was said to have ended before {place}" for place in unfinished]

    def _cursor(self, record: Record) -> None:
        cursor = codec.decode(record.value, CampaignCursor)
        self.cursors[cursor.campaign_id].append(cursor)

    def _delivery(self, record: Record) -> None:
        state = codec.decode(record.value, DeliveryState)
        self.deliveries[state.delivery_id].append(state)
