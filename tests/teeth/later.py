"""Ways to break what is wanted later, waits long, or was cancelled meanwhile."""

from __future__ import annotations

from tests.teeth.patch import Patch

_HOLDING = "tests/unit/consumers/test_holding.py::"
_SCHEDULES = "tests/integration/streams/test_route_schedules.py::"
_EVENTS = "tests/unit/producers/test_check_event.py::"

PATCHES = (
    Patch(
        name="ends what expired without asking whether it had gone out",
        promise=7,
        file="streams/single_plans.py",
        old="            if held is None and one.single.has_expired(now_ms):",
        new="            if one.single.has_expired(now_ms):",
        test="tests/integration/streams/test_route.py::"
        "test_what_expires_after_it_went_out_and_before_its_row_was_told_keeps_its_plan",
        suffers="A message that was sent just before a worker died is told as expired for ever.",
    ),
    Patch(
        name="sends a scheduled message at once",
        promise=3,
        file="streams/route.py",
        old="        if planned.start.due_ms <= now_ms:",
        new="        if planned.start.due_ms:",
        test=_SCHEDULES + "TestAnInstant::test_each_delivery_waits_in_hold_for_the_start_and_the_row_says_so",
        suffers="The invitation of next week is in everybody's hands today.",
    ),
    Patch(
        name="forgets a schedule's plan after a day",
        promise=9,
        file="streams/plans.py",
        old='"EX", KEPT_S + due_in_ms // 1000)',
        new='"EX", KEPT_S)',
        test=_SCHEDULES + "TestAnInstant::test_a_second_copy_is_told_whose_repeat_it_is_until_a_day_after_the_start",
        suffers="A reminder set two days ahead and repeated by its sender on the next day comes twice.",
    ),
    Patch(
        name="routes what was cancelled before",
        promise=3,
        file="streams/route.py",
        old="        if planned.is_cancelled:",
        new="        if planned is None:",
        test=_SCHEDULES + "test_what_was_cancelled_before_it_was_routed_goes_nowhere",
        suffers="A cancelled message is shown as waiting for its start.",
    ),
    Patch(
        name="trusts claims that are gone",
        promise=9,
        file="streams/route.py",
        old="> CLAIMED_FOR_MS",
        new="> 10**15",
        test=_SCHEDULES + "TestReadAgainAfterADay::test_what_was_called_or_has_ended_does_not_go_out_again",
        suffers="An entry topic read again after two days reaches everybody a second time.",
    ),
    Patch(
        name="reckons everybody's morning in the tenant's zone",
        promise=3,
        file="streams/starts.py",
        old="    zone, is_wanted = local_times.known_zone(wanted, tenant_zone)",
        new='    zone, is_wanted = local_times.known_zone("", tenant_zone)',
        test=_SCHEDULES + "TestALocalTime::test_it_comes_by_the_zone_of_the_request_or_of_the_profile_or_of_the_tenant",
        suffers="Good morning, says the telephone at three at night.",
    ),
    Patch(
        name="takes a start that is long over for now",
        promise=10,
        file="producers/requests.py",
        old="    if 0 < message.send_at_ms < now_ms - JUST_NOW_MS:",
        new="    if 0 < message.send_at_ms < 0:",
        test=_EVENTS + "test_a_start_in_the_past_is_refused_at_the_door_unless_clocks_or_repeats_explain_it",
        suffers="Somebody types last year by mistake, and a million people get the invitation now.",
    ),
    Patch(
        name="lets a paused campaign fill the lane",
        promise=5,
        file="consumers/send_checks.py",
        old="        return Verdict(EventKind.HELD, now_ms, Reason.CAMPAIGN_PAUSED, tries=delivery.tries)",
        new="        return late",
        test=_HOLDING + "TestPausedCampaign::test_its_deliveries_leave_the_lane_until_it_is_resumed",
        suffers="While one campaign is paused, the next one stands behind it.",
    ),
    Patch(
        name="lets what is too old grow young in hold",
        promise=9,
        file="consumers/send_checks.py",
        old="    if isinstance(late, Verdict):\n        return late\n    if seen.cancelled:",
        new="    if late is not None and order is CampaignOrder.PAUSED:\n"
        "        return Verdict(EventKind.HELD, now_ms, Reason.CAMPAIGN_PAUSED, tries=delivery.tries)\n"
        "    if isinstance(late, Verdict):\n        return late\n    if seen.cancelled:",
        test=_HOLDING + "TestPausedCampaign::test_a_replayed_lane_does_not_grow_young_in_hold",
        suffers="A lane replayed while its campaign is paused is sent to everybody again on the resume.",
    ),
    Patch(
        name="uses the number of a lapsed call again",
        promise=2,
        file="consumers/verdicts.py",
        old="    return numbers.lapsed.stop if verdict.kind is EventKind.HELD and numbers.lapsed else delivery.call",
        new="    return delivery.call",
        test=_HOLDING + "TestPausedCampaign::test_a_call_nobody_heard_of_is_counted_and_its_number_is_not_used_again",
        suffers="A repeat after a crash and a long pause is not counted as one.",
    ),
    Patch(
        name="lets what went yesterday out of hold again",
        promise=9,
        file="streams/went_before.py",
        old="> CLAIMED_FOR_MS",
        new="> 10**15",
        test="tests/unit/streams/test_went_before.py::test_what_was_called_or_has_ended_is_only_buried",
        suffers="After a day without a leader people get their reminders of yesterday a second time.",
    ),
    Patch(
        name="cuts a long wait to the longest tier",
        promise=8,
        file="retry_topics/ladder.py",
        old="        if wait_ms > self.options.hold_above_ms:",
        new="        if wait_ms > 2**53:",
        test=_HOLDING + "TestLongWaits::test_an_hour_is_waited_for_in_hold_and_counts_a_try",
        suffers="A provider that wants to be left alone for an hour is called after ten minutes.",
    ),
)
