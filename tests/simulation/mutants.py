"""One fault in each mechanism that keeps a promise, planted by patching: a checker must find it.

The patches stand on the product's own methods; one that fits no longer fails loudly, as `setattr` on what is not there.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from consumers import claims, telling, verdicts
from consumers.claims import Answer, Bid, Entry
from consumers.settling import Settlement
from schemas import keys
from streams import campaigns
from streams.digest_marks import DigestMarks, Mark, Window
from streams.status_table import StatusTable
from tests.doubles import memory_claims
from tests.doubles.memory_guards import MemoryCaps
from tests.doubles.memory_redis import MemoryRedis

Mutant = Callable[[], AbstractContextManager[object]]


def claim_taken_by_all() -> AbstractContextManager[object]:
    """A running lease keeps nobody from calling."""
    known = claims.judge

    def judge(entry: Entry | None, bid: Bid, now_ms: int) -> Answer:
        found = known(entry, bid, now_ms)
        return Answer.CLAIMED if found is Answer.SENDING else found

    return _both(
        mock.patch.object(memory_claims, "judge", judge), mock.patch("consumers.send_checks.claims.judge", judge)
    )


def told_before_settled() -> AbstractContextManager[object]:
    """The verdict is told without being kept in the claim first: a copy of the record calls again."""

    def settle(self: telling.Teller, sending: Any, verdict: Any, reference: str = "") -> None:
        self.settled(Settlement(sending, verdict, b"", reference), claims.Settled.STORED)

    return mock.patch.object(telling.Teller, "settle", settle)


def epochs_ignored() -> AbstractContextManager[object]:
    """What a deposed leader writes over newer states is not noticed."""
    seen = campaigns.Campaigns.news

    def news(self: campaigns.Campaigns) -> Any:
        found, _ = seen(self)
        return found, set()

    return mock.patch.object(campaigns.Campaigns, "news", news)


def fallback_not_told() -> AbstractContextManager[object]:
    """The event that ends a channel does not name the one that follows."""
    told = verdicts._events

    def events(delivery: Any, verdict: Any, numbers: Any, following: str) -> Any:
        return told(delivery, verdict, numbers, "")

    return mock.patch.object(verdicts, "_events", events)


def fallback_while_waiting() -> AbstractContextManager[object]:
    """Who waits for its next try turns to the next channel as well."""
    known = verdicts.Announcer.announce

    def announce(
        self: verdicts.Announcer, record: Any, delivery: Any, verdict: Any, numbers: Any, following: Any
    ) -> Any:
        waits = verdict.kind in verdicts.WAITS
        return known(self, record, delivery, verdict, numbers, self.following(delivery) if waits else following)

    return mock.patch.object(verdicts.Announcer, "announce", announce)


def last_plan_wins() -> AbstractContextManager[object]:
    """A second plan replaces the first."""
    known = MemoryRedis._set

    def set_(self: MemoryRedis, key: Any, value: Any, *how: Any) -> Any:
        if not str(key).startswith("plan:"):
            return known(self, key, value, *how)
        known(self, key, value)
        return None

    return mock.patch.object(MemoryRedis, "_set", set_)


def counts_by_increment() -> AbstractContextManager[object]:
    """Rows are counted when they are merged, not when they are written: what is merged again counts twice."""
    merge = StatusTable.applied

    def applied(self: StatusTable, merged: Any) -> None:
        merge(self, replace(merged, moved=(*merged.moved, *merged.moved)))

    return mock.patch.object(StatusTable, "applied", applied)


def hold_ids_without_hop() -> AbstractContextManager[object]:
    """What is held a second time lies under the id of the first: the tombstone of the one takes the other along."""
    known = keys.held_delivery_id

    def without(*args: Any) -> str:
        return known(*args).rpartition("#")[0] + "#1"

    return mock.patch.object(keys, "held_delivery_id", without)


def nights_not_seen_by_workers() -> AbstractContextManager[object]:
    """Only fan-out looks at the clock: whoever lies in a lane or a tier when the night begins is woken."""
    return mock.patch("consumers.send_checks.quiet_until_ms", return_value=0)


def digests_made_anew() -> AbstractContextManager[object]:
    """Nobody remembers in which digest a message was: what is read again is told again."""

    async def of(self: DigestMarks, windows: Sequence[Window]) -> list[list[Mark]]:
        return [[Mark(one.digest)] * len(one.intents) + [Mark("")] * len(one.others) for one in windows]

    return mock.patch.object(DigestMarks, "of", of)


def places_taken_only_once_sent() -> AbstractContextManager[object]:
    """A place that is reserved keeps nobody else from the same one."""
    known = MemoryCaps._groups

    def groups(self: MemoryCaps, key: str, length: int) -> dict[bytes, float]:
        return {group: ends for group, ends in known(self, key, length).items() if ends == math.inf}

    return mock.patch.object(MemoryCaps, "_groups", groups)


@contextmanager
def _both(*patches: AbstractContextManager[object]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


MUTANTS: dict[str, Mutant] = {
    "claim": claim_taken_by_all,
    "settle": told_before_settled,
    "epoch": epochs_ignored,
    "next": fallback_not_told,
    "turn": fallback_while_waiting,
    "first-wins": last_plan_wins,
    "counts": counts_by_increment,
    "hop": hold_ids_without_hop,
    "nights": nights_not_seen_by_workers,
    "digests": digests_made_anew,
    "caps": places_taken_only_once_sent,
}
