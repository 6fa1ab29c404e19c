"""What is asked and kept with a claim: places under caps, the mark that look-alikes find, and what follows.

All of it travels in the pipelines of the claim: asked for in round trip B (`bidding`), confirmed or taken back
when the claim is settled or given back (`settling`). A delivery without caps asks for no place.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from consumers import claims, digests, lookalikes
from consumers.caps import Cap, CapRules, Caps
from consumers.lookalikes import InTheWay, Lookalikes, Mark, Mentions
from consumers.send_checks import Wait
from consumers.sending import Sending
from consumers.verdicts import Verdict
from schemas import keys, metrics
from schemas.clock import Clock
from schemas.messages import EventKind
from schemas.reasons import Reason
from schemas.trips import Trip

log = logging.getLogger(__name__)

PAUSE_MS = 250
"""Who waits for a place looks again so often: calls mostly take less than that, and at most their deadline."""
ALARM_EVERY_MS = 60_000
"""A template is named in the log so often at most: a campaign sent twice looks alike a million times."""


class Guards:
    """Of all deliveries of one worker."""

    def __init__(
        self, caps: Caps, marks: Lookalikes, rules: CapRules, mentions: Mentions, ids: keys.Ids, clock: Clock
    ) -> None:
        self._caps = caps
        self._marks = marks
        self._rules = rules
        self._mentions = mentions
        self._ids = ids
        self._clock = clock
        self._alarmed_ms: dict[str, int] = {}

    def ask(self, trip: Trip, sending: Sending, token: bytes) -> int:
        """Asks for what a call under the claim of this token needs; gives how many commands that took."""
        delivery, policy, bid = sending.delivery, sending.known_policy(), sending.bid
        sending.mark = lookalikes.mark_of(delivery, policy, bid.address, self._mentions)
        sending.place = self._rules.place(delivery, policy, sending.zone, self._clock.now_ms())
        if sending.mark is not None:
            self._marks.ask_mark(trip, sending.mark)
        if sending.place is not None:
            self._caps.ask_reserve(trip, bid.claim_key, token, sending.place)
        if asks_digest := digests.may_be_in_one(delivery, policy):
            digests.ask_digest(trip, delivery)
        return (sending.mark is not None) + (sending.place is not None) + asks_digest

    def found(self, sending: Sending, replies: Sequence[Any]) -> Verdict | Wait | None:
        """What these replies to `ask` put in the way of the claim's holder. Raises what a command failed with."""
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        if digests.may_be_in_one(sending.delivery, sending.known_policy()):
            *replies, digest = replies
            if (ends := digests.in_digest(digest, self._clock.now_ms())) is not None:
                return ends
        if sending.mark is not None:
            sending.mark_is_older = replies[0] is not None
            other = self._marks.read_mark(replies[0], sending.mark)
            if other is not None:
                sending.mark = None  # it is the other's
                return self._held(sending, other)
        if sending.place is None:
            return None
        reserved = self._caps.read_reserve(replies[-1], sending.place)
        if reserved.full is not None:
            return self._over_cap(sending, reserved.full)
        if not reserved.wait_ms:
            return None
        metrics.CAP_WAITS.labels(sending.record.topic).inc()
        return Wait(self._clock.now_ms() + min(reserved.wait_ms, PAUSE_MS))

    def ask_settled(self, trip: Trip, sending: Sending, token: bytes, verdict: Verdict) -> None:
        """Keeps what a sent delivery, or one that may be, has taken; returns the rest."""
        is_sent = verdict.is_unknown or verdict.kind in (EventKind.SENT, EventKind.UNCONFIRMED)
        if sending.place is not None:
            self._caps.ask_settle(trip, sending.bid.claim_key, token, sending.place, is_sent)
        if is_sent and digests.may_be_in_one(sending.delivery, sending.known_policy()):
            digests.ask_went_alone(trip, sending.delivery)
        mark = sending.mark
        if is_sent and mark is not None and sending.mark_is_older:
            self._marks.ask_sent(trip, mark)
        # In hold it may be dropped, and no sender sees that: its mark would be over before its next try in any case.
        goes_on = verdict.called and verdict.kind is EventKind.RETRYING
        if not is_sent and not goes_on:
            self._withdraw(trip, sending, token)

    def ask_given_back(self, trip: Trip, sending: Sending, token: bytes) -> None:
        """No call is made under this claim. Before the claim itself is given back: then it could be another's."""
        if sending.place is not None:
            self._caps.ask_settle(trip, sending.bid.claim_key, token, sending.place, is_sent=False)
        self._withdraw(trip, sending, token)

    def left(self, sending: Sending) -> Mark | None:
        """The mark that its calls so far have left, all of them certainly not taken; None: nothing is to take back."""
        if sending.delivery.call == 1 or sending.seen is None or sending.policy is None or _may_have_gone(sending):
            return None
        return lookalikes.mark_of(sending.delivery, sending.policy, sending.bid.address, self._mentions)

    def ask_left(self, trip: Trip, sending: Sending, mark: Mark) -> None:
        """Takes back what was left, if nobody has claimed it since the look."""
        assert sending.seen is not None, "a claim left the mark"
        self._marks.ask_withdraw(trip, sending.bid.claim_key, sending.seen.token, mark)

    def _withdraw(self, trip: Trip, sending: Sending, token: bytes) -> None:
        if sending.mark is not None and not _may_have_gone(sending):
            self._marks.ask_withdraw(trip, sending.bid.claim_key, token, sending.mark)

    def _held(self, sending: Sending, other: InTheWay) -> Verdict:
        delivery, now_ms = sending.delivery, self._clock.now_ms()
        address = claims.unpacked_address(other.place, other.campaign_id)
        named = self._ids.notification_id(delivery.tenant, address)
        metrics.LOOKALIKES.labels(delivery.template).inc()
        if now_ms - self._alarmed_ms.get(delivery.template, -ALARM_EVERY_MS) >= ALARM_EVERY_MS:
            self._alarmed_ms[delivery.template] = now_ms
            known = {"template": delivery.template, "notification": sending.named(self._ids), "like": named}
            log.warning("lookalike.held", extra=known)
        return Verdict(EventKind.HELD, now_ms, Reason.LOOKALIKE, f"like {named}", tries=delivery.tries)

    def _over_cap(self, sending: Sending, full: Cap) -> Verdict:
        """What becomes of a delivery whose cap is used up by what was sent."""
        delivery, now_ms = sending.delivery, self._clock.now_ms()
        kind = full.kind.removeprefix("/") if full.kind.startswith("/") else f"{full.kind} messages"
        day_ends_ms = self._rules.day_ends_ms(delivery.tenant, sending.zone, now_ms)
        return digests.over_cap(delivery, sending.known_policy(), day_ends_ms, f"{full.most} a day of {kind}", now_ms)


def _may_have_gone(sending: Sending) -> bool:
    """Whether an earlier call, another device or an earlier channel may have brought the message all the same, or what
    was sent before a redrive.
    """
    delivery = sending.delivery
    return bool(sending.lapsed or delivery.doubted_at_ms or delivery.siblings or delivery.generation)
