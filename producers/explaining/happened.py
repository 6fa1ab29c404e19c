"""The events of one delivery as a list of what happened, oldest first; and texts of providers made fit to be shown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from producers.explaining import words
from producers.explaining.facts import Facts, Source
from producers.explaining.moments import clock, moment
from schemas import keys
from schemas.messages import EventKind, StatusEvent
from schemas.reasons import Reason

_ADDRESSES = re.compile(r"[^\s<>\"']+@[^\s<>\"']+|\+?\d[\d\s()-]{6,}\d|[A-Za-z0-9_:+/=-]{32,}")
"""Mail addresses, phone numbers, and what may be a token."""
_ID = re.compile(r"[nc][a-z2-7]{16,}")
"""Of a notification: another one that this one repeats, or went out in."""
HIDDEN = "(hidden)"
_NAMES_ANOTHER = frozenset({Reason.LOOKALIKE, Reason.IN_DIGEST, Reason.DUPLICATE_OF, Reason.DUPLICATE_RECIPIENT})
"""Of these the detail is ours, and names another notification."""
LINES_MOST = 40
"""More than so many are cut in the middle: nobody reads them."""


def lines(facts: Facts, suffix: str) -> Iterator[str]:
    """What the log says happened to this delivery, a line each; and a word where the log says less than there was."""
    names = _names(facts)
    events = _in_order([event for event in facts.told.events if _name(event, names) == suffix])
    shown = list(dict.fromkeys(_line(event, facts.zone) for event in events))
    if len(shown) > LINES_MOST:
        half = LINES_MOST // 2
        yield from shown[:half]
        yield f"... {len(shown) - LINES_MOST} more ..."
        yield from shown[-half:]
    else:
        yield from shown
    if not facts.told.is_whole and not facts.lacks(Source.HISTORY):
        until = f" after {moment(facts.told.until_ms, facts.zone)}" if facts.told.until_ms else ""
        yield f"(There may be events{until} that are not listed: the log could not be read through in time.)"


def _in_order(events: list[StatusEvent]) -> list[StatusEvent]:
    """By time; what a provider reports of a call comes after that call, whatever its clock says."""
    sent_ms = {event.call: event.at_ms for event in events if event.kind is EventKind.SENT}

    def place(event: StatusEvent) -> tuple[int, bool, int, int]:
        is_report = event.kind in words.REPORTS
        at_ms = max(event.at_ms, sent_ms.get(event.call, 0)) if is_report else event.at_ms
        return at_ms, is_report, event.call, event.hop

    return sorted(events, key=place)


def _names(facts: Facts) -> tuple[str, ...]:
    """The deliveries in the order of the plan: reports name them by number."""
    planned = next((event.plan for event in facts.told.events if event.kind is EventKind.PLANNED), ())
    if planned or facts.slot is None:
        return planned
    return tuple(keys.shown_suffix(one.channel, one.device) for one in facts.slot.deliveries)


def _name(event: StatusEvent, names: tuple[str, ...]) -> str:
    if event.delivery or event.index < 0:
        return event.delivery
    return names[event.index] if event.index < len(names) else keys.fallback_name(event.index)


def shown(detail: str, reason: str) -> str:
    """A detail as it may be shown: of a provider's words nothing that looks like an address or a token, and no full
    stop at their end.
    """
    return detail if reason in _NAMES_ANOTHER else _ADDRESSES.sub(_hidden, detail).strip().rstrip(".")


def _hidden(found: re.Match[str]) -> str:
    return found[0] if _ID.fullmatch(found[0]) else HIDDEN


def _line(event: StatusEvent, zone: str) -> str:
    return f"{clock(event.at_ms)}  {_what(event, zone)}"


def _what(event: StatusEvent, zone: str) -> str:
    until = f", until {moment(event.until_ms, zone)}" if event.until_ms else ""
    match event.kind:
        case EventKind.QUEUED:
            return "put into its lane"
        case EventKind.SCHEDULED:
            return f"kept{until}: {_why(event)}"
        case EventKind.HELD:
            return f"{_called(event)}held{until}: {_why(event)}"
        case EventKind.RETRYING:
            again = f", again at {moment(event.until_ms, zone)}" if event.until_ms else ""
            return f"{_called(event)}{_why(event)}{again}" if event.provider else f"not sent yet: {_why(event)}{again}"
        case EventKind.SENT:
            return f"{_called(event)}accepted"
        case EventKind.UNCONFIRMED:
            called = _called(event) or f"call {event.call}: "
            return f"{called}nobody knows what came of it{_in_brackets(event)}{_following(event)}"
        case EventKind.POSSIBLE_DUPLICATE:
            return f"call {event.call} may have reached the provider although no answer was heard"
    if event.kind in words.REPORTS:
        return f"{words.REPORTS[event.kind]}{_in_brackets(event)}"
    return f"{_called(event)}{words.ENDS.get(event.kind, event.kind)}: {_why(event)}{_following(event)}"


def _called(event: StatusEvent) -> str:
    return f"call {event.call} to {event.provider}: " if event.provider else ""


def _why(event: StatusEvent) -> str:
    return f"{words.REASONS[Reason(event.reason)].short or event.kind}{_in_brackets(event)}"


def _in_brackets(event: StatusEvent) -> str:
    text = shown(event.detail, event.reason)
    return f" ({text})" if text else ""


def _following(event: StatusEvent) -> str:
    return f"; {event.next} is tried instead" if event.next else ""
