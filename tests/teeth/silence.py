"""What is promised of messages that nothing is heard of, broken one by one."""

from __future__ import annotations

from tests.teeth.patch import Patch

_RECONCILE = "tests/unit/streams/test_reconcile.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="lets a mark win against a late report",
        promise=7,
        file="schemas/states.py",
        old="    if call.report is not None:\n        return call.report.kind",
        new="    if call.report is not None and not call.unconfirmed:\n        return call.report.kind",
        test="tests/unit/schemas/test_states.py::test_what_is_shown",
        suffers="A vendor reports two hours late that a number is dead, and support still reads that nothing is known.",
    ),
    Patch(
        name="marks whoever was sent to an hour ago, heard of or not",
        promise=7,
        file="streams/reconcile.py",
        old="            same = delivery.state == quiet.state.state and",
        new="            same = True or",
        test=_RECONCILE + "test_whoever_was_heard_of_since_is_left_as_they_are",
        suffers="The status topic carries a second state for every message ever delivered, an hour after the first.",
    ),
    Patch(
        name="takes silence where nobody promised a word for a failure",
        promise=6,
        file="streams/reconcile.py",
        old="            return state.provider in reports",
        new="            return True",
        test=_RECONCILE + "test_nobody_is_marked_of_whom_no_word_was_promised",
        suffers="Every newsletter by SMTP ends as a million unconfirmed recipients, an hour after it went well.",
    ),
    Patch(
        name="asks as fast as it can",
        promise=8,
        file="consumers/inquiries.py",
        old="        return bool(tokens) and self._tokens.spend(tokens[0])",
        new="        return True",
        test="tests/unit/consumers/test_inquiries.py::test_without_a_place_in_its_pace_nothing_is_asked",
        suffers="Reports fail for an hour, and a million questions close the account that also sends.",
    ),
    Patch(
        name="counts a report again with every repetition",
        promise=6,
        file="streams/share_tally.py",
        old="        was = _call(before, name)",
        new="        was = None",
        test="tests/unit/streams/test_share_tally.py::test_a_report_within_ten_minutes_of_the_call_is_soon",
        suffers="A provider's share is always about one half, and the alarm never speaks.",
    ),
)
