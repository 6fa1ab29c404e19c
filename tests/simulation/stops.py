"""Checker: who may not be written to any more is not, and what was called off is not sent.

A claim is what decides: whatever was answered before it must have stopped the call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from schemas import keys
from schemas.messages import CampaignOrder, Channel
from schemas.policies import MessageClass
from tests.doubles.manual_clock import START_MS
from tests.simulation.faults import LOG
from tests.simulation.happened import Happened
from tests.simulation.site import POLICIES
from tests.simulation.vendor import Asked
from tests.simulation.workload import TENANT

WITHIN_S = 2.0
"""After a campaign's pause or cancel was answered no call begins later than this."""


def stopped(happened: Happened) -> Iterator[str]:
    intents = {keys.single_intent(TENANT, event_id): event_id for event_id in happened.story.expires_ms}
    for asked in happened.asked():
        claimed_s = _claimed_s(happened, asked)
        if claimed_s is None:
            yield f"{asked.call.delivery_key} was called without a claim"
            continue
        what = f"{asked.call.delivery_key}, claimed at {claimed_s:.3f} s"
        event_id = intents.get(asked.call.delivery_key.rpartition(":")[0], "")
        yield from _opted_out(happened, asked, claimed_s, what)
        if happened.story.cancelled.get(event_id, claimed_s) < claimed_s:
            yield f"{what}, was cancelled at {happened.story.cancelled[event_id]:.3f} s"
        if asked.call.expires_at_ms < START_MS + int(claimed_s * 1000):
            yield f"{what}, had expired"
        if asked.began_s < happened.story.due_s.get(event_id, 0.0):
            yield f"{what}, was called before it was due"
        yield from _campaign_over(happened, asked)


def _opted_out(happened: Happened, asked: Asked, claimed_s: float, what: str) -> Iterator[str]:
    call = asked.call
    answered_s = happened.story.opted_out.get(call.user_id, claimed_s)
    is_marketing = POLICIES[call.template].message_class is MessageClass.MARKETING
    if is_marketing and call.channel is Channel.EMAIL and answered_s < claimed_s:
        yield f"{what}: {call.user_id} opted out at {answered_s:.3f} s"


def _campaign_over(happened: Happened, asked: Asked) -> Iterator[str]:
    """Called although its campaign had been cancelled or paused, and was not going on again."""
    row = asked.address.row
    if not keys.is_campaign_row(row):
        return
    campaign_id = keys.campaign_of_row(row)[0]
    orders = [(at_s, order) for at_s, order in happened.story.ordered[campaign_id] if at_s <= asked.began_s]
    if not orders or orders[-1][1] is CampaignOrder.RUNNING or asked.began_s <= orders[-1][0] + WITHIN_S:
        return
    role = asked.process.partition("/")[0]
    for window in happened.troubles():
        # Who stood still, or could not read the log, could not know.
        if (
            window.struck.touched in (role, LOG)
            and window.began_s - WITHIN_S < asked.began_s < window.ended_s + WITHIN_S
        ):
            return
    yield f"{asked.call.delivery_key} was called at {asked.began_s:.3f} s, after {orders[-1]}"


def _claimed_s(happened: Happened, asked: Asked) -> float | None:
    """When the claim was taken under which the call was made."""
    taken = happened.site.claims.taken[asked.call.delivery_key]
    before = bisect_right(taken, asked.began_s)
    return taken[before - 1] if before else None
