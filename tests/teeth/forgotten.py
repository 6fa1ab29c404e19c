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
        test=_BURIALS + "test_nothing_goes_while_the_log_holds_the_request",
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
        old="        self._next_at_ms = self._clock.now_ms() + EVERY_MS",
        new="        self._next_at_ms = self._clock.now_ms()",
        test=_BURIALS + "test_a_new_leader_removes_nothing_in_its_first_hour",
        suffers="The last tombstones of a slow leader hit the campaign that just got the id.",
    ),
    Patch(
        name="leaves the public states of old campaigns to retention, which never comes to them",
        promise=1,
        file="streams/burials.py",
        old="        if campaign.state is not None:\n",
        new="        if False:\n",
        test=_BURIALS + "test_forty_days_after_a_campaign_was_last_heard_of_nothing_of_it_is_left",
        suffers="The topic and everybody who reads it from its start carry every campaign there ever was.",
    ),
    Patch(
        name="tells of a campaign although its counts were removed",
        promise=6,
        file="streams/campaigns.py",
        old="            campaign.request = None\n        if campaign.is_empty",
        new="            pass\n        if campaign.is_empty",
        test=_BURIALS
        + "test_a_standby_of_weeks_that_takes_over_halfway_says_nothing_of_the_campaign_and_removes_the_rest",
        suffers="After a crash of dispatch the campaign of two months ago is finished, with nobody sent to.",
    ),
    Patch(
        name="answers with what is left of a campaign while that is being removed",
        promise=6,
        file="producers/campaign_view.py",
        old="        elif is_over and campaign.is_known:\n            self._drop(key)\n",
        new="",
        test=_BURIALS
        + "test_until_its_id_is_free_who_asks_for_an_ended_campaign_is_told_the_truth_or_that_it_is_not_kept",
        suffers="A campaign that ended six weeks ago is shown as running for an hour, with nobody finished.",
    ),
    Patch(
        name="removes a hundred campaigns an hour, however many there are",
        promise=1,
        file="streams/burials.py",
        old="            self._next_at_ms = now_ms + NEXT_MS",
        new="            pass",
        test=_BURIALS + "test_ten_thousands_of_old_campaigns_are_gone_within_a_day_some_every_minute",
        suffers="Who sends 3,000 campaigns a day has more in memory with every day, and dispatch starts ever slower.",
    ),
)
