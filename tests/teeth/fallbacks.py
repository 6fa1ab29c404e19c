"""The turn to the next channel, broken on purpose: twice, too early, against a wish, or unseen by the counts."""

from __future__ import annotations

from tests.teeth.patch import Patch

_UNIT = "tests/unit/consumers/test_fallbacks.py::"
_ONCE = "tests/unit/consumers/test_fallback_once.py::"
_CONTRACT = "tests/contract/test_fallbacks.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="turns to the next channel with every dead device",
        promise=2,
        file="consumers/fallback_ask.lua",
        old="  if is_called or not (has_ended or holds(given_up, ARGV[4 + i])) then goes_on = true end",
        new="  if is_called and has_ended then goes_on = true end",
        test=_CONTRACT + "test_both_bodies_tell_the_same_story_of_every_history",
        suffers="Somebody with an old telephone and a new one gets every message by text as well.",
    ),
    Patch(
        name="turns to the next channel although a device was reached",
        promise=2,
        file="consumers/fallback_ask.lua",
        old="  if e and e.verdict == CLAIM_SENT then return {keeps('N'), 0} end",
        new="  if e and e.verdict == CLAIM_SENT then goes_on = false end",
        test=_CONTRACT + "test_where_one_of_many_was_sent_none_starts_it_whenever_it_was",
        suffers="A push that arrived is followed by a text message that costs money.",
    ),
    Patch(
        name="tells every end that another channel follows",
        promise=2,
        file="consumers/telling.py",
        old="following if starts else None",
        new="following",
        test=_ONCE + "test_nobody_reached_turns_to_the_next_channel_once_and_anybody_reached_never",
        suffers="Two devices that die in one second bring two emails into the lane.",
    ),
    Patch(
        name="calls a device whose place another channel has taken meanwhile",
        promise=2,
        file="consumers/bidding.py",
        old="        if sending.standing in STARTED:",
        new="        if sending.standing in STARTED and not sending.delivery.fallback:",
        test=_UNIT + "TestSeveralDevices::test_who_claimed_after_it_had_started_makes_no_call",
        suffers="The text message is on its way, and the push comes all the same.",
    ),
    Patch(
        name="takes an opt-out for a dead end",
        promise=3,
        file="consumers/wishes.py",
        old="frozenset({Reason.NO_ADDRESS, Reason.DEAD_DEVICE})",
        new="frozenset({Reason.NO_ADDRESS, Reason.DEAD_DEVICE, Reason.OPTED_OUT})",
        test=_UNIT + "TestWhatStartsNone::test_a_wish_of_the_person",
        suffers="Who wants no push about offers gets them by email.",
    ),
    Patch(
        name="turns to the next channel although a call may have arrived and must not be repeated",
        promise=2,
        file="consumers/wishes.py",
        old="    return Wish.NOTHING if is_technical else Wish.NEVER",
        new="    return Wish.NOTHING if is_technical else Wish.NOTHING",
        test=_UNIT + "TestSeveralDevices::test_a_call_in_doubt_forbids_it_where_a_loss_is_better_than_a_repeat",
        suffers="A voucher that must not come twice comes by push and by text message.",
    ),
    Patch(
        name="leaves the next channel out of the event that ends the first",
        promise=6,
        file="consumers/verdicts.py",
        old="        next=following,",
        new='        next="",',
        test=_ONCE + "test_nobody_reached_turns_to_the_next_channel_once_and_anybody_reached_never",
        suffers="A campaign is processed, with failures, while its emails are still being sent.",
    ),
    Patch(
        name="waits for a provider for as long as its breaker is open",
        promise=4,
        file="consumers/telling.py",
        old="min(wait.until_ms, now_ms + left_ms) if left_ms else wait.until_ms",
        new="wait.until_ms",
        test=_UNIT + "TestAProviderThatIsAway::test_a_login_code_waits_for_it_no_longer_than_that",
        suffers="A login code that could have come by text message comes after the push provider's bad hour.",
    ),
    Patch(
        name="lets two whose calls were cut off wait for each other",
        promise=2,
        file="consumers/telling.py",
        old="        if sending.lapsed and not wishes.is_in_doubt(sending):",
        new="        if not sending and not wishes.is_in_doubt(sending):",
        test=_UNIT
        + "TestSeveralDevices::test_two_that_were_cut_off_do_not_wait_for_each_other_once_the_channel_is_given_up",
        suffers="Whose phone and tablet were being called when a worker died waits for a text until it expires.",
    ),
)
