"""Things from hold that take their turns in the lanes, beside fresh pages and bulk singles: sources of a look.

A part of a page goes in pieces, as a page does; deliveries go some at a time. What a look takes from `streams/holds.py`
and does not let go comes up again in the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from schemas import keys
from streams.backlog import OnTheirWay
from streams.campaigns import Campaign
from streams.fairness import Flow
from streams.holds import Flow as HeldFlow
from streams.holds import Holds, Part, Waiting
from streams.lanes import Lane, Window
from streams.letting_go import LettingGo, Piece
from streams.pace import Allowance

DELIVERIES_A_LOOK = 1_000
"""Each is read again from the log."""


@dataclass(slots=True)
class LetGo:
    """What one look let go from hold. lost: what is left of parts whose page the log does not hold any more."""

    pieces: list[Piece] = field(default_factory=list)
    lost: list[Piece] = field(default_factory=list)
    deliveries: list[Waiting] = field(default_factory=list)


class HeldParts:
    """The due parts of one campaign. most: recipients of a piece; pace: the campaign's own."""

    most = 1

    def __init__(
        self,
        campaign: Campaign,
        letting_go: LettingGo,
        let_go: LetGo,
        on_their_way: OnTheirWay,
        pace: Allowance,
        now_ms: int,
    ) -> None:
        self._campaign = campaign
        self._letting_go = letting_go
        self._let_go = let_go
        self._on_their_way = on_their_way
        self._pace = pace
        self._now_ms = now_ms
        self._part: Part | None = None
        self._left: Piece | None = None

    def size(self, now_s: float) -> int:
        """Recipients of the next piece; 0 while there is none, or the campaign's pace forbids it."""
        campaign = self._campaign
        if campaign.pace_per_s and self._pace.left(campaign.pace_per_s, now_s) <= 0:
            return 0
        if self._left is not None:
            return min(self._left.size, self.most)
        if self._part is None:
            self._part = next(iter(self._letting_go.holds.take_parts(campaign.key, self._now_ms, 1)), None)
        return min(self._part.recipients, self.most) if self._part is not None else 0

    async def take(self, now_s: float) -> int:
        """Lets the next piece go; how many recipients. Raises Transient."""
        request = self._campaign.request
        assert request is not None, "a campaign that lets something go"
        if self._left is None:
            assert self._part is not None, "asked for its size before"
            self._left = await self._letting_go.piece(request, self._part)
        if self._left.page is None or not self._left.mask:
            self._let_go.lost.append(self._left)
            self._part = self._left = None
            return 0
        piece = self._left.first(self.most)
        self._let_go.pieces.append(piece)
        mark = keys.redis_fanned(request.tenant, request.campaign_id, piece.part.page, piece.part.hop, min(piece.slots))
        self._on_their_way.add(self._campaign, mark, piece.size, now_s)
        self._pace.spend(piece.size)
        if piece.rest:
            self._left = replace(self._left, mask=piece.rest)
        else:
            self._part = self._left = None
        return piece.size


class HeldDeliveries:
    """Deliveries in hold that go into one lane. until_ms: what is due by then may go. most: of a piece."""

    most = 1

    def __init__(self, flow: HeldFlow, lane: Lane, holds: Holds, let_go: LetGo, until_ms: int) -> None:
        self.fills: Sequence[Lane] = (lane,)
        self.flow = Flow(flow.tenant, 1, (lane.name,))
        self._held = flow
        self._holds = holds
        self._lane = lane
        self._let_go = let_go
        self._until_ms = until_ms
        self._next: list[Waiting] = []

    def share(self, window: Window, share: float) -> None:
        self.most = window.piece([self._lane.rate_per_s], share)

    def size(self, _now_s: float) -> int:
        room = DELIVERIES_A_LOOK - len(self._let_go.deliveries)
        if not self._next and room > 0:
            self._next = self._holds.take(self._held, self._until_ms, min(self.most, room))
        return len(self._next)

    async def take(self, _size: int, _released: object, _now_s: float) -> int:
        taken, self._next = self._next, []
        self._let_go.deliveries += taken
        return len(taken)

    def go_without_turns(self, transactional: bool, now_ms: int) -> None:
        """Into a lane that nobody fills, as no provider is usable: what has expired, or is of a campaign that was
        stopped, to end there.

        And transactional ones, a few: there each may turn to its fallback.
        """
        few = transactional and self._lane.backlog < DELIVERIES_A_LOOK
        room = DELIVERIES_A_LOOK - len(self._let_go.deliveries)
        due = self._holds.take(self._held, self._until_ms, max(0, room))
        is_stopped = self._until_ms > now_ms
        self._let_go.deliveries += [thing for thing in due if few or is_stopped or thing.expires_ms <= now_ms]
