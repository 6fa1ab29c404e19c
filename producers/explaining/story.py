"""Facts to sentences: what was asked, what was decided, what happened to each delivery, what is next, what to do.

Pure: the same facts tell the same story, word for word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from producers.explaining import happened, words
from producers.explaining.facts import Asked, Facts, Source, Way
from producers.explaining.moments import length, moment
from schemas import keys
from schemas.backstage import ClaimView, ProviderState
from schemas.messages import Channel, EventKind, Priority
from schemas.policies import MessageClass, OnUnknown, WhenRedisIsDown
from schemas.reasons import UNREACHED, Reason
from schemas.stores import DeliveryView

ACCEPTED = "accepted"
WAITS = frozenset({ACCEPTED, EventKind.SCHEDULED, EventKind.QUEUED, EventKind.HELD, EventKind.RETRYING})
OVERDUE_MS = 60_000
"""What should have gone on so long ago is late."""
_CHANNELS = {Channel.PUSH: "push", Channel.EMAIL: "email", Channel.SMS: "SMS", Channel.INAPP: "the inbox in the app"}


class Section(NamedTuple):
    title: str
    lines: tuple[str, ...]


class Story(NamedTuple):
    """in_short: the one sentence for who asked. missing: what could not be read, in sentences."""

    notification_id: str
    status: str
    in_short: str
    sections: tuple[Section, ...]
    missing: tuple[str, ...]


def tell(facts: Facts) -> Story:
    """The story. A source that is missing leaves a gap in it and is named."""
    deliveries = _shown(facts)
    status = _status(facts, deliveries)
    sections = [
        Section("What was asked", tuple(_asked(facts))),
        Section("What was decided", tuple(_decided(facts))),
        *(Section(_title(one), tuple(_delivery(facts, one))) for one in deliveries),
    ]
    whole = tuple(_whole(facts))
    if whole:
        sections.append(Section("What is next", whole))
    missing = tuple(_capital(f"{lack.source} could not be read: {lack.why}.") for lack in facts.missing)
    told = tuple(section for section in sections if section.lines)
    return Story(facts.notification_id, status, _in_short(facts, status, deliveries), told, missing)


def _shown(facts: Facts) -> list[DeliveryView]:
    found = facts.slot.deliveries if facts.slot is not None else ()
    return [one for one in found if facts.only in ("", keys.shown_suffix(one.channel, one.device))]


def _status(facts: Facts, deliveries: list[DeliveryView]) -> str:
    if facts.only and deliveries:
        return deliveries[0].state
    return facts.slot.status if facts.slot is not None else ACCEPTED


def _in_short(facts: Facts, status: str, deliveries: list[DeliveryView]) -> str:
    if facts.slot is None and facts.lacks(Source.ROW) and not facts.is_untouched():
        return "What became of it cannot be read now. What is known without that follows."
    if facts.slot is None and facts.campaign is not None:
        return " ".join((words.WAITS_IN_CAMPAIGN, words.CAMPAIGNS[facts.campaign]))
    if status == EventKind.SENT and all(one.channel == Channel.INAPP for one in deliveries if one.state == status):
        return words.IN_INBOX_SHORT
    if status == EventKind.UNCONFIRMED and any(one.sent_at_ms for one in deliveries if one.state == status):
        return words.NO_WORD_SHORT
    reason = _reason(facts, deliveries)
    if status == EventKind.SUPPRESSED and Reason(reason) in words.INSTEAD:
        return words.INSTEAD[Reason(reason)]
    return " ".join(filter(None, (words.STATES[status], words.REASONS[Reason(reason)].why)))


def _reason(facts: Facts, deliveries: list[DeliveryView]) -> str:
    if facts.only and deliveries:
        return deliveries[0].reason
    return facts.slot.reason if facts.slot is not None else ""


def _asked(facts: Facts) -> Iterator[str]:
    asked = facts.asked
    if asked is None:
        slot = facts.slot
        if slot is not None and slot.user_id:
            yield f"Template {slot.template}, for user {slot.user_id}."
        return
    yield f"Template {asked.template}{_class_of(facts)}, for user {asked.user_id}."
    yield f"{_way(asked)} at {moment(asked.at_ms, facts.zone)}."
    yield from _terms(facts, asked)


def _class_of(facts: Facts) -> str:
    if facts.policy is None:
        return ""
    lowered = " at the request of its sender in the bulk lane" if facts.asked and facts.asked.is_lowered else ""
    return f" ({facts.policy.message_class}{lowered})"


def _way(asked: Asked) -> str:
    match asked.way:
        case Way.HTTP:
            return "Asked for by a request to the API"
        case Way.EVENT:
            return "Asked for by an event published on the log"
        case Way.CAMPAIGN:
            return f"Asked for as part of the campaign {asked.campaign_id}, accepted"


def _terms(facts: Facts, asked: Asked) -> Iterator[str]:
    if asked.channels:
        yield f"Wanted on: {_names(asked.channels)}, instead of the template's own channels."
    if asked.send_at_ms:
        yield f"Not before {moment(asked.send_at_ms, facts.zone)}."
    if asked.send_at_local:
        on = f" on {asked.send_on}" if asked.send_on else ""
        yield f"At {asked.send_at_local}{on} by the clock where the person lives."
    if asked.own_contact:
        yield "The request brought addresses of its own; they count before those of the profile."
    if asked.expires_at_ms:
        yield f"Worth sending until {moment(asked.expires_at_ms, facts.zone)}; after that it expires."


def _decided(facts: Facts) -> Iterator[str]:
    policy, slot = facts.policy, facts.slot
    if facts.repeats:
        yield f"It is a repeat of {facts.repeats}, which was asked for first: only that one is sent."
    if policy is not None and not (facts.asked and facts.asked.channels):
        if policy.channels:
            yield f"The template sends on {'all of ' if len(policy.channels) > 1 else ''}{_names(policy.channels)}."
        if policy.fallback:
            yield f"{'Failing that' if policy.channels else 'The template tries'}, in order: {_names(policy.fallback)}."
    if slot is None or facts.only:
        return
    yield from _planned(facts)


def _planned(facts: Facts) -> Iterator[str]:
    slot = facts.slot
    assert slot is not None
    at_ms = min((event.at_ms for event in facts.told.events if event.kind is EventKind.PLANNED), default=0)
    if at_ms:
        yield f"How the person is reached was decided at {moment(at_ms, facts.zone)}:"
    if not slot.deliveries:
        if slot.status in WAITS:
            yield "Nothing was decided yet about how the person is reached."
        return
    for one in slot.deliveries:
        name = _title(one)
        if one.state == EventKind.SUPPRESSED and not one.calls:
            yield f"{name}: not used, {words.REASONS[Reason(one.reason)].short}."
        else:
            yield f"{name}: used."
    left = _fallback_left(facts)
    if left:
        waits = any(one.state in WAITS for one in slot.deliveries)
        yield f"{_capital(_names(left))}: {'only if nothing before it gets through' if waits else 'not needed'}."


def _fallback_left(facts: Facts) -> tuple[Channel, ...]:
    """The channels that could still be tried after those that there are."""
    if facts.policy is None or facts.slot is None or (facts.asked is not None and facts.asked.channels):
        return ()
    used = {one.channel for one in facts.slot.deliveries}
    return tuple(channel for channel in facts.policy.fallback if channel not in used)


def _delivery(facts: Facts, one: DeliveryView) -> Iterator[str]:
    suffix = keys.shown_suffix(one.channel, one.device)
    yield from happened.lines(facts, suffix)
    reason = words.REASONS[Reason(one.reason)]
    yield " ".join(filter(None, (f"Now: {one.state}.", reason.why, _detail(one))))
    yield from _called(facts, one)
    if one.possible_duplicates:
        yield words.POSSIBLE_DUPLICATE.format(count=one.possible_duplicates)
    if one.state in WAITS:
        yield from _next(facts, one, facts.claims.get(suffix))
    do = reason.do or words.WHAT_TO_DO.get(one.state, "")
    if do and not _is_passed_over(facts, one):
        yield f"What you can do: {do}"


def _is_passed_over(facts: Facts, one: DeliveryView) -> bool:
    """Whether the channel was of no use, and another one was found: then nothing is wanting here."""
    assert facts.slot is not None
    is_unreached = one.state == EventKind.SUPPRESSED and one.reason in UNREACHED
    return is_unreached and facts.slot.status != EventKind.SUPPRESSED


def _called(facts: Facts, one: DeliveryView) -> Iterator[str]:
    """Of a call that was made: when it was taken, or why it was not repeated."""
    if one.state in (EventKind.SENT, EventKind.UNCONFIRMED) and one.sent_at_ms:
        at = moment(one.sent_at_ms, facts.zone)
        taken = f"The provider {one.provider or 'of this channel'} took it at {at}."
        yield words.IN_INBOX.format(at=at) if one.channel == Channel.INAPP else taken
    elif one.state == EventKind.UNCONFIRMED and facts.policy and facts.policy.on_unknown is OnUnknown.RISK_LOSS:
        yield words.RATHER_NOT_TWICE


def _detail(one: DeliveryView) -> str:
    text = happened.shown(one.detail, one.reason)
    return f"Details: {text}." if text else ""


def _next(facts: Facts, one: DeliveryView, claim: ClaimView | None) -> Iterator[str]:
    """Of a delivery that is still to be sent."""
    if claim is not None and claim.state in words.IN_HAND:
        yield words.IN_HAND[claim.state].format(call=claim.call, until=moment(claim.until_ms, facts.zone))
    if claim is not None and claim.state in words.AHEAD and one.calls <= claim.call:
        yield words.CLAIM_AHEAD.format(what=words.AHEAD[claim.state])
        return
    yield _when(facts, one)
    if one.state == EventKind.RETRYING or one.calls:
        yield _tries(facts, one, claim)
    yield from _provider_trouble(facts, one)
    if facts.lacks(Source.LOG):
        yield words.LOG_AWAY
    elif facts.lacks(Source.REDIS):
        yield words.REDIS_AWAY_SENDS if _goes_alone(facts) else words.REDIS_AWAY
    left = _fallback_left(facts)
    if left and not _expires_first(facts, one):
        yield f"If it fails for good: {_names(left[:1])}."


def _when(facts: Facts, one: DeliveryView) -> str:
    until_ms, provider = one.waits_until_ms, _next_provider(facts, Channel(one.channel))
    by = f" by {provider}" if provider else ""
    if not until_ms:
        if one.state == EventKind.HELD:
            return "Next: it stays where it is until somebody lets it go, or it expires."
        return f"Next: it is sent{by} as soon as its turn comes in the lane {_lane(facts, one)}."
    what = "tried again" if one.state == EventKind.RETRYING else "let go"
    late_ms = facts.now_ms - until_ms
    if late_ms > OVERDUE_MS:
        return (
            f"Next: it should have been {what} at {moment(until_ms, facts.zone)}, {length(late_ms)} ago. "
            "It is in line, or the processes that bring it back are late: ask the people on call if it lasts."
        )
    at = moment(until_ms, facts.zone)
    if _expires_first(facts, one):
        return f"Next: it expires at {moment(_expires_ms(facts), facts.zone)}; it would be {what} at {at} only."
    if one.state == EventKind.RETRYING:
        return f"Next: it is {what}{by} at {at}."
    return f"Next: it is {what} at {at}{f', to be sent{by}' if by else ''}."


def _expires_first(facts: Facts, one: DeliveryView) -> bool:
    """Whether it ends before it comes out of where it waits."""
    return 0 < _expires_ms(facts) <= one.waits_until_ms


def _expires_ms(facts: Facts) -> int:
    """0: not known."""
    return facts.asked.expires_at_ms if facts.asked is not None else 0


def _goes_alone(facts: Facts) -> bool:
    return facts.policy is not None and facts.policy.when_redis_is_down is WhenRedisIsDown.SEND


def _lane(facts: Facts, one: DeliveryView) -> str:
    bulk = facts.policy is None or facts.policy.message_class is MessageClass.MARKETING
    lowered = facts.asked is not None and facts.asked.is_lowered
    return f"{one.channel}.{Priority.BULK if bulk or lowered else Priority.TRANSACTIONAL}"


def _tries(facts: Facts, one: DeliveryView, claim: ClaimView | None) -> str:
    if not one.calls:
        return "No call was made yet."
    made = f"{one.calls} call{'' if one.calls == 1 else 's'} {'was' if one.calls == 1 else 'were'} made so far"
    if claim is not None and claim.tries is not None:
        return f"{_capital(made)}; {claim.tries} of {facts.tries_most} tries are used up."
    return f"{_capital(made)}; it is given up after {facts.tries_most} failed tries."


def _next_provider(facts: Facts, channel: Channel) -> str:
    """The first of the channel's providers that is well; "" when none is, or nobody knows."""
    for name in facts.serves.get(channel, ()):
        known = facts.providers.get(name)
        if known is not None and known.state is ProviderState.WELL:
            return name
    return ""


def _provider_trouble(facts: Facts, one: DeliveryView) -> Iterator[str]:
    for name in facts.serves.get(Channel(one.channel), ()):
        known = facts.providers.get(name)
        if known is not None and known.state is not ProviderState.WELL:
            again = words.AGAIN.format(left=length(known.left_ms)) if known.left_ms else words.AT_ONCE
            yield words.PROVIDERS[known.state].format(provider=name, again=again)


def _whole(facts: Facts) -> Iterator[str]:
    """What is next for a notification that has no deliveries yet, and what its campaign does."""
    slot = facts.slot
    if facts.lacks(Source.LOG) and (slot is None or (not slot.deliveries and slot.status in WAITS)):
        yield words.LOG_AWAY
    elif slot is None and (facts.is_untouched() or not facts.lacks(Source.ROW)):
        if facts.lacks(Source.REDIS):
            yield words.REDIS_AWAY_WAITS if _goes_alone(facts) else words.REDIS_AWAY
        yield words.PAGE_NOT_RELEASED if facts.campaign is not None else words.NOT_READ_YET
    if slot is not None and not slot.deliveries:
        yield from _whole_slot(facts)
    if facts.campaign is not None and facts.asked is not None and (slot is None or slot.status in WAITS):
        yield words.CAMPAIGNS[facts.campaign]


def _whole_slot(facts: Facts) -> Iterator[str]:
    slot = facts.slot
    assert slot is not None
    reason = words.REASONS[Reason(slot.reason)]
    if slot.waits_until_ms:
        yield f"It is looked at again at {moment(slot.waits_until_ms, facts.zone)}."
    do = reason.do or words.WHAT_TO_DO.get(slot.status, "")
    if do:
        yield f"What you can do: {do}"


def _title(one: DeliveryView) -> str:
    name = _capital(_CHANNELS[Channel(one.channel)])
    return f"{name} to device {one.device}" if one.device else name


def _names(channels: tuple[Channel, ...]) -> str:
    return ", ".join(_CHANNELS[channel] for channel in channels)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
