"""What is held, broken on purpose: what lets go, in which order, and what becomes of people who cannot be let go."""

from __future__ import annotations

from tests.teeth.patch import Patch

_HOLDS = "tests/unit/streams/test_holds.py::"
_RELEASE = "tests/unit/streams/test_held_release.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="takes its own cursor for the newest after it was deposed",
        promise=7,
        file="streams/dispatch.py",
        old="            self._campaigns.moved(campaign, moved[campaign.key])",
        new="            campaign.cursor = moved[campaign.key]",
        test="tests/unit/streams/test_campaign_stops.py::"
        "test_a_leader_deposed_between_a_page_and_its_cursor_knows_what_was_done_since_when_it_leads_again",
        suffers="A leader that slept, and leads again, lets pages of an ended campaign go once more.",
    ),
    Patch(
        name="leaves the hop out of a hold id",
        promise=1,
        file="schemas/keys.py",
        old="/p{address.slot}{named}#{hop}",
        new="/p{address.slot}{named}#",
        test=_HOLDS + "test_a_tombstone_takes_what_it_names_and_nothing_else",
        suffers="People whose morning was put off once more are forgotten with the tombstone of the first time.",
    ),
    Patch(
        name="buries what is due before it is in the log",
        promise=1,
        file="streams/held_release.py",
        old="        await self._publisher.publish(outgoing)\n        if outgoing:\n",
        new="""        await self._letting_go.bury([piece.part for piece in chosen.pieces], self._publisher)
        await self._publisher.publish(outgoing)
        if outgoing:
""",
        test=_RELEASE + "test_what_the_log_refused_stays_in_hold",
        suffers="A leader that dies at eight in the morning takes with it those whom it was about to let go.",
    ),
    Patch(
        name="lets go what is held before it has read all of it",
        promise=2,
        file="streams/dispatch.py",
        old="    for view in views:\n        await view.caught_up()",
        new="    await views[0].caught_up()",
        test=_RELEASE + "test_a_leader_lets_nothing_go_before_it_has_read_all_of_hold",
        suffers="Each restart of dispatch sends last week's reminders again, as their tombstones lie further back.",
    ),
    Patch(
        name="forgets the held people of a campaign that was stopped",
        promise=6,
        file="streams/dispatch.py",
        old="            if end is not None and campaign.held:",
        new="            if end is not None and not campaign:",
        test=_RELEASE + "test_a_cancel_ends_whoever_is_held_and_the_sum_closes",
        suffers="A cancelled campaign never ends: a third of its people wait for a morning that does not come.",
    ),
    Patch(
        name="lets a campaign live for as long as somebody of it is held",
        promise=3,
        file="streams/campaigns.py",
        old="(campaign.next_page < request.pages or campaign.held) and",
        new="campaign.next_page < request.pages and",
        test=_RELEASE + "test_an_expiry_ends_whoever_is_held_even_when_all_pages_went",
        suffers="A campaign that was paused and forgotten is open for ever.",
    ),
    Patch(
        name="lets a paused campaign's parts go",
        promise=3,
        file="streams/release.py",
        old="        return not campaign.is_paused and self._letting_go",
        new="        return self._letting_go",
        test=_RELEASE + "test_a_paused_campaigns_parts_wait_and_go_when_it_is_resumed",
        suffers="Paused in the evening for its wrong price, a campaign goes on at eight in the morning.",
    ),
    Patch(
        name="fills lanes with what is due without a look at them",
        promise=5,
        file="streams/held_flows.py",
        old="        self._on_their_way.add(self._campaign, mark, piece.size, now_s)\n",
        new="",
        test=_RELEASE + "test_what_is_due_fills_a_lane_like_fresh_pages_and_no_further",
        suffers="At eight in the morning a million messages lie in the lane, and no pause or small campaign is felt.",
    ),
    Patch(
        name="sends those who wait in hold ahead of their time",
        promise=3,
        file="streams/holds.py",
        old="queue.heap[0].due_ms <= now_ms else None",
        new="queue.heap[0].due_ms <= now_ms + 3_600_000 else None",
        test=_RELEASE + "test_a_part_goes_out_when_it_is_due_and_not_before",
        suffers="A shop's offer rings at seven, an hour before anybody may be woken up.",
    ),
)
