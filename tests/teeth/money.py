"""Ways to spend more than a budget, or to leave unsent what it would have paid for."""

from __future__ import annotations

from tests.teeth.patch import Patch

_TILL = "tests/unit/consumers/test_spend.py::"
_SENDERS = "tests/unit/consumers/test_paid_calls.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="hands out blocks of money that is not there",
        promise=8,
        file="consumers/spend_draw.lua",
        old="if wanted > 0 and left >= least then",
        new="if wanted > 0 then",
        test="tests/integration/test_spend.py"
        "::test_64_workers_never_spend_more_than_the_budget_and_lose_at_most_a_block_for_each_dead",
        suffers="A loop in somebody's program sends SMS for a month's money in a night.",
    ),
    Patch(
        name="gives a block back and goes on spending it",
        promise=8,
        file="consumers/spend.py",
        old="            self._block -= too_much\n",
        new="",
        test=_TILL + "test_a_block_that_was_given_back_is_not_spent_again",
        suffers="Every quiet minute of a worker makes the day's bill longer than it may be.",
    ),
    Patch(
        name="spends what it drew of yesterday's budget today",
        promise=8,
        file="consumers/spend.py",
        old="        if self._today() == day:  # else it is of no use any more",
        new="        if day:",
        test=_TILL + "test_yesterdays_money_is_not_spent_today",
        suffers="The first messages of a day are paid by nobody's budget.",
    ),
    Patch(
        name="keeps the price of a call that was not made",
        promise=8,
        file="consumers/calling.py",
        old="            if charge is not None:\n                charge.purse.give_back(charge)\n",
        new="",
        test=_SENDERS + "test_a_token_that_died_on_the_way_costs_nothing",
        suffers="On a busy day the budget is gone at noon, and half of it was never spent.",
    ),
    Patch(
        name="never sends what waited for the next day's money",
        promise=3,
        file="consumers/telling.py",
        old="            if sending.claim is not None and found.kind in verdicts.WAITS:",
        new="            if sending.claim is None and found.kind in verdicts.WAITS:",
        test=_SENDERS + "test_transactional_without_money_waits_for_the_next_day_and_is_sent_then",
        suffers="Whoever was to hear of a refund on the evening before never does.",
    ),
    Patch(
        name="counts brackets twice where they are one",
        promise=8,
        file="schemas/sms_segments.py",
        old="        encoding, doubles = Encoding.UCS_2, _BEYOND_16_BITS",
        new="        encoding, doubles = Encoding.UCS_2, _EXTENSION",
        test="tests/unit/schemas/test_sms_segments.py::test_a_text_is_counted_as_the_vendors_own_calculator_counts_it",
        suffers="What is charged is not what the vendor bills, and nobody knows which of them is wrong.",
    ),
    Patch(
        name="starts with a budget and no price for most countries",
        promise=10,
        file="deploy/budgets.py",
        old="    elif DEFAULT not in prices:",
        new='    elif DEFAULT not in prices and "US" in prices:',
        test="tests/unit/deploy/test_budgets.py::test_wrong_money_is_refused_with_what_to_write_instead",
        suffers="The first SMS abroad stops the worker, and all behind it wait.",
    ),
)
