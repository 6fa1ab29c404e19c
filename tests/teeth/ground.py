"""What the ground and the waiting rooms promise, broken one by one: bytes, keys, states, waits, dead letters."""

from __future__ import annotations

from tests.teeth.patch import Patch

_LADDER = "tests/unit/retry_topics/test_ladder.py::"
_STATES = "tests/unit/schemas/test_states.py::"
_SLOTS = "tests/unit/schemas/test_slots.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="accepts bytes behind a record's end",
        promise=10,
        file="schemas/codec.py",
        old="        if end != len(raw):",
        new="        if end > len(raw):",
        test="tests/unit/schemas/test_codec.py::test_bytes_behind_the_record_are_refused",
        suffers="A record of a foreign schema under our id is read as something it never said.",
    ),
    Patch(
        name="tells suppressed addresses apart by their case",
        promise=3,
        file="schemas/keys.py",
        old="        address = address.lower()\n",
        new="        address = str(address)\n",
        test="tests/unit/schemas/test_references.py"
        "::test_the_same_mailbox_has_one_hash_however_it_is_written_and_another_on_another_channel",
        suffers="Who complained as Ann@example.org is written to as ann@example.org.",
    ),
    Patch(
        name="lets a report of delivery cover a bounce",
        promise=7,
        file="schemas/states.py",
        old="    received = delivery.delivered & ~delivery.bounced",
        new="    received = delivery.delivered",
        test=_STATES + "test_late_callbacks_do_not_turn_a_status_back",
        suffers="A dead mailbox is shown as delivered, and its sender pays for it again next week.",
    ),
    Patch(
        name="shows the call that was told of last instead of the newest",
        promise=7,
        file="schemas/states.py",
        old="        return one if one.call > other.call else other",
        new="        return other",
        test=_STATES + "test_what_is_shown",
        suffers="A word about the first call that comes late turns the status of the second one back.",
    ),
    Patch(
        name="counts whose mail was cancelled as somebody without an address, since there is no device",
        promise=6,
        file="schemas/slots.py",
        old="    return _LAST_RANK if state == _SUPPRESSED and reason in UNREACHED else _RANKS[state]",
        new="    return _RANKS[state]",
        test=_SLOTS + "test_who_one_channel_could_not_reach_counts_and_shows_by_what_became_of_the_next",
        suffers="A cancelled campaign says that nearly all of its people have no address; support asks them for one.",
    ),
    Patch(
        name="goes on from counts that were made by another ranking",
        promise=6,
        file="schemas/rows.py",
        old="    return (None if _has_ranked(raw, end) else found), end",
        new="    return found, end",
        test="tests/unit/schemas/test_rows.py"
        "::test_a_row_that_was_counted_by_the_first_ranking_is_counted_anew_before_it_is_moved",
        suffers="After an upgrade a campaign counts fewer than no recipients of a kind, and its row cannot be written.",
    ),
    Patch(
        name="counts a possible duplicate again whenever it is told again",
        promise=6,
        file="schemas/states.py",
        old="        one.doubled | other.doubled | repeated,",
        new="        one.doubled + other.doubled | repeated,",
        test=_STATES + "test_a_repeated_event_changes_nothing",
        suffers="A replay makes the number of possible duplicates grow although nothing was sent.",
    ),
    Patch(
        name="takes two acceptances of a call for one",
        promise=2,
        file="schemas/states.py",
        old="        return _accepted(one) if other.sent_at_ms and one.sent_at_ms != other.sent_at_ms else 0",
        new="        return 0",
        test=_STATES + "test_a_call_that_was_accepted_twice_is_a_possible_duplicate",
        suffers="Redis lost the claims, people got the message twice, and the campaign says that nobody did.",
    ),
    Patch(
        name="raises a marketing message into the transactional lane",
        promise=4,
        file="schemas/policies.py",
        old="        if self.message_class is MessageClass.TRANSACTIONAL and requested != Priority.BULK:",
        new="        if requested == Priority.TRANSACTIONAL or self.message_class is MessageClass.TRANSACTIONAL:",
        test="tests/unit/schemas/test_policies.py::test_a_request_may_lower_a_class_and_never_raise_it",
        suffers="A newsletter sent as urgent stands before the codes that people need to log in.",
    ),
    Patch(
        name="tries again as soon as it likes, whatever the provider asks for",
        promise=8,
        file="retry_topics/ladder.py",
        old="self.outcome.retry_after_ms or 0)\n\n    def _in_longer_tier",
        new="0)\n\n    def _in_longer_tier",
        test=_LADDER + "test_the_providers_own_wish_is_respected",
        suffers="A provider that asks for a minute's rest is called at once, and locks the account.",
    ),
    Patch(
        name="tries for ever",
        promise=3,
        file="retry_topics/ladder.py",
        old="        if tries >= self.options.tries_most:",
        new="        if tries < 0:",
        test="tests/unit/consumers/test_lane_worker.py"
        "::TestOutcomes::test_the_eighth_failure_is_the_last_and_lies_in_the_dlq",
        suffers="A message that can never arrive is paid for until it expires, and nobody is told.",
    ),
    Patch(
        name="tells a last call of which nobody knows as one that was certainly not taken",
        promise=2,
        file="retry_topics/ladder.py",
        old="        return replace(verdict, is_unknown=True)\n",
        new="        return replace(verdict, is_unknown=verdict.kind is not EventKind.FAILED)\n",
        test="tests/unit/consumers/test_guarding.py"
        "::TestLookalikes::test_one_like_a_message_whose_last_try_may_have_arrived_is_held",
        suffers="Support swears that the reminder failed; it came, and the next alike as well.",
    ),
    Patch(
        name="lets a retry outlive its message",
        promise=3,
        file="retry_topics/ladder.py",
        old="        if until_ms >= self.attempt.expires_at_ms:",
        new="        if until_ms < 0:",
        test=_LADDER + "test_a_delivery_that_would_come_back_too_late_expires_now",
        suffers="Its status says retrying for a message that will never be sent any more.",
    ),
    Patch(
        name="repeats an unknown outcome where a repeat is worse than a loss",
        promise=2,
        file="retry_topics/ladder.py",
        old="        if self.attempt.on_unknown is OnUnknown.RISK_LOSS:",
        new="        if self.attempt is None:",
        test=_LADDER + "test_an_unknown_outcome_stays_unconfirmed_where_a_repeat_is_worse_than_a_loss",
        suffers="A second payment link goes out because the first one's answer was slow.",
    ),
    Patch(
        name="forwards from a tier before the time has come",
        promise=8,
        file="retry_topics/forwarder.py",
        old="            if due_ms > now_ms:",
        new="            if due_ms > now_ms + 600_000:",
        test="tests/unit/retry_topics/test_forwarder.py"
        "::test_a_record_is_kept_until_its_time_and_not_a_millisecond_less",
        suffers="A sick provider gets all its failures back at once, again and again.",
    ),
    Patch(
        name="parks a record without the headers it came with",
        promise=10,
        file="retry_topics/dead_letters.py",
        old="    carried = dict(record.headers)",
        new="    carried = dict(record.headers[:0])",
        test="tests/unit/retry_topics/test_dead_letters.py"
        "::test_a_parked_record_keeps_its_bytes_and_says_why_and_from_where",
        suffers="The trace that would tell who sent the poison ends at the dead letter.",
    ),
    Patch(
        name="parks a delivery and leaves its status waiting",
        promise=6,
        file="retry_topics/dead_letters.py",
        old="        return self.parked(record, reason, text, (RowEvent(delivery.tenant, delivery.row, event),))",
        new="        return self.parked(record, reason, text, (RowEvent(delivery.tenant, delivery.row, event),)[:0])",
        test="tests/unit/retry_topics/test_dead_letters.py"
        "::test_a_parked_delivery_ends_as_failed_so_that_its_campaign_can_end",
        suffers="A campaign with one poison recipient never completes.",
    ),
)
