"""What was found against what was promised: one line each, with the figure. Pure.

With kills, share, latency and the small campaign are judged outside the 45 s after each kill only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor

from deploy.blast.facts import Facts, Kill
from deploy.blast.plan import LARGE_ID, SMALL, SMALL_ID
from deploy.demo.judge import percentile

AFTER_KILL_S = 45.0
BUSY = 0.97
P50_MS, P99_MS = 40.0, 200.0
SMALL_WITHIN_S = 10.0
LATEST_S = 45.0
MEMORY_MB = 300.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """figure: None where nothing could be measured; it is then not judged, and `said` says why. limit: in words."""

    name: str
    holds: bool | None
    figure: float | None
    limit: str
    said: str = ""


def judge(facts: Facts) -> list[Judgement]:
    calm = Calm(facts.kills)
    return [
        _limit(facts),
        _busy(facts, calm),
        *_latency(facts, calm),
        _small(facts, calm),
        _memory(facts),
        *_counts(facts),
        *_trust(facts),
        _ended(facts),
        *_killed(facts),
    ]


class Calm:
    """The time in which nothing had just been killed."""

    def __init__(self, kills: Sequence[Kill]) -> None:
        self._troubled = [(kill.at_s, kill.at_s + AFTER_KILL_S) for kill in kills]

    def holds(self, from_s: float, to_s: float) -> bool:
        """Whether all of this time is calm."""
        return all(to_s < begins or from_s > ends for begins, ends in self._troubled)


def _limit(facts: Facts) -> Judgement:
    plan, most = facts.plan, facts.most_in_a_second
    allowed = plan.rate_per_s + plan.burst
    return Judgement("calls in the provider's fullest second", most <= allowed, most, f"<= {allowed:,} (rate + burst)")


def _busy(facts: Facts, calm: Calm) -> Judgement:
    """Of what the provider leaves to campaigns, from the first send of the large one to its last."""
    whole = range(ceil(facts.large.first_s), floor(facts.large.last_new_s))
    seconds = [second for second in whole if calm.holds(second, second + 1)]
    name, limit = "bulk's share of the rate, used", f">= {BUSY}"
    if not seconds:
        return Judgement(name, None, None, limit, "no calm second")
    sends = sum(arrived.per_second.get(second, 0) for arrived in (facts.large, facts.small) for second in seconds)
    busy = sends / len(seconds) / facts.plan.bulk_per_s
    return Judgement(name, busy >= BUSY, busy, limit, f"{sends / len(seconds):,.0f} a second in {len(seconds):,} s")


def calm_waits_ms(facts: Facts, calm: Calm) -> list[float]:
    """Of login codes during the large campaign, from the wish to the provider."""
    begins_s, ends_s = facts.large.first_s, facts.large.last_new_s
    return [
        wait_s * 1000
        for came_s, wait_s in facts.code.waits
        if begins_s <= came_s - wait_s <= ends_s and calm.holds(came_s - wait_s, came_s)
    ]


def _latency(facts: Facts, calm: Calm) -> Iterator[Judgement]:
    waits = calm_waits_ms(facts, calm)
    for word, share, most_ms in (("p50", 0.5, P50_MS), ("p99", 0.99, P99_MS)):
        name, limit = f"transactional, request to provider, {word}, ms", f"< {most_ms:g}"
        found = percentile(waits, share)
        said = f"of {len(waits):,}"
        yield (
            Judgement(name, found < most_ms, found, limit, said)
            if waits
            else Judgement(name, None, None, limit, "no calm second")
        )


def _small(facts: Facts, calm: Calm) -> Judgement:
    begun_s = facts.small_begun_s
    name, limit = f"campaign of {SMALL} behind the large one, s", f"<= {SMALL_WITHIN_S:g}"
    if not calm.holds(begun_s, begun_s + SMALL_WITHIN_S):
        return Judgement(name, None, None, limit, "something had just been killed")
    if begun_s > facts.large.last_new_s:
        return Judgement(name, None, None, limit, "the large campaign was over")
    took_s = facts.small.last_new_s - begun_s
    return Judgement(name, facts.small.distinct == SMALL and took_s <= SMALL_WITHIN_S, took_s, limit)


def _memory(facts: Facts) -> Judgement:
    role, most = max(facts.peaks_mb.items(), key=lambda pair: pair[1], default=("", 0.0))
    return Judgement("the largest Tidings process, MB", most < MEMORY_MB, most, f"< {MEMORY_MB:g}", role)


def _counts(facts: Facts) -> Iterator[Judgement]:
    wanted = {LARGE_ID: (facts.plan.recipients, facts.large), SMALL_ID: (SMALL, facts.small)}
    for campaign_id, (recipients, came) in wanted.items():
        told = facts.told[campaign_id]
        counted = sum(told["outcomes"].values())
        numbers = (told["expected"], counted, came.distinct)
        off = sum(abs(number - recipients) for number in numbers)
        holds = off == 0 and told["status"] == "processed"
        said = f"{told['status']}: expected {numbers[0]:,}, outcomes {counted:,}, at the provider {came.distinct:,}"
        yield Judgement(f"counts of campaign {campaign_id}, off by", holds, off, "0", said)


def _trust(facts: Facts) -> Iterator[Judgement]:
    """Lost: accepted and not with the provider. Repeats: twice with the provider; each was counted as possible."""
    missing = facts.plan.recipients - facts.large.distinct + SMALL - facts.small.distinct
    lost = missing + facts.codes - facts.code.distinct
    yield Judgement("lost", lost == 0, lost, "0")
    unsent = facts.codes - facts.codes_sent
    yield Judgement("login codes whose status says something else than sent", unsent == 0, unsent, "0")
    possible = facts.codes_possible + sum(told["possible_duplicates"] for told in facts.told.values())
    repeats = sum(came.repeats for came in (facts.large, facts.small, facts.code))
    yield Judgement("repeats", repeats <= possible, repeats, f"<= {possible} (counted as possible duplicates)")


def _ended(facts: Facts) -> Judgement:
    """A process that was not killed and was replaced has failed, whether or not anybody felt it."""
    killed = [kill.role for kill in facts.kills]
    ended = {role: len(pids) - 1 - killed.count(role) for role, pids in facts.pids.items()}
    many = sum(ended.values())
    said = ", ".join(role for role, count in ended.items() if count > 0)
    return Judgement("processes that ended without being killed", many == 0, many, "0", said)


def _killed(facts: Facts) -> Iterator[Judgement]:
    if not facts.plan.kills:
        return
    made = len(facts.kills)
    yield Judgement("kinds of process killed once", made == facts.kinds, made, f"{facts.kinds}")
    latest_s = max((wait_s for _, wait_s in facts.code.waits), default=0.0)
    yield Judgement("the latest transactional message, s", latest_s <= LATEST_S, latest_s, f"<= {LATEST_S:g}")


def failed(judgements: Sequence[Judgement]) -> list[Judgement]:
    return [one for one in judgements if one.holds is False]
