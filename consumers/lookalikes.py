"""Look-alikes: a second message of the same template to the same user within ten minutes, by another intent.

Mostly somebody's mistake (a job run twice under new keys), so it is held and a person decides. Whoever claims a
delivery leaves a mark; another intent that finds the mark is in the wrong. A mark under which certainly nothing was
sent is taken back when the delivery ends or goes into hold. `content_check` of the template says what makes two
messages alike, or that nothing does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import orjson

from schemas import keys
from schemas.messages import Delivery
from schemas.policies import ContentCheck, TemplatePolicy
from schemas.trips import Trip, script_beside

WITHDRAW = script_beside(__file__, "lookalike_withdraw.lua")

Mentions = Callable[[str], frozenset[str] | None]
"""The names of the values that a template may show, None for all: `render.Renderer.mentions`."""
WITHIN_MS = 600_000
_INTENT_BYTES = 8


class Mark(NamedTuple):
    """is_forced: whatever mark is there, it is not in the way."""

    key: bytes
    value: bytes
    is_forced: bool


class InTheWay(NamedTuple):
    """The other message. place: its address as `claims.packed_address` packs it; campaign_id "": a single."""

    place: bytes
    campaign_id: str


class Lookalikes(Protocol):
    """The port. Each ask_* adds exactly one command to a trip."""

    def ask_mark(self, trip: Trip, mark: Mark) -> None: ...

    def read_mark(self, reply: Any, mark: Mark) -> InTheWay | None:
        """What is in the way; None: nothing is."""
        ...

    def ask_sent(self, trip: Trip, mark: Mark) -> None:
        """It was sent, or may be: whatever mark is there, this one holds from now on."""
        ...

    def ask_withdraw(self, trip: Trip, claim_key: bytes, token: bytes, mark: Mark) -> None:
        """Takes it back, if the claim is still the one with this token."""
        ...


def mark_of(delivery: Delivery, policy: TemplatePolicy, place: bytes, mentions: Mentions) -> Mark | None:
    """The mark that this delivery leaves; None where nothing looks alike: a digest is the cure for many of a kind.

    place: its packed address.

    All deliveries of a notification leave the same one. Digests leave none: they look alike by nature.
    """
    if policy.content_check is ContentCheck.OFF or delivery.digest_of:
        return None
    content = policy.name
    if policy.content_check is ContentCheck.PARAMS:
        content += "\n" + _values(delivery, mentions(policy.name))
    key = keys.redis_lookalike(delivery.tenant, delivery.user_id, content)
    value = _intent(delivery.intent) + bytes([len(place)]) + place + delivery.campaign_id.encode()
    return Mark(key, value, delivery.force)


class RedisLookalikes:
    """The marks in Redis; each ends by itself."""

    def ask_mark(self, trip: Trip, mark: Mark) -> None:
        trip.execute_command("SET", mark.key, mark.value, "NX", "GET", "PX", WITHIN_MS)

    def read_mark(self, reply: Any, mark: Mark) -> InTheWay | None:
        return in_the_way(reply, mark)

    def ask_sent(self, trip: Trip, mark: Mark) -> None:
        trip.execute_command("SET", mark.key, mark.value, "PX", WITHIN_MS)

    def ask_withdraw(self, trip: Trip, claim_key: bytes, token: bytes, mark: Mark) -> None:
        trip.run(WITHDRAW, (claim_key, mark.key), token, mark.value)


def in_the_way(there: bytes | None, mark: Mark) -> InTheWay | None:
    """What a mark that is there says to this one."""
    if there is None or mark.is_forced or there[:_INTENT_BYTES] == mark.value[:_INTENT_BYTES]:
        return None
    begins = _INTENT_BYTES + 1
    ends = begins + there[_INTENT_BYTES]
    return InTheWay(there[begins:ends], there[ends:].decode())


def _values(delivery: Delivery, shown: frozenset[str] | None) -> str:
    """What the template gets to show, however it was written. What cannot be read is parked when it is rendered."""
    try:
        values = {**orjson.loads(delivery.campaign_params or "{}"), **orjson.loads(delivery.params or "{}")}
    except (ValueError, TypeError):
        return delivery.params
    if shown is not None:
        values = {name: value for name, value in values.items() if name in shown}
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS).decode()


@lru_cache(64)
def _intent(intent: str) -> bytes:
    """The same for all devices of a notification."""
    return hashlib.blake2b(intent.encode(), digest_size=_INTENT_BYTES).digest()
