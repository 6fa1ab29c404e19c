"""What starts a fallback, and what does not: the wish of each delivery that ends or has to wait.

Pure. Whether the wish is granted depends on the siblings, and is decided in one place (`consumers/fallbacks.py`).
"""

from __future__ import annotations

from consumers.fallbacks import Question, Wish, may_wait_too_long
from consumers.sending import Sending
from consumers.verdicts import WAITS, Verdict
from schemas import keys
from schemas.messages import EventKind
from schemas.policies import OnUnknown
from schemas.reasons import Reason

_AWAY = frozenset(
    {
        Reason.PROVIDER_DOWN,
        Reason.PROVIDER_CONFIG,
        Reason.PROVIDER_THROTTLED,
        Reason.PROVIDER_ERROR,
        Reason.UNKNOWN_OUTCOME,
    }
)
"""Why a delivery waits while its provider is of no use to it."""
_WITHOUT_A_TRACE = WAITS | {EventKind.SENT, EventKind.EXPIRED, EventKind.CANCELLED}
"""Nothing follows these: who is too late here is too late elsewhere."""
_UNREACHED = frozenset({Reason.NO_ADDRESS, Reason.DEAD_DEVICE})
_OF_THE_CHANNEL = frozenset({Reason.TRIES_USED_UP, Reason.PROVIDER_UNAVAILABLE, Reason.FELL_BACK})


def at_the_end(sending: Sending, verdict: Verdict) -> Question | None:
    """What to ask once a delivery has ended this way; None: there is nothing to ask."""
    delivery = sending.delivery
    if not delivery.fallback or verdict.kind in _WITHOUT_A_TRACE or 0 < delivery.expires_at_ms <= verdict.at_ms:
        return None
    wish = _wish(sending, verdict)
    if wish in (Wish.NOTHING, Wish.NEVER) and not delivery.siblings:
        return None
    return Question(delivery, wish)


def while_away(sending: Sending, reason: str, known_ms: int) -> Question | None:
    """What to ask when its provider is away again; None: it waits for it, however long.

    known_ms: how much longer the provider says it will be away.
    """
    if reason not in _AWAY or not may_wait_too_long(sending.delivery) or is_in_doubt(sending):
        return None
    after_ms = sending.known_policy().fallback_after_ms - known_ms
    return Question(sending.delivery, Wish.CHANNEL, max(0, after_ms))


def given_up(sending: Sending) -> Question:
    """What to ask for a delivery whose channel a sibling gave up before it could start anything."""
    wish = Wish.NEVER if is_in_doubt(sending) else Wish.CHANNEL
    return Question(sending.delivery, wish)


def _wish(sending: Sending, verdict: Verdict) -> Wish:
    if is_in_doubt(sending):
        return Wish.NEVER
    if verdict.reason in _OF_THE_CHANNEL:
        return Wish.CHANNEL
    if verdict.reason in _UNREACHED or _is_passed_over(sending, verdict):
        return Wish.DELIVERY
    # What else there is forbids it: an outcome that stays unknown, a wish, a cap, a digest that it went into.
    is_technical = verdict.kind is EventKind.FAILED or verdict.reason == Reason.SUPPRESSED_ADDRESS
    return Wish.NOTHING if is_technical else Wish.NEVER


def _is_passed_over(sending: Sending, verdict: Verdict) -> bool:
    """An opt-out is a wish; of a channel that only came in as a fallback the list is tried further, as in a plan."""
    return verdict.reason == Reason.OPTED_OUT and sending.delivery.index >= keys.FIRST_FALLBACK_INDEX


def is_in_doubt(sending: Sending) -> bool:
    """Whether a call was made of which nobody heard, where a repeat is worse than a loss."""
    policy = sending.policy
    return bool(sending.lapsed) and (policy is None or policy.on_unknown is OnUnknown.RISK_LOSS)
