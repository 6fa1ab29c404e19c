"""Ways to wake people up, or to leave them without what they were to get in the morning."""

from __future__ import annotations

from tests.teeth.patch import Patch

_SENDERS = "tests/unit/consumers/test_quiet_hours.py::"
_WINDOWS = "tests/unit/schemas/test_quiet_hours.py::"
_PAGES = "tests/unit/streams/test_page_waits.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="plans a page for people who sleep",
        promise=3,
        file="streams/page_waits.py",
        old="    if not page.send_at_local and nights.window is None:",
        new="    if not page.send_at_local:",
        test=_PAGES + "test_who_sleeps_is_held_until_the_morning_and_the_row_says_so",
        suffers="A campaign at night fills the lanes with what cannot go, and by the addresses of the day before.",
    ),
    Patch(
        name="sends what lies in a lane when the night begins",
        promise=3,
        file="consumers/send_checks.py",
        old="nights.until_ms(zone, max(now_ms, delivery.released_at_ms)) if nights.window is not None else 0",
        new="0",
        test=_SENDERS + "test_who_sleeps_is_held_until_their_morning_and_the_row_says_so",
        suffers="An offer that was tried again after an outage wakes a city at three.",
    ),
    Patch(
        name="looks at the clock only before it waits for a token",
        promise=3,
        file="consumers/calling.py",
        old="        if late is None and (has_opened or self._is_quiet(sending, now_ms)):",
        new="        if late is None and has_opened:",
        test=_SENDERS + "test_a_night_that_begins_while_a_token_is_waited_for_is_noticed_before_the_call",
        suffers="The last of a large campaign get it after ten in the evening.",
    ),
    Patch(
        name="keeps login codes until the morning",
        promise=4,
        file="schemas/quiet_hours.py",
        old="        if policy.message_class is MessageClass.TRANSACTIONAL:",
        new="        if policy is None:",
        test=_WINDOWS + "test_a_template_wins_over_its_tenant_and_transactional_goes_at_any_hour",
        suffers="Nobody can log in at night.",
    ),
    Patch(
        name="lets everybody's telephone ring at eight sharp",
        promise=8,
        file="consumers/send_checks.py",
        old="hold.spread_ms(delivery.intent), until_ms",
        new="0, until_ms",
        test=_SENDERS + "test_a_morning_is_spread_over_half_an_hour_each_person_at_the_same_moment_on_every_channel",
        suffers="A million people open the shop in the same minute.",
    ),
    Patch(
        name="lets people go a moment before their message expires",
        promise=1,
        file="retry_topics/hold.py",
        old="    half_ms = (expires_ms - begins_ms) // 2",
        new="    half_ms = expires_ms - begins_ms",
        test="tests/unit/consumers/test_digests.py::TestAboveTheCap::test_nobody_is_let_go_just_before_they_expire",
        suffers="Who was let go two seconds before a message was worth nothing any more never got it.",
    ),
    Patch(
        name="sends all of a short day's messages in its first second",
        promise=3,
        file="schemas/quiet_hours.py",
        old="min(_room_ms(self.window), self.spread_ms)",
        new="self.spread_ms",
        test=_WINDOWS + "test_after_a_night_everybody_is_spread_over_half_an_hour_and_over_less_where_the_day_is_short",
        suffers="Where messages are wanted from eight to ten past eight only, all of them come in the first second.",
    ),
    Patch(
        name="knows no quiet hours but those of templates",
        promise=3,
        file="deploy/settings.py",
        old="        return QuietHours(windows, {",
        new="        return QuietHours({}, {",
        test="tests/unit/deploy/test_settings.py::"
        "test_the_quiet_hours_of_a_tenant_are_those_of_its_templates_that_say_nothing",
        suffers="A shop sets its quiet hours, believes in them, and writes to people at night.",
    ),
    Patch(
        name="holds for half an hour more what a clock that is ahead let go",
        promise=3,
        file="streams/page_waits.py",
        old="    judged_at_ms, delay_ms = max(now_ms, page.released_at_ms), _spread_ms(page)",
        new="    judged_at_ms, delay_ms = now_ms, _spread_ms(page)",
        test=_PAGES
        + "test_who_is_let_go_at_the_end_of_the_night_by_a_clock_that_is_ahead_does_not_wait_for_the_next_spread",
        suffers="Whoever waited for eight o'clock gets it at half past eight.",
    ),
)
