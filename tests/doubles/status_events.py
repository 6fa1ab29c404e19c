"""Builders and hypothesis strategies of status events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from schemas.messages import EventKind, StatusEvent
from schemas.reasons import Reason
from tests.doubles.manual_clock import START_MS

NAMES = ("email", "push/00c0ffee", "sms")
"""The plan of the strategies below, in index order."""
WAITS = (EventKind.SCHEDULED, EventKind.QUEUED, EventKind.HELD, EventKind.RETRYING)
CALLS = (
    EventKind.SENT,
    EventKind.UNCONFIRMED,
    EventKind.DELIVERED,
    EventKind.UNDELIVERED,
    EventKind.BOUNCED,
    EventKind.COMPLAINED,
)
ENDS = (EventKind.SUPPRESSED, EventKind.EXPIRED, EventKind.CANCELLED, EventKind.FAILED)


def event(kind: EventKind, delivery: str = "email", slot: int = 0, **changes: Any) -> StatusEvent:
    """An event of a first call, at START_MS."""
    base = StatusEvent(slot, kind, START_MS, delivery=delivery, call=1 if kind in CALLS else 0)
    return replace(base, **changes)


def planned(*names: str, slot: int = 0, user_id: str = "42", **changes: Any) -> StatusEvent:
    base = StatusEvent(
        slot,
        EventKind.PLANNED,
        START_MS,
        plan=names,
        source_offset=7,
        user_id=user_id,
        template="welcome",
        accepted_at_ms=START_MS,
    )
    return replace(base, **changes)


_times = st.integers(START_MS, START_MS + 5_000)
_reasons = st.sampled_from(Reason)
_NO_INDEX = st.just(-1)
_NO_NEXT = st.just("")
_texts = st.sampled_from(("", "a", "b"))


def waits(names: st.SearchStrategy[str]) -> st.SearchStrategy[StatusEvent]:
    return st.builds(
        StatusEvent,
        slot=st.just(0),
        kind=st.sampled_from(WAITS),
        at_ms=_times,
        delivery=names,
        generation=st.integers(0, 2),
        hop=st.integers(0, 3),
        reason=_reasons,
        until_ms=_times,
    )


def calls(names: st.SearchStrategy[str], indexes: st.SearchStrategy[int] = _NO_INDEX) -> st.SearchStrategy[StatusEvent]:
    return st.builds(
        StatusEvent,
        slot=st.just(0),
        kind=st.sampled_from((*CALLS, EventKind.POSSIBLE_DUPLICATE)),
        at_ms=_times,
        delivery=names,
        index=indexes,
        generation=st.integers(0, 2),
        call=st.integers(1, 3),
        reason=_reasons,
        detail=_texts,
        provider=_texts,
        provider_id=_texts,
    )


def ends(names: st.SearchStrategy[str], nexts: st.SearchStrategy[str] = _NO_NEXT) -> st.SearchStrategy[StatusEvent]:
    return st.builds(
        StatusEvent,
        slot=st.just(0),
        kind=st.sampled_from(ENDS),
        at_ms=_times,
        delivery=names,
        generation=st.integers(0, 2),
        reason=_reasons,
        detail=_texts,
        next=nexts,
    )


def plans(*contents: tuple[str, ...]) -> st.SearchStrategy[StatusEvent]:
    """PLANNED of one of these contents, at several offsets."""
    return st.builds(planned_as, st.sampled_from(contents), st.integers(0, 3), st.sampled_from(("42", "43")))


def planned_as(names: tuple[str, ...], source_offset: int, user_id: str) -> StatusEvent:
    return planned(*names, source_offset=source_offset, user_id=user_id)


def of_delivery(name: str = "email") -> st.SearchStrategy[StatusEvent]:
    """Anything that may be told of one delivery."""
    names = st.just(name)
    return st.one_of(waits(names), calls(names), ends(names))


def of_slot() -> st.SearchStrategy[StatusEvent]:
    """Anything that may be told of one slot with one plan, reports by number and a stranger included."""
    names = st.sampled_from((*NAMES, "inapp"))
    numbers = st.integers(0, len(NAMES) - 1)
    return st.one_of(
        waits(names),
        calls(names),
        calls(st.just(""), numbers),
        ends(names, st.sampled_from(("", "", "inapp"))),
        st.builds(planned_as, st.just(NAMES), st.integers(0, 3), st.just("42")),
        slot_level(),
    )


def slot_level() -> st.SearchStrategy[StatusEvent]:
    """Waits and ends of the whole slot."""
    return st.one_of(waits(st.just("")), ends(st.just("")), st.builds(_with_user, ends(st.just(""))))


def of_slot_with_rival_plans() -> st.SearchStrategy[StatusEvent]:
    """As of_slot, but plans differ and every report names its delivery."""
    names = st.sampled_from(NAMES)
    return st.one_of(waits(names), calls(names), ends(names), plans(NAMES[:2], NAMES[1:], NAMES, ()), slot_level())


def _with_user(event: StatusEvent) -> StatusEvent:
    return replace(event, user_id="42", template="welcome", accepted_at_ms=START_MS)
