"""Campaigns of long ago, and their ids: what is left of them is removed too soon, by the wrong one, or never."""

from __future__ import annotations

from tests.teeth.patch import Patch

_BURIALS = "tests/unit/streams/test_burials.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="never removes what a campaign has left behind",
        promise=1,
        file="streams/dispatch.py",
        old="        await self._burials.run_due(epoch, self._catch_up)\n",
        new="",
        test=_BURIALS + "test_a_new_campaign_of_a_free_id_goes_to_everybody_and_is_counted_from_zero",
        suffers="Dispatch, API and senders keep each campaign there ever was, and start slower every month.",
    ),
    Patch(
        name="removes a campaign's cursor while its request can be read again",
        promise=9,
        file="streams/burials.py",
        old="        return [campaign for campaign in campaigns if is_gone(campaign)]",
        new="        return list(campaigns)",
        test=_BURIALS + "test_nothing_goes_while_the_log_holds_the_request_or_the_state",
        suffers="Where requests are kept for a year, a restart of dispatch runs campaigns of two months ago again.",
    ),
    Patch(
        name="says that an id is free while orders to its last campaign hold",
        promise=1,
        file="streams/burials.py",
        old="        await self._publisher.publish(first)\n",
        new="",
        test=_BURIALS + "test_a_new_campaign_of_a_free_id_goes_to_everybody_and_is_counted_from_zero",
        suffers="The campaign of this month is cancelled because that of two months ago was.",
    ),
    Patch(
        name="obeys the tombstone of a leader that was deposed long ago",
        promise=3,
        file="schemas/forgetting.py",
        old="    return at_ms - told_ms >= OLD_MS",
        new="    return at_ms >= told_ms",
        test=_BURIALS + "test_what_a_deposed_leader_removes_late_is_not_what_a_new_campaign_of_that_id_has",
        suffers="Senders forget the cancel of a campaign that is under way, and go on with it.",
    ),
    Patch(
        name="lets a new leader remove what the one before may be removing still",
        promise=3,
        file="streams/burials.py",
        old="        if now_ms - self._ran_at_ms < EVERY_MS:",
        new="        if now_ms - self._ran_at_ms < 0:",
        test=_BURIALS + "test_a_new_leader_removes_nothing_in_its_first_hour",
        suffers="The last tombstones of a slow leader hit the campaign that just got the id.",
    ),
)
