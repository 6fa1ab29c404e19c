"""How much work lies in each lane: what workers have not finished, and what fan-out will still add.

Workers tell their progress in Redis per lane partition, four times a second. Arithmetic here, decisions in
`streams/dispatch.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas import keys
from schemas.clock import Clock
from schemas.records import LogReader
from schemas.trips import Trip, Trips, asked
from streams.campaigns import Campaign

STUCK_AFTER_S = 2.0
FORGOTTEN_AFTER_S = 30.0
"""Pages that nobody has fanned out for so long are no longer expected in the lanes."""
STUCK_AT_MOST_S = 60.0
"""A stuck partition is left out of the backlog until it holds this many seconds of the lane's rate."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A lane partition as seen in one look. done: records finished since the topic's beginning."""

    lying: int
    done: int


@dataclass(slots=True)
class _Seen:
    """done: as last seen; moved_at_s: when it last changed, or nothing lay there."""

    done: int
    moved_at_s: float


class Stuck:
    """Tells partitions that finish nothing from those that work."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], _Seen] = {}

    def counted(self, lane: str, partitions: Mapping[int, Partition], rate_per_s: float, now_s: float) -> int:
        """What lies in the lane, without partitions that have stood still for STUCK_AFTER_S.

        One that stands still beside others must not hold up the lane; when all do, nobody is working, and a
        fuller lane would help no one.
        """
        still = {number for number, seen in partitions.items() if self._stands_still(lane, number, seen, now_s)}
        busy = {number for number, seen in partitions.items() if seen.lying}
        if still >= busy:
            still = set()
        limit = STUCK_AT_MOST_S * rate_per_s
        return sum(seen.lying for number, seen in partitions.items() if number not in still or seen.lying > limit)

    def _stands_still(self, lane: str, number: int, seen: Partition, now_s: float) -> bool:
        known = self._seen.get((lane, number))
        if known is None or known.done != seen.done or not seen.lying:
            self._seen[lane, number] = _Seen(seen.done, now_s)
            return False
        return now_s - known.moved_at_s > STUCK_AFTER_S


class OnTheirWay:
    """Recipients whose pages were let go and have not reached the lanes."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, float]] = {}

    def recipients(self, campaign: Campaign, fanned_pages: int, now_s: float) -> float:
        """By two measures (pages marked by fan-out, plans counted in rows), each too high when its source is late
        or lost: the smaller counts. A count that stands still for long is left out: nobody works on those pages.
        """
        pages = max(0, campaign.next_page - fanned_pages)
        if not pages:
            self._since.pop(campaign.key, None)
            return 0.0
        counts = campaign.counts()
        by_pages = pages * campaign.released / campaign.next_page
        by_plans = campaign.released - max(counts.planned, counts.finished)
        known, since_s = self._since.get(campaign.key, (-1, now_s))
        if known != pages:
            since_s = now_s
        self._since[campaign.key] = (pages, since_s)
        return max(0.0, min(by_pages, by_plans)) if now_s - since_s < FORGOTTEN_AFTER_S else 0.0


class Backlog:
    """Looks at the lanes. partitions: how many each lane has."""

    def __init__(self, reader: LogReader, trips: Trips, partitions: Mapping[str, int], clock: Clock) -> None:
        self._reader = reader
        self._trips = trips
        self._partitions = partitions
        self._clock = clock
        self._stuck = Stuck()

    async def lying(self, rates: Mapping[str, float]) -> dict[str, int]:
        """Deliveries not finished, for each of these lanes (name -> its rate). Raises StoreDown, Transient."""
        lanes = list(rates)
        progress = await self._progress(lanes)
        now_s = self._clock.steady_s()
        found = {}
        for lane in lanes:
            seen = {
                number: partition(*await self._reader.offsets(lane, number), progress[lane].get(number))
                for number in range(self._partitions[lane])
            }
            found[lane] = self._stuck.counted(lane, seen, rates[lane], now_s)
        return found

    async def fanned_pages(self, campaigns: Sequence[tuple[str, str]]) -> list[int]:
        """Pages of each (tenant, campaign) that fan-out has brought to the lanes. Raises StoreDown."""

        def ask(trip: Trip) -> None:
            for tenant, campaign_id in campaigns:
                trip.execute_command("BITCOUNT", keys.redis_fanned(tenant, campaign_id))

        return [int(pages) for pages in await asked(self._trips, ask)]

    async def _progress(self, lanes: Sequence[str]) -> dict[str, dict[int, tuple[int, int]]]:
        """lane -> partition -> (low watermark, done above it)."""

        def ask(trip: Trip) -> None:
            for lane in lanes:
                trip.execute_command("HGETALL", keys.redis_progress(lane))

        replies = await asked(self._trips, ask)
        return {
            lane: {int(number): _two_numbers(value) for number, value in reply.items()}
            for lane, reply in zip(lanes, replies, strict=True)
        }


def partition(first: int, end: int, progress: tuple[int, int] | None) -> Partition:
    """Without any word of a worker all that is kept counts. A watermark below the log's start speaks of the past."""
    watermark, done_above = progress if progress is not None and progress[0] >= first else (first, 0)
    return Partition(max(0, end - watermark - done_above), watermark + done_above)


def _two_numbers(value: bytes) -> tuple[int, int]:
    watermark, done_above, _ = value.split()
    return int(watermark), int(done_above)
