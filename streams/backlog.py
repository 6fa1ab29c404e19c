"""How much work lies in each lane: what workers have not finished, and what fan-out will still add.

Workers tell their progress in Redis per lane partition, four times a second. Arithmetic here, decisions in
`streams/dispatch.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from schemas import keys
from schemas.clock import Clock
from schemas.records import LogReader
from schemas.trips import Trip, Trips, asked
from streams.campaigns import Campaign

STUCK_AFTER_S = 2.0
FORGOTTEN_AFTER_S = 30.0
"""A page that is not fanned out so long after others were that came later is no longer expected in the lanes."""
FORGOTTEN_AT_LAST_S = 300.0
"""Nor is one that nobody fanned out for so long, though nobody fans out anything."""
STUCK_AT_MOST_S = 60.0
"""A stuck partition is left out of the backlog until it holds this many seconds of the lane's rate."""
TIERS_FREE_S = 5.0
"""So many seconds of a lane's rate may wait in its tiers and count for nothing."""
TIERS_EVERY_S = 1.0
"""Tiers are looked at less often than lanes: what waits there comes back over minutes."""


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
    """Recipients whose pages this leader let go and which have not reached the lanes.

    What its predecessor let go has, by the time it is replaced, or fan-out stands still: then it is one window more.
    """

    def __init__(self) -> None:
        self._let_go: dict[str, dict[str, tuple[int, float]]] = {}
        self._arrived_from_s = 0.0

    def start_over(self) -> None:
        """Forgets what was let go when this process led before."""
        self._let_go.clear()

    def add(self, campaign: Campaign, mark: str, recipients: int, now_s: float) -> None:
        """Let go now. mark: the key that says that it reached the lanes."""
        self._let_go.setdefault(campaign.key, {})[mark] = (recipients, now_s)

    def marks(self) -> list[str]:
        """Of all that may not have reached the lanes yet."""
        return [mark for marks in self._let_go.values() for mark in marks]

    def arrived(self, marks: Collection[str], now_s: float) -> None:
        """These have reached the lanes."""
        for waiting in self._let_go.values():
            for mark in marks:
                _, since_s = waiting.pop(mark, (0, 0.0))
                self._arrived_from_s = max(self._arrived_from_s, since_s)
        for key, waiting in self._let_go.items():
            self._let_go[key] = {mark: one for mark, one in waiting.items() if self._is_expected(one[1], now_s)}
        self._let_go = {key: waiting for key, waiting in self._let_go.items() if waiting}

    def _is_expected(self, since_s: float, now_s: float) -> bool:
        is_passed_over = since_s < self._arrived_from_s
        return now_s - since_s < (FORGOTTEN_AFTER_S if is_passed_over else FORGOTTEN_AT_LAST_S)

    def recipients(self, campaign: Campaign) -> int:
        """By two measures (pages marked by fan-out, plans counted in rows), each too high when its source is late
        or lost: the smaller counts.
        """
        counts = campaign.counts()
        waiting = sum(size for size, _ in self._let_go.get(campaign.key, {}).values())
        return max(0, min(waiting, campaign.released - max(counts.planned, counts.finished)))


@dataclass(slots=True)
class _Tiers:
    """What waits in a lane's tiers, as last seen."""

    waiting: int = 0
    seen_at_s: float = field(default=-TIERS_EVERY_S)


class Backlog:
    """Looks at the lanes. partitions: how many each lane and tier has; tiers: lane -> its tiers."""

    def __init__(
        self,
        reader: LogReader,
        trips: Trips,
        partitions: Mapping[str, int],
        clock: Clock,
        tiers: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._reader = reader
        self._trips = trips
        self._partitions = partitions
        self._clock = clock
        self._tiers = tiers or {}
        self._stuck = Stuck()
        self._seen_tiers: dict[str, _Tiers] = {}

    async def lying(self, rates: Mapping[str, float]) -> dict[str, float]:
        """Deliveries not finished, for each of these lanes (name -> its rate): those that lie in it, and those that
        wait in its tiers beyond TIERS_FREE_S of the rate. Raises StoreDown, Transient.
        """
        now_s = self._clock.steady_s()
        due = [lane for lane in rates if self._tiers_due(lane, now_s)]
        seen = await self._seen([*rates, *(tier for lane in due for tier in self._tiers.get(lane, ()))])
        for lane in due:
            tiers = (partition for tier in self._tiers.get(lane, ()) for partition in seen[tier].values())
            self._seen_tiers[lane] = _Tiers(sum(partition.lying for partition in tiers), now_s)
        return {
            lane: self._stuck.counted(lane, seen[lane], rate, now_s)
            + max(0.0, self._seen_tiers[lane].waiting - TIERS_FREE_S * rate)
            for lane, rate in rates.items()
        }

    async def arrived(self, marks: Sequence[str]) -> set[str]:
        """Those of these marks that fan-out has set. Raises StoreDown."""

        def ask(trip: Trip) -> None:
            for mark in marks:
                trip.execute_command("EXISTS", mark)

        found = await asked(self._trips, ask) if marks else []
        return {mark for mark, is_set in zip(marks, found, strict=True) if is_set}

    def _tiers_due(self, lane: str, now_s: float) -> bool:
        return now_s - self._seen_tiers.get(lane, _Tiers(seen_at_s=now_s - TIERS_EVERY_S)).seen_at_s >= TIERS_EVERY_S

    async def _seen(self, topics: Sequence[str]) -> dict[str, dict[int, Partition]]:
        """Topic -> partition -> how it is now."""
        progress = await self._progress(topics)
        places = [(topic, number) for topic in topics for number in range(self._partitions[topic])]
        seen: dict[str, dict[int, Partition]] = {topic: {} for topic in topics}
        for (topic, number), offsets in (await self._reader.offsets_of(places)).items():
            seen[topic][number] = partition(*offsets, progress[topic].get(number))
        return seen

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
