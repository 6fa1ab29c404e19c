"""Digests, broken on purpose: who waits, who goes along, and what keeps a message out of a second one."""

from __future__ import annotations

from tests.teeth.patch import Patch

_LEADER = "tests/unit/streams/test_digests.py::"
_GROUPS = "tests/unit/streams/test_digest_groups.py::"
_SENDER = "tests/unit/consumers/test_digests.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="makes a digest anew instead of the one that was marked",
        promise=2,
        file="streams/digest_marks.py",
        old="        return [[_mark(raw) for raw in reply] for reply in replies]",
        new="        return [[Mark(one.digest) for _ in reply] for one, reply in zip(windows, replies, strict=True)]",
        test=_LEADER + "test_a_leader_that_died_behind_the_digest_is_followed_by_one_that_makes_the_same",
        suffers="Whenever a leader dies at the wrong moment, its users get all of their news twice.",
    ),
    Patch(
        name="lets who came late into a digest that may be written already",
        promise=1,
        file="streams/digests.py",
        old="                case digest_marks.WAITS:\n                    pass",
        new="                case digest_marks.WAITS:\n                    judged.buried.append(one.thing)",
        test=_LEADER + "test_a_leader_that_died_behind_the_digest_is_followed_by_one_that_makes_the_same",
        suffers="A comment that came while a leader died is in no message, and nobody is told.",
    ),
    Patch(
        name="leaves out of a digest that is made again whose campaign was paused meanwhile",
        promise=1,
        file="streams/digests.py",
        old="                case digest_marks.WAITS if one.thing.hold_id in paused:",
        new="                case _ if one.thing.hold_id in paused:",
        test=_LEADER + "test_whose_campaign_is_paused_when_the_next_leader_makes_a_digest_that_has_it_goes_along",
        suffers="Paused for an hour, a campaign's news are told as part of a digest in which they are not.",
    ),
    Patch(
        name="makes a digest again without those of whom nobody knows whether they went",
        promise=1,
        file="streams/digests.py",
        old="[*lying.free, *lying.paused, *in_one]",
        new="[*lying.free, *lying.paused]",
        test=_LEADER + "test_whose_row_cannot_be_read_a_day_later_is_not_left_out_of_the_digest_that_has_it",
        suffers="While a status process recovers half of yesterday's news goes out, and the rest is said to be in it.",
    ),
    Patch(
        name="marks for a digest what is only looked at",
        promise=1,
        file="streams/digest_marks.lua",
        old="for at = 1, tonumber(ARGV[3]) do",
        new="for at = 1, #found do",
        test="tests/contract/test_digest_marks.py::test_who_is_only_looked_at_gets_no_mark_and_shows_the_one_it_has",
        suffers="What a paused campaign has to say is told as part of a digest that went out without it.",
    ),
    Patch(
        name="buries the messages of a digest before it is in the log",
        promise=1,
        file="streams/digests.py",
        old="        judged.digests = await self._written(judged.digests, now_ms)",
        new="""        await self._bury([one.thing for digest in judged.digests for one in digest.members])
        judged.digests = await self._written(judged.digests, now_ms)""",
        test=_LEADER + "test_a_leader_that_died_behind_the_digest_is_followed_by_one_that_makes_the_same",
        suffers="A leader that dies takes with it what its users should have been told in one message.",
    ),
    Patch(
        name="puts cancelled messages into the digest",
        promise=3,
        file="streams/digest_marks.py",
        old="        yield keys.redis_cancel(window.tenant, window.user_id, intent)",
        new='        yield keys.redis_cancel(window.tenant, window.user_id, "")',
        test=_LEADER + "test_who_cancelled_is_not_in_it",
        suffers="A comment that was taken back within the minute is read by everybody in the evening's digest.",
    ),
    Patch(
        name="takes whoever is there into a window that is over",
        promise=1,
        file="streams/digest_groups.py",
        old="[member for member in members if _of(member).held_at_ms <= ends_ms]",
        new="list(members)",
        test=_GROUPS + "test_everybody_goes_once_and_the_windows_are_the_same_in_whatever_order_the_log_tells",
        suffers="Who is in which digest depends on how far a leader has read: after a restart it is another one.",
    ),
    Patch(
        name="lets a digest wait for a digest",
        promise=1,
        file="consumers/digests.py",
        old="and not delivery.digest_of and",
        new="and",
        test=_SENDER + "TestSender::test_the_digest_itself_is_sent_whatever_cap_or_window_its_messages_met",
        suffers="Nothing is ever sent: every message waits for others, and all of them together for more.",
    ),
    Patch(
        name="says of a message in a digest that it was stopped",
        promise=3,
        file="consumers/cancellations.py",
        old="    if digest is not None and digest != keys.IN_NO_DIGEST:",
        new="    if digest is None and digest == keys.IN_NO_DIGEST:",
        test="tests/contract/test_claims.py::TestCancellations::"
        "test_what_is_in_a_digest_is_not_stopped_any_more_and_who_went_alone_is",
        suffers="The caller is told that it was cancelled, and the user reads it.",
    ),
    Patch(
        name="sends what is in a digest once more when the cap lets it through",
        promise=9,
        file="consumers/digests.py",
        old="    if reply is None or reply == keys.IN_NO_DIGEST:",
        new="    if reply is None or reply:",
        test=_SENDER + "TestSender::test_a_copy_of_what_went_out_in_a_digest_ends_in_it_when_the_cap_lets_it_through",
        suffers="A lane that is replayed in the morning sends again what the night's digest has told.",
    ),
    Patch(
        name="lets who would expire before its window ends go past hold",
        promise=9,
        file="consumers/send_checks.py",
        old="        return digests.gathered(delivery, policy, night.until_ms if night is not None else 0, now_ms)",
        new="""        waits = digests.gathered(delivery, policy, night.until_ms if night is not None else 0, now_ms)
        return waits if waits.until_ms > now_ms else found""",
        test=_SENDER + "TestSender::test_who_would_expire_meanwhile_passes_through_hold_all_the_same",
        suffers="A record that is written again a moment before its expiry goes out beside the digest that has it.",
    ),
)
