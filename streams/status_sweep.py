"""Deletes status rows that nothing has changed for 30 days, a slice at a time, when dispatch's daily tick says so.

A campaign's rows in a partition go together, when the newest of them is old: its counts never shrink in between.
The last record of every sweep is a heartbeat, so that the changelog does not end in a tombstone: compaction
removes those, and Faust would wait for the removed offset when it restores the table.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from schemas import rows
from schemas.clock import Clock
from streams.row_store import TOMBSTONE
from streams.status_flow import StatusFlow
from streams.status_table import campaign_of, is_campaign

log = logging.getLogger(__name__)

KEPT_MS = 30 * 86_400_000
SLICE_ROWS = 250
HEARTBEAT_KEY = b"heartbeat"
"""Holds no "/", so it is no row's key."""


class Sweep:
    """Carries out the ticks that the flow came by."""

    def __init__(self, flow: StatusFlow, clock: Clock) -> None:
        self._flow = flow
        self._clock = clock

    async def run_due(self) -> None:
        """Sweeps every partition that a tick has come for; call every few seconds."""
        while self._flow.ticks:
            partition, at_ms = self._flow.ticks.popitem()
            deleted = await self._sweep(partition, at_ms - KEPT_MS)
            log.info("status_rows.swept", extra={"partition": partition, "deleted": deleted})

    async def _sweep(self, partition: int, before_ms: int) -> int:
        deleted, after = 0, b""
        newest: dict[str, int] = {}
        campaigns: defaultdict[str, list[bytes]] = defaultdict(list)
        while partition in self._flow.owned:
            found = self._flow.store.slice(partition, after, SLICE_ROWS)
            for key, raw in found:
                if is_campaign(key):
                    campaign = campaign_of(key)
                    campaigns[campaign].append(key)
                    newest[campaign] = max(newest.get(campaign, 0), rows.touched_ms(raw))
            singles = [key for key, _ in found if b"/" in key and not is_campaign(key)]
            deleted += await self._delete(partition, singles, before_ms)
            if len(found) < SLICE_ROWS:
                break
            after = found[-1][0]
        for campaign, keys in campaigns.items():
            if newest[campaign] < before_ms:
                self._flow.forget(partition, campaign)
                for start in range(0, len(keys), SLICE_ROWS):
                    deleted += await self._delete(partition, keys[start : start + SLICE_ROWS], before_ms)
        await self._beat(partition)
        return deleted

    async def _delete(self, partition: int, candidates: list[bytes], before_ms: int) -> int:
        """Deletes those that are still old once nobody is merging."""
        async with self._flow.turn:
            if partition not in self._flow.owned:
                return 0
            store = self._flow.store
            old = [
                key
                for key in candidates
                if (raw := store.get(partition, key)) is not None and rows.touched_ms(raw) < before_ms
            ]
            await self._flow.write({(partition, key): TOMBSTONE for key in old})
        return len(old)

    async def _beat(self, partition: int) -> None:
        async with self._flow.turn:
            if partition in self._flow.owned:
                await self._flow.write({(partition, HEARTBEAT_KEY): self._clock.now_ms().to_bytes(8, "big")})
