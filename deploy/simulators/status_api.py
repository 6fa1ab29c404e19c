"""The gateway's status API: GET <service>/status?id=ID says what became of a message, also of those it is silent about.

`{"type": "delivered" | "undelivered" | "bounced" | "pending" | "unknown", "reference", "at"}`, as its callbacks would
have said, or will say.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from deploy.simulators.callbacks import final_type, time_text
from deploy.simulators.faults import Board, Faults, chance
from deploy.simulators.ledger import Ledger, short_hash

KEPT = 200_000
SUFFIX = "/status"


@dataclass(frozen=True, slots=True)
class _Message:
    service: str
    faults: Faults
    key: int
    call: int
    reference: str
    at_s: float


class StatusApi:
    """Remembers the newest messages, and answers for them."""

    def __init__(self, ledger: Ledger, board: Board) -> None:
        self._ledger = ledger
        self._board = board
        self._known: dict[str, _Message] = {}
        self._order: deque[str] = deque()
        self._asked = 0

    def remember(self, message_id: str, service: str, faults: Faults, key: int, call: int, reference: str) -> None:
        """An accepted message: its end is drawn already."""
        self._known[message_id] = _Message(service, faults, key, call, reference, time.time())
        self._order.append(message_id)
        if len(self._order) > KEPT:
            del self._known[self._order.popleft()]

    def answer(self, service: str, message_id: str) -> tuple[int, dict[str, str]]:
        """(HTTP status, body)."""
        self._asked += 1
        status, body = self._answer(service, message_id)
        self._ledger.asked[body.get("type", str(status))] += 1
        return status, body

    def _answer(self, service: str, message_id: str) -> tuple[int, dict[str, str]]:
        faults, message = self._board.get(service), self._known.get(message_id)
        drawn = chance(faults.seed, short_hash(message_id), self._asked, 6)
        if drawn < faults.asked_errors:
            return 503, {"error": "simulated"}
        if message is None or message.service != service or drawn < faults.asked_errors + faults.asked_unknown:
            return 200, {"type": "unknown"}
        known_s = message.at_s + message.faults.callback_ms / 1000
        if time.time() < known_s:
            return 200, {"type": "pending"}
        kind = final_type(message.faults, message.key, message.call)
        return 200, {"type": kind, "reference": message.reference, "at": time_text(round(known_s * 1000))}
