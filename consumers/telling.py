"""Answers records: turns what was decided into settled claims, published records and status events.

Every way a delivery can leave the worker ends here: `looking`, `bidding` and `calling` decide, this tells.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from consumers import claims, verdicts, wishes
from consumers.claims import Answer, Bid, Entry, Settled, Taken
from consumers.fallbacks import Found, Question, Standing, may_wait_too_long
from consumers.send_checks import Wait
from consumers.sending import Sending, WorkerOptions
from consumers.settling import Settlement, Settling
from consumers.tally import Tally
from consumers.verdicts import Announcer, Numbers, Verdict
from consumers.without_redis import WithoutRedis
from schemas import keys, metrics, timeline
from schemas.clock import Clock
from schemas.errors import Poison
from schemas.messages import Channel, EventKind
from schemas.reasons import ParkReason, Reason
from schemas.records import Defer, Done

log = logging.getLogger(__name__)

SIBLING_PAUSE_MS = 1_000
"""Who could turn to another channel but for a sibling that is being called asks again so soon."""

_sent = lru_cache(metrics.SENT.labels)
_age = lru_cache(metrics.AGE_AT_SEND_SECONDS.labels)


class Teller:
    """Tells the engine, the claims and the log what became of each delivery."""

    def __init__(
        self,
        announcer: Announcer,
        settling: Settling,
        ids: keys.Ids,
        clock: Clock,
        tally: Tally,
        away: WithoutRedis,
        options: WorkerOptions,
    ) -> None:
        self._away = away
        self._announcer = announcer
        self._settling = settling
        self._ids = ids
        self._clock = clock
        self._tally = tally
        self._options = options

    def settle(self, sending: Sending, verdict: Verdict, reference: str = "", known_ms: int = 0) -> None:
        """The holder of the claim has a verdict: stored first, told afterwards (`settled`).

        known_ms: for how long the provider said it would take nothing. Where another one stands by, the verdict does
        not wait for that.
        """
        if sending.is_alone:
            self._settle_alone(sending, verdict)
            return
        known_ms = min(known_ms, max(0, verdict.until_ms - verdict.at_ms))
        question = wishes.while_away(sending, verdict.reason, known_ms) if verdict.kind in verdicts.WAITS else None
        if question is None:
            self._settle(sending, verdict, reference)
            return
        turned = verdict._replace(kind=EventKind.FAILED, reason=Reason.PROVIDER_UNAVAILABLE, until_ms=0, tier="")

        def waits(left_ms: int) -> None:
            sooner = self._not_later(verdict, verdict.at_ms + known_ms + left_ms) if left_ms else verdict
            self._settle(sending, sooner, reference)

        self._turn(sending, question, turned, waits)

    def settled(self, settlement: Settlement, result: Settled) -> None:
        """The verdict is stored, or came too late to be: what its call came to is published either way."""
        sending, verdict = settlement.sending, settlement.verdict
        entry = sending.held_claim()
        if result is not Settled.STORED:
            metrics.LATE_SETTLES.labels(sending.record.topic).inc()
            log.warning("settle.late", extra={"result": result.name.lower(), "verdict": verdict.kind.value})
        if result is Settled.MISSING and verdict.kind is EventKind.SENT:
            # Redis lost the claim, and with it what keeps a copy of the record from being sent.
            verdict = verdicts.with_doubt(verdict)
        if result is Settled.LATE and verdict.kind not in (EventKind.SENT, EventKind.UNCONFIRMED):
            # Whoever took the claim over decides how it goes on: a second chain of retries must not begin.
            sending.finish(Done())
        else:
            self._count(sending, verdict)
            self._publish(sending, verdict, entry.call, entry.token)

    def ended(self, settlement: Settlement, taken: Taken) -> None:
        """The claim keeps an end without a call; what is in its way is for the next look to say."""
        sending, verdict = settlement.sending, settlement.verdict
        self._away.over(sending)
        entry = taken.entry
        if entry is None or taken.answer not in (Answer.CLAIMED, Answer.TAKEOVER):
            self.defer([sending], 0)
            return
        sending.claim, sending.lapsed = entry, verdicts.lapsed(verdict, entry)
        self._count(sending, verdict)
        self._publish(sending, verdict, entry.call, entry.token)

    def stop(self, sending: Sending, found: Verdict | Wait) -> None:
        """The delivery goes no further now. A claim that is held is settled or given back first."""
        if sending.is_alone:
            self._away.let_go(sending)
        if isinstance(found, Verdict):
            if sending.claim is not None and found.kind in verdicts.WAITS:
                # No call was made: what comes out of the wait asks for the claim by the same number.
                self._settling.give_back(sending, sending.claim.token, partial(self._end, sending, found))
            elif sending.claim is not None:
                self.settle(sending, found)
            else:
                sending.is_ending = True
                self._settling.take_back(sending, partial(self._end_unclaimed, sending, found))
        elif sending.claim is not None:
            then = partial(sending.finish, Defer(found.until_ms))
            self._settling.give_back(sending, sending.claim.token, then)
        else:
            self._wait(sending, found)

    def give_way(self, sending: Sending) -> None:
        """Another channel has taken its place, or its own was given up by a sibling: it is not called any more."""
        now_ms = self._clock.now_ms()
        fell_back = Verdict(EventKind.SUPPRESSED, now_ms, Reason.FELL_BACK)
        unavailable = Verdict(EventKind.FAILED, now_ms, Reason.PROVIDER_UNAVAILABLE)
        if sending.standing is Standing.STARTED_HERE:  # and its end was not kept before somebody died
            self.stop(sending, unavailable)
            return
        if sending.standing is Standing.STARTED_ELSEWHERE:
            self.stop(sending, fell_back)
            return

        turned = unavailable if may_wait_too_long(sending.delivery) else fell_back
        if sending.lapsed and not wishes.is_in_doubt(sending):
            # Its own open call is what its siblings wait for: two that waited for each other would wait for ever.
            self.stop(sending, turned)
        else:
            self._turn(sending, wishes.given_up(sending), turned, lambda _: self.defer([sending], SIBLING_PAUSE_MS))

    def defer(self, waiting: Sequence[Sending], pause_ms: int) -> None:
        """All of them again after a pause."""
        answer = Defer(self._clock.now_ms() + pause_ms)
        for sending in waiting:
            sending.finish(answer)

    def duplicate(self, sending: Sending, entry: Entry) -> None:
        """The same intent was accepted under another address first; this one ends naming it."""
        delivery = sending.delivery
        other = claims.unpacked_address(entry.address, delivery.campaign_id)
        same_campaign = keys.is_campaign_row(delivery.row)
        reason = Reason.DUPLICATE_RECIPIENT if same_campaign else Reason.DUPLICATE_OF
        named = self._ids.notification_id(delivery.tenant, other)
        self._end(sending, Verdict(EventKind.SUPPRESSED, self._clock.now_ms(), reason, named))

    def ignore(self, sending: Sending) -> None:
        """A later record of the same delivery has taken over: this one has nothing to say."""
        sending.finish(Done())

    def repeat(self, sending: Sending, entry: Entry) -> None:
        """A copy of a record that was settled already: publish what was decided then, unless that was done."""
        if entry.published or not entry.detail:
            sending.finish(Done())
            return
        verdict = verdicts.unpack(entry.detail)
        sending.lapsed = verdicts.lapsed(verdict, entry)
        self._publish(sending, verdict, entry.call, entry.token)

    def failed(self, sending: Sending, error: Exception) -> None:
        """The delivery can never be sent: parked, and its status says why. A bug counts as internal_error."""
        now_ms = self._clock.now_ms()
        if isinstance(error, Poison):
            self.stop(sending, Verdict(EventKind.FAILED, now_ms, error.reason, error.text[:200], park=error.reason))
            return
        log.error("delivery.broken", exc_info=error)
        reason, text = ParkReason.INTERNAL_ERROR, type(error).__name__
        verdict = Verdict(EventKind.FAILED, now_ms, reason, text, park=reason)
        if sending.claim is not None:
            self.settle(sending, verdict)
        else:  # it may be the claim that is broken
            self._away.over(sending)
            self._end(sending, verdict)

    def unheard(self, sending: Sending) -> None:
        """A bug with its settlement: the record comes again."""
        self._away.over(sending)
        self.defer([sending], 0)

    def _settle_alone(self, sending: Sending, verdict: Verdict) -> None:
        """Of a call made without Redis: what goes on is told at once, its claim is written afterwards. An end waits for
        Redis, as what follows from it is decided there.
        """
        goes_on = verdict.kind in verdicts.WAITS or verdict.kind in (EventKind.SENT, EventKind.UNCONFIRMED)
        if not goes_on:
            self._away.ends(sending)
            sending.is_ending = True
            self._settle(sending, verdict)
            return
        doubted = verdicts.with_doubt(verdict)
        self._away.called(sending, doubted, self._timeline(sending, verdict))
        self._count(sending, verdict)
        self._announce(sending, doubted, sending.delivery.call, partial(self._told_alone, sending.bid), None)

    def _told_alone(self, bid: Bid) -> None:
        if token := self._away.told(bid):
            self._settling.published(bid, token)

    def _settle(self, sending: Sending, verdict: Verdict, reference: str = "") -> None:
        self._settling.add(Settlement(sending, verdict, self._timeline(sending, verdict), reference))

    def _turn(self, sending: Sending, question: Question, turned: Verdict, otherwise: Callable[[int], None]) -> None:
        """Asks whether another channel takes its place. turned: how it ends then. otherwise: what happens else, told
        in how many ms to ask again; 0: not sooner than it would.
        """

        def answered(found: Found) -> None:
            sending.is_ending = False
            if found.standing is Standing.STARTED_HERE:
                self.stop(sending, turned)
            elif found.standing is Standing.STARTED_ELSEWHERE:
                self.stop(sending, Verdict(EventKind.SUPPRESSED, turned.at_ms, Reason.FELL_BACK))
            else:
                otherwise(SIBLING_PAUSE_MS if found.standing is Standing.GIVEN_UP else found.left_ms)

        sending.is_ending = True
        self._settling.ask(question, sending, answered)

    def _not_later(self, verdict: Verdict, most_ms: int) -> Verdict:
        """The wait, over in time to turn to another channel."""
        if verdict.until_ms <= most_ms:
            return verdict
        tier = self._options.ladder.tier_for(most_ms - verdict.at_ms) if verdict.tier else ""
        return verdict._replace(until_ms=most_ms, tier=tier)

    def _wait(self, sending: Sending, wait: Wait) -> None:
        """Who may turn to another channel when its provider is away too long does not wait for longer than that."""
        question = wishes.while_away(sending, wait.reason, 0)
        if question is None:
            self._wait_until(sending, wait)
            return
        now_ms = self._clock.now_ms()

        def waits(left_ms: int) -> None:
            until_ms = min(wait.until_ms, now_ms + left_ms) if left_ms else wait.until_ms
            self._wait_until(sending, wait._replace(until_ms=until_ms))

        self._turn(sending, question, Verdict(EventKind.FAILED, now_ms, Reason.PROVIDER_UNAVAILABLE), waits)

    def _wait_until(self, sending: Sending, wait: Wait) -> None:
        """A short wait stays in the lane; a long one leaves it for a tier, without counting a try.

        Beyond the longest tier it is looked at again early: how long a provider is away is only guessed.
        """
        now_ms = self._clock.now_ms()
        if not wait.reason or wait.until_ms - now_ms <= self._options.leave_lane_ms:
            sending.finish(Defer(wait.until_ms))
            return
        ladder = self._options.ladder
        until_ms = min(wait.until_ms, now_ms + ladder.hold_above_ms)
        tier = ladder.tier_for(until_ms - now_ms)
        self._end(
            sending,
            Verdict(
                EventKind.RETRYING,
                now_ms,
                wait.reason,
                until_ms=until_ms,
                tier=tier,
                tries=sending.delivery.tries,
            ),
        )

    def _end_unclaimed(self, sending: Sending, found: Verdict) -> None:
        """What a later look might not come to is kept in the claim first."""
        if verdicts.could_change(found):
            self._settling.add(Settlement(sending, found._replace(lapsed_from=sending.lapsed.start), b""))
        else:
            self._end(sending, found)

    def _end(self, sending: Sending, verdict: Verdict) -> None:
        """Without a claim of its own there is nothing to settle."""
        self._count(sending, verdict)
        self._publish(sending, verdict, sending.delivery.call, b"")

    def _publish(self, sending: Sending, verdict: Verdict, call: int, token: bytes) -> None:
        """Tells the log. What follows an end on another channel is asked first: the row must hear of both at once."""
        following = self._announcer.following(sending.delivery) if token else None
        question = wishes.at_the_end(sending, verdict) if following is not None else None
        acked = partial(self._settling.published, sending.bid, token) if token else None
        if question is None:
            self._announce(sending, verdict, call, acked, None)
            return

        def answered(found: Found) -> None:
            starts = found.standing is Standing.STARTED_HERE
            self._announce(sending, verdict, call, acked, following if starts else None)

        sending.is_ending = True
        self._settling.ask(question, sending, answered)

    def _announce(
        self,
        sending: Sending,
        verdict: Verdict,
        call: int,
        acked: Callable[[], None] | None,
        following: Channel | None,
    ) -> None:
        """acked: called once the log has it."""
        if following is not None:
            metrics.FALLBACKS.labels(sending.delivery.channel, following, verdict.reason).inc()
        numbers = Numbers(call, sending.lapsed)
        publish, events = self._announcer.announce(sending.record, sending.delivery, verdict, numbers, following)
        comes_again = verdict.kind in verdicts.WAITS or bool(verdict.park)
        parked = verdict.park == ParkReason.INTERNAL_ERROR
        sending.finish(Done(publish, events, acked, parked, events_first=comes_again))

    def _timeline(self, sending: Sending, verdict: Verdict) -> bytes:
        """The line that support sees; a wait is not worth one."""
        if verdict.kind in verdicts.WAITS:
            return b""
        delivery = sending.delivery
        device = keys.device_hash(delivery.device) if delivery.device else ""
        name = sending.named(self._ids)
        line = timeline.Entry(
            verdict.at_ms, name, delivery.channel, device, delivery.template, verdict.kind, verdict.reason
        )
        return timeline.pack(line)

    def _count(self, sending: Sending, verdict: Verdict) -> None:
        delivery = sending.delivery
        match verdict.kind:
            case EventKind.SENT:
                seconds = (verdict.at_ms - delivery.accepted_at_ms) / 1000
                self._tally.count(_sent(delivery.channel, delivery.priority, verdict.provider))
                self._tally.observe(_age(delivery.channel, delivery.priority), max(0.0, seconds))
            case EventKind.RETRYING:
                metrics.RETRIES.labels(sending.record.topic, verdict.tier, verdict.reason).inc()
            case EventKind.HELD:
                metrics.PUT_INTO_HOLD.labels(sending.record.topic, verdict.reason).inc()
            case _:
                metrics.ENDED.labels(delivery.channel, verdict.kind, verdict.reason).inc()
        if verdict.is_unknown:
            cause = "store_lost" if verdict.kind is EventKind.SENT else "unknown_outcome"
            metrics.POSSIBLE_DUPLICATES.labels(delivery.channel, cause).inc()
