"""Status records of one page: its plans, and the ends of what gets no delivery, in batches of its row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from schemas import codec, keys
from schemas.messages import EventKind, ReleasedPage, StatusBatch, StatusEvent
from schemas.records import Outgoing
from streams import planning, stencil

EVENTS_PER_BATCH = 200
_PLAN, _USER = (stencil.MARK + name for name in "pu")
_MARKS = (stencil.number(stencil.MARKED_NUMBER), stencil.texts((_PLAN,)), stencil.text(_USER))


class Plans:
    """Collects the plans of one page's slots: all but position, plan and user is the same, and encoded once."""

    def __init__(self, page: ReleasedPage, row: str, at_ms: int) -> None:
        self._page = page
        self._row = row
        self._at_ms = at_ms
        self._encoded: list[bytes] = []
        self._plain: list[StatusEvent] = []
        marked = self._event(stencil.MARKED_NUMBER, (_PLAN,), _USER)
        self._pieces = stencil.cut(codec.encode(StatusBatch(page.tenant, row, (marked,))), _MARKS)

    def add(self, slot: int, suffixes: tuple[str, ...], user_id: str) -> None:
        if self._pieces is None:
            self._plain.append(self._event(slot, suffixes, user_id))
            return
        _, after_slot, after_plan, ending = self._pieces
        parts = (
            stencil.number(slot),
            after_slot,
            stencil.texts(suffixes),
            after_plan,
            stencil.text(user_id),
            ending[:-1],
        )
        self._encoded.append(b"".join(parts))

    def finished(self, status_topic: str) -> Iterator[Outgoing]:
        """The records, at most EVENTS_PER_BATCH plans in each."""
        page, key = self._page, keys.row_key(self._page.tenant, self._row).encode()
        yield from records(status_topic, page.tenant, page.campaign_id, page.page, self._plain)
        if self._pieces is None:
            return
        beginning = self._pieces[0][:-1]  # without the number of events, which was one
        for start in range(0, len(self._encoded), EVENTS_PER_BATCH):
            batch = self._encoded[start : start + EVENTS_PER_BATCH]
            yield Outgoing(status_topic, key, b"".join((beginning, stencil.number(len(batch)), *batch, b"\0")))

    def _event(self, slot: int, suffixes: tuple[str, ...], user_id: str) -> StatusEvent:
        page = self._page
        return planning.planned(
            suffixes, slot, self._at_ms, page.source_offset, user_id, page.template, page.accepted_at_ms
        )


def records(
    status_topic: str, tenant: str, campaign_id: str, page: int, events: Sequence[StatusEvent]
) -> Iterator[Outgoing]:
    """The events as records of `delivery.status`."""
    row = keys.recipient_address(campaign_id, page, 0).row
    key = keys.row_key(tenant, row).encode()
    for start in range(0, len(events), EVENTS_PER_BATCH):
        batch = StatusBatch(tenant, row, tuple(events[start : start + EVENTS_PER_BATCH]))
        yield Outgoing(status_topic, key, codec.encode(batch))


def ends(
    recipients: Iterable[tuple[int, str]],
    kind: EventKind,
    reason: str,
    template: str,
    accepted_at_ms: int,
    at_ms: int,
    detail: str = "",
) -> list[StatusEvent]:
    """The end of these (position, user id)s, of which nothing is sent."""
    return [
        planning.slot_end(slot, kind, reason, at_ms, user_id, template, accepted_at_ms, detail)
        for slot, user_id in recipients
    ]
