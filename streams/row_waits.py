"""What a status row still waits for: asked where plans and claims may be forgotten, a day after something went.

Of a delivery that no call was made for, and that has not ended, nobody knows whether its lane ever had it: whoever
planned it may have died amid writing. So it goes again, as if let go now, and nobody is called twice by that: a call
that the row has not heard of is so new that its claim is there (24 h from the call), and a copy that still lies in a
lane is stopped by the claim of this one, or parked as too old (22 h). Only a row more than two hours late could err.
Pure. Used by `streams/route.py` and `streams/fan_out.py`.
"""

from __future__ import annotations

from schemas import keys
from schemas.messages import Channel, EventKind
from schemas.reasons import Reason
from schemas.stores import SlotView
from streams.planning import Part, Plan

_WAITS = frozenset({"accepted", EventKind.SCHEDULED, EventKind.QUEUED})
_DONE = Part(Channel.INAPP, reason="not waited for")
"""Holds the place of a delivery that goes nowhere from here."""


def untouched(slot: SlotView) -> frozenset[str]:
    """The deliveries that no call was made for and that have not ended: one whose record was lost is among them."""
    return frozenset(
        keys.shown_suffix(one.channel, one.device) for one in slot.deliveries if not one.calls and one.state in _WAITS
    )


def begun(plan: Plan, slot: SlotView) -> tuple[Channel, ...]:
    """Fallback channels of a plan made now that the row waits for already: then nobody could be reached before them.

    Where a call was made its sender fell back, and sees to it.
    """
    if any(one.calls for one in slot.deliveries):
        return ()
    waiting = untouched(slot)
    named = [one for one in slot.deliveries if keys.shown_suffix(one.channel, one.device) in waiting]
    return tuple(dict.fromkeys(Channel(one.channel) for one in named if one.channel in plan.fallback))


def left_of(plan: Plan, slot: SlotView) -> tuple[Plan, dict[str, str]]:
    """What of a plan made now the row waits for, all else with a reason; and why others that it waits for reach nobody.

    Each keeps its number in the row, by which providers report. Where somebody may have been reached nothing falls
    back; what a fallback of its sender may have added is left alone.
    """
    found, waiting = {part.suffix: part for part in plan.parts}, untouched(slot)
    reasons: dict[str, str] = {part.channel: part.reason for part in plan.parts if part.reason}
    parts: list[Part] = []
    unreached: dict[str, str] = {}
    for one in slot.deliveries:
        name = keys.shown_suffix(one.channel, one.device)
        part = found.get(name, _DONE) if name in waiting else _DONE
        parts.append(part)
        if name in waiting and part.reason and one.channel not in plan.fallback:
            gone = Reason.DEAD_DEVICE if one.device else Reason.NO_ADDRESS
            unreached[name] = reasons.get(one.channel, gone)
    was_called = any(one.calls for one in slot.deliveries)
    return Plan(tuple(parts), () if was_called else plan.fallback), unreached
