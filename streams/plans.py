"""The plan that won: asked for in a pipelined round trip, kept for a day after its notification is due.

Two runs of the same notification (a crash, a rebalance, a replay, a second request of the same intent)
read the first one's plan, whatever the profile says by then.
"""

from __future__ import annotations

from schemas import keys
from schemas.trips import Trip

KEPT_S = 86_400
"""As long as claims: what is older is refused by its age. In Redis a plan takes about 250 bytes. Kept until campaigns
expire, it would know a user who stands twice in one whose pages go days apart, and cost 3 to 21 times as much.
"""


def ask(trip: Trip, tenant: str, user_id: str, intent: str, packed: bytes, due_in_ms: int = 0) -> None:
    """Offers this plan (`planning.pack`): it is kept unless there is one, for a day from when it is due."""
    key = keys.redis_plan(tenant, user_id, intent)
    trip.execute_command("SET", key, packed, "NX", "GET", "EX", KEPT_S + due_in_ms // 1000)


def ask_known(trip: Trip, tenant: str, user_id: str, intent: str) -> None:
    """Offers nothing: None when there is no plan."""
    trip.execute_command("GET", keys.redis_plan(tenant, user_id, intent))


def read(reply: bytes | None, packed: bytes) -> bytes:
    """The plan that holds: the earlier one, or what was offered."""
    return packed if reply is None else reply
