"""The lane records of one page: what its deliveries share is encoded once (`streams/stencil.py`)."""

from __future__ import annotations

from collections import Counter

from schemas import codec, keys, metrics
from schemas.messages import Channel, Contact, Delivery, Recipient, ReleasedPage
from schemas.records import Headers, Outgoing
from schemas.topics import Topics
from streams import stencil
from streams.planning import Part, Plan

_USER, _INTENT, _DEVICE, _PARAMS, _SIBLING = (stencil.MARK + name for name in "uidps")
_TO = Contact(email=stencil.MARK + "t")
_contact = codec.writer_inside(Delivery, Contact)
_MARKS = (
    stencil.text(_USER) + stencil.text(_INTENT),
    stencil.number(stencil.MARKED_NUMBER),
    stencil.text(_DEVICE),
    stencil.text(_PARAMS),
    stencil.optional(_contact(_TO)),
    stencil.texts((_SIBLING,)),
)
_Pieces = tuple[bytes, ...] | None


class LaneRecords:
    """Collects the deliveries of one page as records."""

    def __init__(self, page: ReleasedPage, row: str, topics: Topics, headers: Headers = ()) -> None:
        self._page = page
        self._headers = headers
        self._row = row
        self._lanes = {channel: topics.lane(channel, page.priority) for channel in Channel}
        self._pieces: dict[tuple[int, Channel, tuple[Channel, ...]], _Pieces] = {}
        self._records: list[Outgoing] = []

    def add(self, slot: int, recipient: Recipient, intent: str, plan: Plan) -> None:
        """One record for each delivery of the plan that goes into a lane."""
        key = keys.user_key(self._page.tenant, recipient.user_id).encode()
        for index, part in enumerate(plan.parts):
            if not part.reason:
                value = self._encoded(slot, index, recipient, intent, plan)
                self._records.append(Outgoing(self._lanes[part.channel], key, value, self._headers))

    def finished(self) -> list[Outgoing]:
        """The records; counted as planned."""
        counts = Counter(record.topic for record in self._records)
        for channel, lane in self._lanes.items():
            if counts[lane]:
                metrics.PLANNED.labels(channel, self._page.priority).inc(counts[lane])
        return self._records

    def _encoded(self, slot: int, index: int, recipient: Recipient, intent: str, plan: Plan) -> bytes:
        part, fallback = plan.parts[index], plan.fallback
        shape = (index, part.channel, fallback)
        if shape not in self._pieces:
            sample = Recipient(_USER, _PARAMS, _TO)
            marked = self._delivery(
                stencil.MARKED_NUMBER, index, sample, _INTENT, Part(part.channel, _DEVICE), (_SIBLING,), fallback
            )
            self._pieces[shape] = stencil.cut(codec.encode(marked), _MARKS)
        pieces, siblings, to = self._pieces[shape], plan.siblings(index), recipient.to
        if pieces is None:
            return codec.encode(self._delivery(slot, index, recipient, intent, part, siblings, fallback))
        return b"".join(
            (
                pieces[0],
                stencil.text(recipient.user_id),
                stencil.text(intent),
                pieces[1],
                stencil.number(slot),
                pieces[2],
                stencil.text(part.device),
                pieces[3],
                stencil.text(recipient.params),
                pieces[4],
                stencil.optional(None if to is None else _contact(to)),
                pieces[5],
                stencil.texts(siblings),
                pieces[6],
            )
        )

    def _delivery(
        self,
        slot: int,
        index: int,
        recipient: Recipient,
        intent: str,
        part: Part,
        siblings: tuple[str, ...],
        fallback: tuple[Channel, ...],
    ) -> Delivery:
        page = self._page
        return Delivery(
            tenant=page.tenant,
            user_id=recipient.user_id,
            intent=intent,
            row=self._row,
            slot=slot,
            index=index,
            channel=part.channel,
            device=part.device,
            priority=page.priority,
            template=page.template,
            campaign_id=page.campaign_id,
            params=recipient.params,
            campaign_params=page.params,
            to=recipient.to,
            accepted_at_ms=page.accepted_at_ms,
            released_at_ms=page.released_at_ms,
            expires_at_ms=page.expires_at_ms,
            hop=page.hop,
            siblings=siblings,
            fallback=fallback,
        )
