"""May this delivery go out now? The questions before a claim, in their order, each with its named reason.

Pure: `lane_worker` asks with what round trip A brought. The answers are a verdict, a wait, or nothing: go on.
"""

from __future__ import annotations

from typing import NamedTuple

from consumers import claims, digests
from consumers.claims import Answer, Bid, Entry, VerdictClass
from consumers.verdicts import Verdict
from retry_topics import hold
from schemas import contacts, quiet_hours
from schemas.errors import Poison
from schemas.messages import CampaignOrder, Channel, Delivery, EventKind
from schemas.policies import MessageClass, Policies, TemplatePolicy
from schemas.quiet_hours import Nights
from schemas.reasons import ParkReason, Reason
from schemas.stores import Profile

TOO_OLD_MS = 22 * 3_600_000
"""Claims live for 24 h; a record released longer ago could have lost its own."""
_NEVER_MS = 2**62


class Wait(NamedTuple):
    """Not now. reason: why, when the wait is long enough to leave the lane."""

    until_ms: int
    reason: str = Reason.NONE


class Seen(NamedTuple):
    """What round trip A brought of the person and their wish."""

    profile: Profile
    cancelled: bool


class Reached(NamedTuple):
    """Where the delivery goes. zone: the person's own, or ""."""

    address: str
    locale: str
    zone: str = ""


def answered(entry: Entry | None, bid: Bid, now_ms: int) -> Answer | None:
    """What the claim says already; None when the record may go on to bid for it."""
    answer = claims.judge(entry, bid, now_ms)
    return None if answer in (Answer.CLAIMED, Answer.TAKEOVER) else answer


def lapsed_calls(entry: Entry | None, now_ms: int) -> range:
    """The calls that were begun and of which nobody heard since their leases ran out.

    Whoever takes a claim over and gives it back makes no call, but the one before is still in doubt.
    """
    if entry is None or entry.verdict is not VerdictClass.NONE:
        return range(0)
    if entry.given_back:
        return range(entry.record_call, entry.call)
    return range(entry.record_call, entry.call + 1) if entry.lease_end_ms <= now_ms else range(0)


def obstacle(
    delivery: Delivery, seen: Seen, policy: TemplatePolicy, nights: Nights, order: CampaignOrder, now_ms: int
) -> Verdict | Wait | Reached:
    """The first thing in the way, or where the delivery goes. now_ms: wall clock."""
    late = out_of_time(delivery, order, now_ms)
    if isinstance(late, Verdict):
        return late
    if seen.cancelled:
        return _end(EventKind.CANCELLED, Reason.CANCELLED_BY_CALLER, now_ms)
    if now_ms - delivery.released_at_ms > TOO_OLD_MS:
        return Verdict(EventKind.FAILED, now_ms, Reason.TOO_OLD, "released more than 22 h ago", park=ParkReason.TOO_OLD)
    if late is not None:
        return Verdict(EventKind.HELD, now_ms, Reason.CAMPAIGN_PAUSED, tries=delivery.tries)
    found = _reach(delivery, seen.profile, policy, now_ms)
    if isinstance(found, Verdict):
        return found
    until_ms = quiet_until_ms(delivery, found.zone, nights, now_ms)
    night = _after_the_night(delivery, found.zone, nights, until_ms, now_ms) if until_ms else None
    if (night is None or night.kind is EventKind.HELD) and digests.is_gathered(delivery, policy):
        return digests.gathered(delivery, policy, night.until_ms if night is not None else 0, now_ms)
    return night or found


def out_of_time(delivery: Delivery, order: CampaignOrder, now_ms: int) -> Verdict | Wait | None:
    """What may change while a delivery waits for its token: asked again just before the call.

    A pause is a wait of no length: without its claim the delivery is looked at again at once, and goes to hold. What a
    clock that is ahead of this one let go to end is judged by that clock: a look-alike would go out at its end.
    """
    if 0 < delivery.expires_at_ms <= max(now_ms, delivery.released_at_ms):
        return _end(EventKind.EXPIRED, Reason.EXPIRED, now_ms)
    if order is CampaignOrder.PAUSED:
        return Wait(now_ms)
    if order is CampaignOrder.CANCELLED:
        return _end(EventKind.CANCELLED, Reason.CAMPAIGN_CANCELLED, now_ms)
    return None


def quiet_until_ms(delivery: Delivery, zone: str, nights: Nights, now_ms: int) -> int:
    """When the person's quiet hours end; 0 outside of them.

    What was let go by a clock that is ahead of this one is judged by that clock: it would wait another half an hour.
    """
    return nights.until_ms(zone, max(now_ms, delivery.released_at_ms)) if nights.window is not None else 0


def _after_the_night(delivery: Delivery, zone: str, nights: Nights, until_ms: int, now_ms: int) -> Verdict:
    """Held until the quiet hours end, spread so that not everybody's telephone rings at eight."""
    expires_ms = delivery.expires_at_ms or _NEVER_MS
    if until_ms >= expires_ms:
        return Verdict(EventKind.EXPIRED, now_ms, Reason.EXPIRED, quiet_hours.TOO_LONG)
    judged_at_ms = max(now_ms, delivery.released_at_ms)
    delay_ms = hold.fitted_ms(hold.spread_ms(delivery.intent), until_ms, expires_ms)
    until_ms = nights.until_ms(zone, judged_at_ms, delay_ms)
    return Verdict(EventKind.HELD, now_ms, Reason.QUIET_HOURS, until_ms=until_ms, tries=delivery.tries)


def _reach(delivery: Delivery, profile: Profile, policy: TemplatePolicy, now_ms: int) -> Verdict | Reached:
    if profile.erased:
        return _end(EventKind.SUPPRESSED, Reason.ERASED, now_ms)
    if profile.opt_outs and profile.opted_out(delivery.channel, delivery.template, policy.message_class):
        return _end(EventKind.SUPPRESSED, Reason.OPTED_OUT, now_ms)
    contact = contacts.effective(profile, delivery.to)
    address = contacts.address_of(contact, delivery.channel, _device(contact, delivery), delivery.user_id)
    if not address:
        is_push = delivery.channel is Channel.PUSH
        return _end(EventKind.SUPPRESSED, Reason.DEAD_DEVICE if is_push else Reason.NO_ADDRESS, now_ms)
    return Reached(address, contact.locale, contact.time_zone)


def _device(contact: contacts.Reach, delivery: Delivery) -> str:
    """A push that came as a fallback names no device: it goes to the newest."""
    if delivery.channel is not Channel.PUSH or delivery.device or not contact.devices:
        return delivery.device
    return max(contact.devices, key=lambda device: device.registered_at_ms).id


def suppressed(channel: Channel, cause: str, now_ms: int) -> Verdict:
    """The address must not be written to again. Of a push device this is known as dead."""
    reason = Reason.DEAD_DEVICE if channel is Channel.PUSH else Reason.SUPPRESSED_ADDRESS
    return Verdict(EventKind.SUPPRESSED, now_ms, reason, cause)


def over_budget(delivery: Delivery, policy: TemplatePolicy, until_ms: int, now_ms: int) -> Verdict:
    """No money is left for it today: transactional waits for the next day's, or for an operator."""
    if policy.message_class is MessageClass.TRANSACTIONAL:
        return Verdict(EventKind.HELD, now_ms, Reason.SPEND_CAP, until_ms=until_ms, tries=delivery.tries)
    return _end(EventKind.SUPPRESSED, Reason.SPEND_CAP, now_ms)


def policy_of(policies: Policies, delivery: Delivery) -> TemplatePolicy:
    """The template's policy. Raises Poison(unknown_template)."""
    policy = policies.get(delivery.template)
    if policy is None:
        raise Poison(ParkReason.UNKNOWN_TEMPLATE, f"no template is called {delivery.template}")
    return policy


def _end(kind: EventKind, reason: Reason, now_ms: int) -> Verdict:
    return Verdict(kind, now_ms, reason)
