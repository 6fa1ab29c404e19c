"""Messages are values although the interpreter lets their fields be set: equal ones are one in a set."""

from __future__ import annotations

from dataclasses import replace

from schemas.messages import EventKind, StatusEvent


def test_equal_messages_are_one_and_a_changed_copy_is_another() -> None:
    event = StatusEvent(3, EventKind.SENT, 1_000, "push", call=1)
    assert len({event, replace(event), replace(event, call=2)}) == 2
