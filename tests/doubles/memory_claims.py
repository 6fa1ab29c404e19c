"""The claims in memory: same port, same answers (`tests/contract/test_claims.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from consumers.claims import MAX_TAKEOVERS, Answer, Bid, Entry, Settled, Taken, VerdictClass, judge
from schemas.clock import Clock
from schemas.trips import Trip


class MemoryClaims:
    """Claims in a dictionary. versions and cancelled stand for what the profile store and the API write."""

    def __init__(self, clock: Clock, lease_ms: int = 30_000) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.versions: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.timelines: dict[str, list[bytes]] = {}
        self._clock = clock
        self._lease_ms = lease_ms
        self._tokens = 0

    def ask_now(self, trip: Trip) -> None:
        trip.execute_command(self._clock.now_ms)

    def read_now(self, reply: Any) -> int:
        return int(reply)

    def ask_seen(self, trip: Trip, bid: Bid) -> None:
        _later(trip, lambda: (self.entries.get(bid.claim_key), bid.cancel_key in self.cancelled))

    def read_seen(self, reply: Any) -> tuple[Entry | None, bool]:
        entry, cancelled = reply
        assert entry is None or isinstance(entry, Entry)
        return entry, cancelled

    def ask_first(self, trip: Trip, bid: Bid, server_ms: int, seat: int = 0) -> Entry:
        mine = self.fresh(bid, seat)._replace(lease_end_ms=server_ms + self._lease_ms)

        def set_first() -> Entry | None:
            there = self.entries.get(bid.claim_key)
            if there is None:
                self._put(bid, mine)
            return there

        _later(trip, set_first)
        return mine

    def read_first(self, reply: Any) -> Entry | None:
        assert reply is None or isinstance(reply, Entry)
        return reply

    def ask_version(self, trip: Trip, bid: Bid) -> None:
        _later(trip, lambda: self.versions.get(bid.profile_key, 0))

    def read_version(self, reply: Any) -> int:
        return int(reply)

    def ask_cancelled(self, trip: Trip, bid: Bid) -> None:
        _later(trip, lambda: bid.cancel_key in self.cancelled)

    def read_cancelled(self, reply: Any) -> bool:
        return bool(reply)

    def ask_take(self, trip: Trip, bid: Bid, version_seen: int, cancelled_seen: bool, seat: int = 0) -> bytes:
        mine = self.fresh(bid, seat)
        _later(trip, lambda: self._take(bid, (version_seen, cancelled_seen), mine))
        return mine.token

    def read_take(self, reply: Any) -> Taken:
        assert isinstance(reply, Taken)
        return reply

    def ask_end(self, trip: Trip, bid: Bid, verdict: VerdictClass, detail: bytes) -> None:
        _later(trip, lambda: self._take(bid, None, self.fresh(bid)._replace(verdict=verdict, detail=detail)))

    def read_end(self, reply: Any) -> Taken:
        return self.read_take(reply)

    def ask_settle(self, trip: Trip, bid: Bid, mine: Entry, verdict: VerdictClass, detail: bytes, line: bytes) -> None:
        _later(trip, lambda: self._settle(bid, mine, verdict, detail, line))

    def read_settle(self, reply: Any) -> Settled:
        assert isinstance(reply, Settled)
        return reply

    def ask_published(self, trip: Trip, bid: Bid, token: bytes) -> None:
        _later(trip, lambda: self._mark_published(bid, token))

    def ask_give_back(self, trip: Trip, bid: Bid, token: bytes, taken_over: Entry | None = None) -> None:
        _later(trip, lambda: self._give_back(bid, token, taken_over))

    def _take(self, bid: Bid, seen: tuple[int, bool] | None, mine: Entry) -> Taken:
        entry = self.entries.get(bid.claim_key)
        answer = judge(entry, bid, self._clock.now_ms())
        if answer not in (Answer.TAKEOVER, Answer.CLAIMED):
            return Taken(answer, entry)
        if seen is not None and seen != (self.versions.get(bid.profile_key, 0), bid.cancel_key in self.cancelled):
            return Taken(Answer.RECHECK, None)
        mine = mine._replace(lease_end_ms=self._clock.now_ms() + self._lease_ms)
        if entry and (entry.generation, entry.record_call) == (bid.generation, bid.record_call):
            more = int(answer is Answer.TAKEOVER)
            mine = mine._replace(takeovers=min(entry.takeovers + more, MAX_TAKEOVERS))
        self._put(bid, mine)
        return Taken(answer, mine)

    def _put(self, bid: Bid, mine: Entry) -> None:
        """The bid has won."""
        self.entries[bid.claim_key] = mine

    def fresh(self, bid: Bid, seat: int = 0) -> Entry:
        """A claim for this bid, as its next holder would have it."""
        self._tokens += 1
        return Entry(
            verdict=VerdictClass.NONE,
            published=False,
            given_back=False,
            generation=bid.generation,
            record_call=bid.record_call,
            takeovers=0,
            lease_end_ms=self._clock.now_ms() + self._lease_ms,
            token=self._tokens.to_bytes(3, "big") + bytes((seat,)),
            address=bid.address,
            detail=b"",
        )

    def _settle(self, bid: Bid, mine: Entry, verdict: VerdictClass, detail: bytes, line: bytes) -> Settled:
        entry, answer = self.entries.get(bid.claim_key), Settled.STORED
        if entry is None or entry.token != mine.token:
            if entry is not None and entry.address != mine.address:
                return Settled.MISSING
            if entry is not None and _numbers(entry) >= _numbers(mine):
                return Settled.LATE
            entry, answer = mine, Settled.MISSING
        if entry.verdict is VerdictClass.NONE:
            self.entries[bid.claim_key] = entry._replace(verdict=verdict, detail=detail, given_back=False)
            if line:
                self.timelines.setdefault(bid.timeline_key, []).insert(0, line)
        return answer

    def _mark_published(self, bid: Bid, token: bytes) -> int:
        entry = self.entries.get(bid.claim_key)
        if entry is None or entry.token != token or entry.verdict is VerdictClass.NONE or entry.published:
            return 0
        self.entries[bid.claim_key] = entry._replace(published=True, detail=b"")
        return 1

    def _give_back(self, bid: Bid, token: bytes, taken_over: Entry | None) -> int:
        entry = self.entries.get(bid.claim_key)
        if entry is None or entry.token != token or entry.verdict is not VerdictClass.NONE:
            return 0
        entry = entry._replace(given_back=True)
        if taken_over is not None:
            token = entry.token[:-1] + bytes((taken_over.seat,))
            entry = entry._replace(token=token, lease_end_ms=taken_over.lease_end_ms)
        self.entries[bid.claim_key] = entry
        return 1


def _numbers(claim: Entry) -> tuple[int, int, int, int]:
    """Those of a later claim are higher."""
    lease_end_ms = 0 if claim.given_back else claim.lease_end_ms
    return claim.generation, claim.record_call, claim.takeovers, lease_end_ms


def _later(trip: Trip, command: Callable[[], object]) -> None:
    trip.execute_command(command)
