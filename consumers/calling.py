"""The call itself: render late, reach the provider, look at token, lease and time once more, send under a hard
deadline, judge the answer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import NamedTuple

from consumers import send_checks
from consumers.deadlines import Deadlines
from consumers.looking import Order
from consumers.providers.contract import Call, Way
from consumers.render import Renderer
from consumers.sending import Seat, Sending, WorkerOptions
from consumers.spend import Charge, Gone, Spend
from consumers.tally import Tally
from consumers.telling import Teller
from consumers.verdicts import Verdict
from schemas import keys, metrics, traces
from schemas.clock import Clock
from schemas.content import Content
from schemas.errors import Poison, StoreDown
from schemas.messages import CampaignOrder, Channel
from schemas.outcomes import Kind, Outcome
from schemas.quiet_hours import QuietHours

log = logging.getLogger(__name__)

_SUPPRESSED_BY_REPORTS = frozenset({Channel.EMAIL, Channel.SMS})
_NOT_BILLED = frozenset({Kind.NOT_PROCESSED, Kind.THROTTLE, Kind.AUTH_CONFIG})
"""Answers that say for sure that the provider took nothing in: what the call was charged comes back."""
_STILL_TRUE_S = 0.01
"""Whoever waited for longer than this after the look at time, order and breaker looks again."""
Judge = Callable[[Sending, Outcome, Seat], Verdict]
"""What follows from a provider's answer: `judging.OutcomeJudge.judge`."""
Gap = Callable[[str], Awaitable[None]]
"""As `schemas.gaps.Gap`, and may wait: tests let other things happen meanwhile."""


_outcomes = lru_cache(metrics.OUTCOMES.labels)


class _Answered(NamedTuple):
    """What the provider made of a call, and what its callbacks carry back."""

    outcome: Outcome
    reference: str


class Caller:
    """Makes one delivery's call and hands its verdict on to be settled."""

    def __init__(
        self,
        renderer: Renderer,
        ids: keys.Ids,
        order: Order,
        quiet: QuietHours,
        judge: Judge,
        spend: Spend | None,
        teller: Teller,
        clock: Clock,
        tally: Tally,
        options: WorkerOptions,
        gap: Gap | None = None,
    ) -> None:
        self._renderer = renderer
        self._ids = ids
        self._order = order
        self._quiet = quiet
        self._judge = judge
        self._spend = spend
        self._teller = teller
        self._clock = clock
        self._tally = tally
        self._options = options
        self._deadlines = Deadlines(options.deadline_s)
        self._lease_least_s = options.deadline_s + options.lease_margin_s
        self._gap = gap

    async def call(self, sending: Sending, seat: Seat) -> None:
        """From the claim to the verdict. Whatever happens, the delivery is settled, given back or left to its lease."""
        if self._gap is not None:
            await self._gap("after_claim")
        looked_s = self._clock.steady_s()
        content = self._ready(sending, seat)
        if content is None:
            return
        assert sending.token is not None
        charge = None if self._spend is None else await self._charge(self._spend, sending, seat, content)
        if isinstance(charge, Verdict | send_checks.Wait):
            seat.pocket.give_back(sending.token)
            self._teller.stop(sending, charge)
            return
        found = await self._ask(sending, seat, content, looked_s)
        if not isinstance(found, _Answered):
            if charge is not None:
                charge.purse.give_back(charge)
            self._teller.stop(sending, found)
            return
        outcome, reference = found
        if self._gap is not None:
            await self._gap("after_send")
        if charge is not None:
            (charge.purse.give_back if outcome.kind in _NOT_BILLED else charge.purse.called)(charge)
        outcome = _doubted(sending, seat, outcome)
        seat.breaker.note(outcome.kind, sending.is_probe)
        seat.throttle.note(outcome, sending.delivery.channel, sending.address)
        verdict = self._judge(sending, outcome, seat)
        needs_reference = outcome.kind is Kind.DONE and outcome.provider_id and not seat.provider.carries_reference
        self._teller.settle(sending, verdict, reference if needs_reference else "", outcome.retry_after_ms or 0)

    def _ready(self, sending: Sending, seat: Seat) -> Content | None:
        """What to send; None when no call may be made: then the token went back and the delivery is answered."""
        delivery = sending.delivery
        assert sending.token is not None
        try:
            content = self._renderer.render(delivery, sending.locale)
        except Poison as error:
            seat.pocket.give_back(sending.token)
            self._teller.failed(sending, error)
            return None
        late = self._late(sending, seat)
        if late is not None:
            seat.pocket.give_back(sending.token)
            self._teller.stop(sending, late)
            return None
        return content

    def _late(self, sending: Sending, seat: Seat) -> Verdict | send_checks.Wait | None:
        """What came up since the checks and keeps it from being called; None: nothing."""
        delivery = sending.delivery
        order = self._order(delivery.tenant, delivery.campaign_id) if delivery.campaign_id else CampaignOrder.RUNNING
        now_ms = self._clock.now_ms()
        late = send_checks.out_of_time(delivery, order, now_ms)
        has_opened = seat.breaker.is_open and not sending.is_probe
        if late is None and (has_opened or self._is_quiet(sending, now_ms)):
            late = send_checks.Wait(now_ms)  # looked at again at once, as when it is paused
        return late

    def _is_quiet(self, sending: Sending, now_ms: int) -> bool:
        """Whether the person's quiet hours began while it waited for its token."""
        nights = self._quiet.of(sending.delivery.tenant, sending.known_policy())
        return send_checks.quiet_until_ms(sending.delivery, sending.zone, nights, now_ms) > 0

    async def _charge(
        self, spend: Spend, sending: Sending, seat: Seat, content: Content
    ) -> Charge | Verdict | send_checks.Wait | None:
        """What the call was charged, None where it costs nothing; else why it is not made."""
        delivery, now_ms = sending.delivery, self._clock.now_ms()
        try:
            charge = await spend.charge(delivery.tenant, seat.provider.name, sending.address, content)
        except StoreDown as error:
            log.warning("spend.unanswered", extra={"error": str(error)})
            return send_checks.Wait(now_ms + self._options.store_pause_ms)
        if isinstance(charge, Gone):
            return send_checks.over_budget(delivery, sending.known_policy(), charge.until_ms, now_ms)
        return charge

    async def _ask(
        self, sending: Sending, seat: Seat, content: Content, looked_s: float
    ) -> _Answered | Verdict | send_checks.Wait:
        """What was answered; else why it was not called after all. looked_s: when it was looked at (steady)."""
        assert sending.token is not None
        call = self._call(sending, content)
        began_s = self._clock.steady_s()
        way = await self._reach(seat)
        if isinstance(way, Outcome):
            seat.pocket.spend(sending.token)  # nobody is knocked at more often than called
            outcome = way
        else:
            try:
                found = await self._in_the_way(sending, seat, looked_s)
                if found is not None:
                    return found
                if self._gap is not None:
                    await self._gap("before_send")
                outcome = await self._send(way, call, seat)
            finally:
                way.leave()
        self._tally.observe(seat.seconds, self._clock.steady_s() - began_s)
        self._tally.count(_outcomes(seat.provider.name, outcome.kind))
        return _Answered(outcome, call.reference)

    async def _reach(self, seat: Seat) -> Way | Outcome:
        """Before the token: what waited for a connection must not go out all at once when there is one again."""
        try:
            return await seat.provider.reach()
        except Exception:
            # A bug of the adapter; there was no request yet.
            log.exception("call.unreached", extra={"provider": seat.provider.name})
            return Outcome(Kind.NOT_PROCESSED, detail="the adapter failed")

    async def _in_the_way(self, sending: Sending, seat: Seat, looked_s: float) -> Verdict | send_checks.Wait | None:
        """Spends the token and looks for the last time; None: nothing is in the way of the call."""
        assert sending.token is not None
        has_token = seat.pocket.spend(sending.token) or await self._takes_again(seat)
        now_s = self._clock.steady_s()
        if not has_token or sending.lease_until_s - now_s < self._lease_least_s:
            return send_checks.Wait(self._clock.now_ms())
        return self._late(sending, seat) if now_s - looked_s > _STILL_TRUE_S else None

    async def _takes_again(self, seat: Seat) -> bool:
        """A token that died on the way is replaced: cheaper than another claim."""
        try:
            fresh = await seat.pocket.take(1, self._options.fresh_token_wait_s)
        except StoreDown as error:
            log.warning("call.without_token", extra={"error": str(error)})
            return False
        return bool(fresh) and seat.pocket.spend(fresh[0])

    async def _send(self, way: Way, call: Call, seat: Seat) -> Outcome:
        try:
            with self._deadlines.begin():
                return await way.send(call)
        except TimeoutError:
            return Outcome(Kind.UNKNOWN, detail=f"no answer within {self._options.deadline_s:g} s")
        except Exception:
            # A bug of the adapter: the request may have left.
            log.exception("call.failed", extra={"provider": seat.provider.name})
            return Outcome(Kind.UNKNOWN, detail="the adapter failed")

    def _call(self, sending: Sending, content: Content) -> Call:
        delivery = sending.delivery
        address = keys.Address(delivery.row, delivery.slot)
        channel = delivery.channel
        hashed = keys.address_hash(channel, sending.address) if channel in _SUPPRESSED_BY_REPORTS else ""
        reference = keys.Reference(
            delivery.tenant,
            address,
            delivery.index,
            delivery.generation,
            sending.held_claim().call,
            channel.value if hashed else "",
            hashed,
        )
        return Call(
            delivery.tenant,
            delivery.user_id,
            sending.bid.delivery_key,
            sending.named(self._ids),
            self._ids.reference(reference),
            channel,
            delivery.template,
            sending.address,
            content,
            delivery.expires_at_ms,
            traces.carried(sending.record.header(traces.HEADER)),
        )


def _doubted(sending: Sending, seat: Seat, outcome: Outcome) -> Outcome:
    """The outcome, unless so many push tokens are called dead that a setting of ours is wrong: then none is deleted."""
    is_dead_token = outcome.kind is Kind.DEAD_ADDRESS and sending.delivery.channel is Channel.PUSH
    if not is_dead_token or not seat.breaker.doubts_dead_tokens():
        return outcome
    metrics.DEAD_TOKENS_DOUBTED.labels(seat.provider.name).inc()
    return Outcome(Kind.AUTH_CONFIG, detail="many dead push tokens: is it the right app, key and environment?")
