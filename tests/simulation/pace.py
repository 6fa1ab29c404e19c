"""Checkers of pace: the provider's rate, transactional before bulk, and small campaigns beside large ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from schemas import codec, keys
from schemas.errors import Poison
from schemas.messages import Priority, ReleasedPage
from tests.doubles.manual_clock import START_MS
from tests.simulation.faults import LOG, REDIS
from tests.simulation.happened import Happened
from tests.simulation.site import POLICIES, PROVIDERS, TOPICS
from tests.simulation.vendor import Asked
from tests.simulation.workload import TENANT, Campaign, Single

PROMPT_S = 2.0
"""A transactional message whom no fault touches is at its provider by then; a bulk lane holds more than that."""
RECOVERY_S = 16.0
"""A restart, a session, a lease and a breaker's pause after a fault everything flows again."""
PIECES_AHEAD = 12
"""So many pieces of a running campaign may be let go after another one was accepted and before its first one."""
NOTICED_S = 1.0
TOGETHER_S = 0.1


def rate_kept(happened: Happened) -> Iterator[str]:
    """In no second begin more calls than the provider allows."""
    for vendor in happened.site.vendors.values():
        most = _fastest_second(vendor.asked)
        if most > vendor.rate.per_s + vendor.rate.burst:
            yield f"{vendor.name} was called {most} times within a second, with {vendor.rate}"


def transactional_first(happened: Happened) -> Iterator[str]:
    """Whom no fault touches is not kept waiting by bulk."""
    first_s: dict[str, float] = {}
    for asked in happened.asked():
        key = asked.call.delivery_key
        first_s[key] = min(asked.began_s, first_s.get(key, asked.began_s))
    for single, _, accepted_s in happened.story.addresses:
        if single.lane_priority is Priority.BULK or single.asked_twice or single.waits_ms:
            continue
        intent = keys.single_intent(TENANT, single.event_id)
        for channel in POLICIES[single.template].channels:
            began_s = first_s.get(f"{intent}:{channel}")
            if began_s is not None and began_s - accepted_s > PROMPT_S and not _touched(happened, single, accepted_s):
                yield f"{single.event_id} of {accepted_s:.2f} s was called only at {began_s:.2f} s"


def _touched(happened: Happened, single: Single, accepted_s: float) -> bool:
    channels = POLICIES[single.template].channels
    concerned = {LOG, REDIS, "route requests", *(PROVIDERS[channel] for channel in channels)}
    concerned |= {f"work {channel}.transactional" for channel in channels}
    return any(
        window.struck.touched in concerned
        and window.began_s - PROMPT_S < accepted_s + PROMPT_S
        # A breaker that opened closes by the calls that come later, however few and late these are.
        and (window.struck.touched in PROVIDERS.values() or accepted_s < window.ended_s + RECOVERY_S)
        for window in happened.troubles()
    )


def small_ones_too(happened: Happened) -> Iterator[str]:
    """A campaign that fills the same lanes as one that is running gets its turn soon, whatever else happens."""
    pages = _released(happened)
    for one, other in combinations(happened.story.campaigns, 2):
        if POLICIES[one.template].channels != POLICIES[other.template].channels:
            continue
        for running, late in ((one, other), (other, one)):
            if happened.story.ordered[late.id]:
                continue  # it may have been paused when its turn came
            accepted_s = happened.story.accepted_s[late.id]
            ahead = _let_go_before(pages, running, late, accepted_s + NOTICED_S, accepted_s + late.lives_ms / 1000)
            if ahead > PIECES_AHEAD:
                yield f"{ahead} pieces of {running.id} went before the first one of {late.id}"


def _let_go_before(
    pages: list[tuple[float, str]], running: Campaign, late: Campaign, since_s: float, expired_s: float
) -> int:
    """Pieces of the running campaign after `since_s` and before the late one's first; 0 when that has none.

    What a deposed leader lets go of a campaign that expired while nothing could go says nothing about turns. Those of
    one look go together, and the first of these looks may have begun, and waited for Redis, before `since_s`.
    """
    first_s = next((at_s for at_s, name in pages if name == late.id and at_s < expired_s), 0.0)
    between = [at_s for at_s, name in pages if name == running.id and since_s < at_s < first_s]
    return sum(at_s > between[0] + TOGETHER_S for at_s in between)


def _released(happened: Happened) -> list[tuple[float, str]]:
    found = []
    for record in happened.site.log.records(TOPICS.pages):
        try:
            page = codec.decode(record.value, ReleasedPage)
        except Poison:
            continue
        found.append(((record.timestamp_ms - START_MS) / 1000, page.campaign_id))
    return sorted(found)


def _fastest_second(asked: list[Asked]) -> int:
    """The most calls that began within any one second."""
    times = sorted(one.began_s for one in asked)
    most = first = 0
    for last, began_s in enumerate(times):
        while began_s - times[first] >= 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most
