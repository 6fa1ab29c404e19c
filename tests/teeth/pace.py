"""What pace and fairness promise, broken one by one: shares, windows, what counts as waiting, pieces of pages."""

from __future__ import annotations

from tests.teeth.patch import Patch

_FAIR = "tests/unit/streams/test_fairness.py::"
_PACE = "tests/unit/streams/test_pace.py::"
_BACKLOG = "tests/unit/streams/test_backlog.py::"
_AHEAD = "tests/unit/streams/test_read_ahead.py::"
_WAITING = "tests/unit/streams/test_singles_queue.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="lets a newcomer catch up on all that went before it came",
        promise=5,
        file="streams/fairness.py",
        old="        begins = max(now, self._ends.get((scope, name), 0.0))",
        new="        begins = self._ends.get((scope, name), 0.0)",
        test=_FAIR + "test_a_flow_that_comes_later_is_owed_nothing_for_the_past",
        suffers="A campaign that has run all day stands still until the one that began at noon is as far.",
    ),
    Patch(
        name="gives a tenant more the more campaigns it starts",
        promise=5,
        file="streams/fairness.py",
        old="            self._tenants.pay((lane,), flow.tenant, cost / ",
        new="            self._tenants.pay((lane,), flow.tenant, 0 / ",
        test=_FAIR + "test_a_tenant_with_many_campaigns_gets_no_more_than_one_with_a_single_one",
        suffers="Whoever cuts a list into twenty campaigns pushes everybody else aside.",
    ),
    Patch(
        name="always puts a tenant that is alone in a lane last in the others",
        promise=5,
        file="streams/fairness.py",
        old="        behind = {scope: max(end, self._now.get(scope, 0.0)) for scope, end in least.items()}",
        new="        behind = {scope: self._now.get(scope, 0.0) for scope in least}",
        test=_PACE + "test_a_slow_second_channel_slows_down_only_who_uses_it",
        suffers="A campaign by push and SMS never starts beside one by SMS alone.",
    ),
    Patch(
        name="lets whole pages into a lane of a few a second",
        promise=5,
        file="streams/lanes.py",
        old="        return min(LARGEST_PIECE, max(1, int(most)))",
        new="        return LARGEST_PIECE",
        test=_PACE + "test_bulk_singles_of_a_tenant_share_the_lane_as_one_campaign_of_it_would",
        suffers="By SMS one campaign has the line for half a minute at a time, and no weight is kept.",
    ),
    Patch(
        name="lets each of many campaigns go in pieces as large as one that is alone",
        promise=5,
        file="streams/lanes.py",
        old="        seconds = max(self.piece_s * share, self.least_piece_s)",
        new="        seconds = self.piece_s",
        test="tests/unit/streams/test_lanes.py::"
        "test_a_campaign_alone_in_a_lane_goes_in_whole_pages_and_one_of_several_in_small_pieces",
        suffers="The smallest of three campaigns gets a tenth more or less than its share in any ten seconds.",
    ),
    Patch(
        name="gives tokens to whichever worker of a lane asks first",
        promise=5,
        file="consumers/limits_take.lua",
        old="local is_behind = is_bulk and is_earlier_asked and tokens < half / 2",
        new="local is_behind = false",
        test="tests/integration/test_limits.py::"
        "test_of_the_workers_of_a_lane_who_has_the_earliest_record_goes_first_and_nothing_is_lost_by_it",
        suffers="A lane is worked in the order of its partitions' luck, and a campaign's share with it.",
    ),
    Patch(
        name="does not count what waits in tiers",
        promise=5,
        file="streams/backlog.py",
        old="            + max(0.0, self._seen_tiers[lane].waiting - TIERS_FREE_S * rate)",
        new="            + 0.0",
        test=_BACKLOG + "test_what_waits_in_tiers_counts_beyond_five_seconds_of_rate",
        suffers="A provider that throttles for an hour has an hour of sends come back at once, before all others.",
    ),
    Patch(
        name="expects nothing of pages on their way",
        promise=5,
        file="streams/backlog.py",
        old="        return max(0, min(waiting, campaign.released - max(counts.planned, counts.finished)))",
        new="        return 0",
        test=_PACE + "test_while_fan_out_stands_still_no_more_than_five_seconds_of_pages_are_let_go",
        suffers="Fan-out is down for ten minutes; afterwards ten minutes of pages lie before every new campaign.",
    ),
    Patch(
        name="waits for a partition that stands still",
        promise=5,
        file="streams/backlog.py",
        old="if number not in still or seen.lying > limit)",
        new="if number is not None)",
        test=_PACE + "test_one_partition_that_stands_still_does_not_idle_the_others",
        suffers="One stuck worker idles the whole channel.",
    ),
    Patch(
        name="begins a page anew where its leader died in the middle of it",
        promise=6,
        file="streams/page_reader.py",
        old="(cursor.next_offset, cursor.next_slot) if cursor",
        new="(cursor.next_offset, 0) if cursor",
        test=_AHEAD + "test_another_leader_goes_on_in_the_middle_of_a_page",
        suffers="A campaign says that more people were let go than are in it.",
    ),
    Patch(
        name="reads ahead for each campaign as if it were alone",
        promise=5,
        file="streams/page_reader.py",
        old="        most_bytes = self._most_bytes // self._sharing",
        new="        most_bytes = self._most_bytes",
        test=_AHEAD + "test_many_campaigns_at_once_share_the_room_for_pages_read_ahead",
        suffers="A hundred campaigns at nine o'clock, and the dispatcher is killed for its memory.",
    ),
    Patch(
        name="looks at every bulk single that waits, five times a second",
        promise=4,
        file="streams/route.py",
        old="    look_again_ms: int = 30_000",
        new="    look_again_ms: int = 200",
        test=_WAITING + "test_thousands_that_wait_are_looked_at_only_when_there_is_a_token_for_them",
        suffers="While newsletters wait for a slow provider, Redis is busy with them, and password resets are late.",
    ),
    Patch(
        name="gives each token to whoever needs no other",
        promise=5,
        file="streams/singles_queue.py",
        old="                kept += self._purse.set_aside(flows)",
        new="                kept += []",
        test=_WAITING + "test_one_with_two_devices_does_not_wait_for_ever_beside_many_with_one",
        suffers="Whoever bought a second phone hears of nothing until the backlog is gone.",
    ),
    Patch(
        name="goes on wishing for what another process took over",
        promise=5,
        file="streams/singles_queue.py",
        old="if not one[1].is_over and one[0] not in in_hand]",
        new="if one[0] not in in_hand]",
        test=_WAITING + "test_what_another_process_took_over_is_wished_for_and_sent_there_only",
        suffers="After a restart a tenant's share goes to nobody, and its backlog stands still.",
    ),
)
