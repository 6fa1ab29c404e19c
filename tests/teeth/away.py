"""Ways to send while Redis is away that a customer would notice first: twice, to whom it must not be, too fast."""

from __future__ import annotations

from tests.teeth.patch import Patch

_SENDERS = "tests/unit/consumers/test_without_redis.py::"
_RATE = "tests/unit/consumers/test_local_rate.py::"
_ROUTE = "tests/integration/streams/test_route_without_redis.py::"
_STORY = "tests/unit/producers/explaining/test_story.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="goes on before the claims of calls made without Redis are written",
        promise=2,
        file="consumers/lane_worker.py",
        old="                batch = self._unknown(batch)\n                await self._away.catch_up()\n",
        new="                pass\n",
        test=_SENDERS + "test_a_copy_of_the_record_is_not_sent_while_no_claim_can_say_so",
        suffers="After an outage every login code of its last minute comes a second time.",
    ),
    Patch(
        name="does not look at what was called while an answer of Redis was waited for",
        promise=2,
        file="consumers/lane_worker.py",
        old="        waiting = self._unknown(waiting)\n",
        new="",
        test=_SENDERS + "TestAnAnswerThatNeverComes::test_what_was_called_meanwhile_is_not_called_again",
        suffers="Redis goes silent, and one sender sends the same code twice within a second.",
    ),
    Patch(
        name="takes one lost answer for the end of Redis",
        promise=2,
        file="consumers/without_redis.py",
        old="            self._away_since_s = max(asked_s, self._heard_s)\n",
        new="            self._away_since_s = asked_s\n",
        test=_SENDERS + "TestAnAnswerThatNeverComes::test_redis_that_answers_others_is_not_away",
        suffers="One connection is dropped by a firewall, and what went over it is sent beside all claims.",
    ),
    Patch(
        name="forgets a call made without Redis while its end waits for it",
        promise=2,
        file="consumers/telling.py",
        old="            self._away.ends(sending)\n",
        new="            self._away.let_go(sending)\n",
        test=_SENDERS + "test_what_failed_for_good_is_not_called_again_while_its_end_waits_for_redis",
        suffers="A provider that refused a code is asked again by every copy of it.",
    ),
    Patch(
        name="marks a call made without Redis as told before the log has what it came to",
        promise=1,
        file="consumers/without_redis.py",
        old="            if note.is_told:\n",
        new="            if note:\n",
        test=_SENDERS + "TestTheLogIsAwayToo::test_a_worker_that_dies_then_leaves_it_to_the_next_to_say_so",
        suffers="Redis and Kafka fail together: a code that the provider refused for the moment is never tried again.",
    ),
    Patch(
        name="takes no count of calls made without Redis",
        promise=2,
        file="consumers/telling.py",
        old="        doubted = verdicts.with_doubt(verdict)\n",
        new="        doubted = verdict\n",
        test=_SENDERS + "test_a_code_arrives_at_the_address_in_its_record_and_counts_as_a_possible_duplicate",
        suffers="Who got a code twice is told by support that it went out once.",
    ),
    Patch(
        name="sends everything while Redis is away",
        promise=3,
        file="consumers/without_redis.py",
        old="    return is_urgent and opted_in and not",
        new="    return is_urgent and not",
        test=_SENDERS + "test_a_template_that_did_not_opt_in_waits",
        suffers="People who opted out get whatever lies in a lane when Redis fails.",
    ),
    Patch(
        name="goes by addresses of last week while Redis is away",
        promise=3,
        file="streams/snapshots.py",
        old="now_ms - known.at_ms < self._options.fresh_ms",
        new="now_ms >= known.at_ms",
        test=_ROUTE + "test_what_was_known_five_minutes_ago_is_not_gone_by",
        suffers="Codes go to the number that somebody gave back in the meantime.",
    ),
    Patch(
        name="forgets an opt-out that was read a moment before Redis went away",
        promise=3,
        file="streams/snapshots.py",
        old="        known = self._people.get((event.tenant, event.user_id))\n",
        new="        known = None\n",
        test=_ROUTE + "test_who_opted_out_when_last_read_is_not_reached_though_the_request_brings_an_address",
        suffers="Who opted out of codes by SMS gets them whenever Redis is away.",
    ),
    Patch(
        name="calls with tokens of its own that are seconds old",
        promise=8,
        file="consumers/local_rate.py",
        old="        return self._clock.steady_s() < token.expires_s\n",
        new="        return True\n",
        test="tests/unit/consumers/test_after_a_stall.py::"
        "test_nor_do_those_that_a_worker_makes_by_itself_while_redis_is_away_too",
        suffers="Redis and the provider's network are back together, and every worker calls 256 times at once.",
    ),
    Patch(
        name="keeps for ever in mind what ended without a claim",
        promise=1,
        file="consumers/telling.py",
        old="            self._away.over(sending)\n            self._end(sending, verdict)\n",
        new="            self._end(sending, verdict)\n",
        test=_SENDERS + "test_where_the_claim_of_an_end_cannot_be_had_what_comes_of_it_later_is_not_kept_back_for_ever",
        suffers="A code that a person sends again in the next outage waits until it expires.",
    ),
    Patch(
        name="lets each worker use the whole slice while Redis is away",
        promise=8,
        file="consumers/local_rate.py",
        old="        return self._rate.per_s * self._share()\n",
        new="        return self._rate.per_s\n",
        test=_RATE + "test_a_worker_without_a_part_of_the_lane_sends_nothing",
        suffers="Eight workers send eight times the slice, and the provider blocks the account.",
    ),
    Patch(
        name="shows support what a provider wrote, addresses and all",
        promise=3,
        file="producers/explaining/happened.py",
        old='else _ADDRESSES.sub(_hidden, detail).strip().rstrip(".")',
        new='else detail.strip().rstrip(".")',
        test=_STORY + "test_what_a_provider_says_is_shown_without_addresses_and_tokens",
        suffers="Telephone numbers of customers stand in tickets and chats.",
    ),
)
