"""What streams promise, broken one by one: planning, releasing, fanning out, people, reports, rows and counts."""

from __future__ import annotations

from tests.teeth.patch import Patch

_ROUTE = "tests/integration/streams/test_route.py::"
_FAN_OUT = "tests/integration/streams/test_fan_out.py::"
_DISPATCH = "tests/integration/streams/test_dispatch.py::"
_BEFORE = "tests/unit/streams/test_released_before.py::"
_FLOW = "tests/unit/streams/test_status_flow.py::"
_PEOPLE = "tests/integration/people/test_recipients.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="forgets a single's plan",
        promise=9,
        file="streams/plans.py",
        old="    return packed if reply is None else reply",
        new="    return packed",
        test=_ROUTE + "test_a_second_reading_gives_the_same_deliveries_whatever_the_profile_says_now",
        suffers="After a crash of routing somebody who changed phones meanwhile gets the message on both.",
    ),
    Patch(
        name="puts transactional messages into the bulk lanes",
        promise=4,
        file="streams/single_records.py",
        old="        priority=single.policy.priority(event.priority),",
        new="        priority=Priority.BULK,",
        test=_ROUTE + "test_a_request_becomes_one_delivery_in_its_lane",
        suffers="A code for a login arrives an hour later, behind the newsletter.",
    ),
    Patch(
        name="forgets a page's plans",
        promise=9,
        file="streams/fan_out.py",
        old="            plan if reply is None or reply == packed else _earlier(page, place, reply)",
        new="            plan",
        test=_FAN_OUT + "test_a_second_run_with_a_changed_profile_sends_nothing_new",
        suffers="A page released twice reaches people on a second device, and counts them by it.",
    ),
    Patch(
        name="sends again to whom an earlier page of the campaign named",
        promise=2,
        file="streams/fan_out.py",
        old="    return plan if owner == ",
        new="    return plan if owner is not ",
        test=_FAN_OUT + "test_the_same_user_on_two_pages_gets_it_once",
        suffers="A list with a customer in it twice fills the lanes with copies, and counts that never close.",
    ),
    Patch(
        name="plans the people of a campaign that was cancelled",
        promise=7,
        file="streams/fan_out.py",
        old=" is CampaignOrder.CANCELLED:",
        new=" is None:",
        test=_FAN_OUT + "test_a_page_let_go_by_a_deposed_leader_after_the_cancel_plans_nobody_who_had_no_plan_before",
        suffers="A campaign that was said to have ended is unfinished again, and ends with other counts.",
    ),
    Patch(
        name="forgets at the cancel whom it had planned",
        promise=6,
        file="streams/fan_out.py",
        old="self._with_plans(page, _places(page)[0]) if plan is not None]",
        new="self._with_plans(page, _places(page)[0]) if plan is not None and not plan]",
        test=_FAN_OUT + "test_a_page_let_go_by_a_deposed_leader_after_the_cancel_plans_nobody_who_had_no_plan_before",
        suffers="Who was reached just before the cancel is counted as cancelled.",
    ),
    Patch(
        name="takes for sent what the row has heard of and no lane has",
        promise=1,
        file="streams/fan_out.py",
        old=" if slot not in decided or slot in known)",
        new=" if slot not in decided)",
        test=_FAN_OUT + "test_a_page_let_go_a_day_ago_whose_deliveries_were_lost_on_the_way_is_done_again",
        suffers="Fan-out dies over a page of yesterday, and 250 people are shown as queued for ever.",
    ),
    Patch(
        name="fans out a page that has expired",
        promise=3,
        file="streams/fan_out.py",
        old="        elif page.expires_at_ms <= now_ms:",
        new="        elif page.expires_at_ms < 0:",
        test=_FAN_OUT + "test_a_page_past_its_expiry_ends_as_expired_and_sends_nothing",
        suffers="After a night's outage 100,000 deliveries of yesterday's offer fill the lanes.",
    ),
    Patch(
        name="sends to whom Redis knows nothing of after it was emptied",
        promise=3,
        file="schemas/trips.py",
        old="        return reply is not None and reply == self.run_id",
        new="        return True",
        test="tests/unit/consumers/test_lane_worker.py::test_an_emptied_or_rolled_back_redis_counts_as_away",
        suffers="A replica takes over that had not heard of the last opt-outs, and lanes go on as if nothing were.",
    ),
    Patch(
        name="fills a lane as fast as pages can be read",
        promise=5,
        file="streams/lanes.py",
        old="self.backlog + deliveries <= self.most_s * self.rate_per_s",
        new="self.backlog >= 0",
        test=_DISPATCH + "test_a_lane_gets_five_seconds_of_its_rate_and_no_more",
        suffers="A campaign of ten million lies in the lane at once; a cancel or a small campaign waits behind it all.",
    ),
    Patch(
        name="gives the whole pace to whoever came first",
        promise=5,
        file="streams/fairness.py",
        old="            return tenant_lead, flow_lead, self._served.get(name, 0), name",
        new="            return 0.0, 0.0, 0, name",
        test=_DISPATCH + "test_a_small_campaign_does_not_wait_behind_a_long_one",
        suffers="Two hundred invitations for tonight go out tomorrow, behind the newsletter.",
    ),
    Patch(
        name="moves the cursor before the page is in the log",
        promise=6,
        file="streams/dispatch.py",
        old='        self._pass("before_release")',
        new="        await self._move_cursors([(c.campaign, c.request, page) for c, page in released.pages], epoch)",
        test=_DISPATCH + "test_a_page_that_the_log_refused_is_let_go_by_the_next_leader",
        suffers="A leader killed at the wrong moment leaves out 250 people, and the campaign never ends.",
    ),
    Patch(
        name="lets a page go in one record, however large that is",
        promise=10,
        file="streams/page_records.py",
        old="        if record.size <= MOST_BYTES:",
        new="        if record.size:",
        test="tests/unit/streams/test_campaign_ends.py"
        "::test_a_campaign_with_very_long_values_reaches_everybody_and_holds_up_nobody",
        suffers="One campaign with a long text ends every leader in turn, and nobody's campaign moves.",
    ),
    Patch(
        name="lets what a dead leader may have let go yesterday go as if it were new",
        promise=9,
        file="streams/released_before.py",
        old="        return now_ms if now_ms - since_ms < ROWS_KNOW_AFTER_MS else now_ms - LONG_AGO_MS",
        new="        return max(since_ms, now_ms)",
        test=_BEFORE + "test_pages_let_go_and_not_noted_ask_their_rows_when_the_next_leader_comes_a_day_later",
        suffers="A campaign that was paused when a leader died, and resumed the day after, calls thousands twice.",
    ),
    Patch(
        name="forgets since when pages may be out as soon as the first of them is noted",
        promise=9,
        file="streams/dispatch.py",
        old="at_ms=since_ms)",
        new="at_ms=max(since_ms, now_ms))",
        test=_BEFORE
        + "test_all_of_it_is_asked_about_though_it_goes_again_bit_by_bit_and_by_one_leader_after_the_other",
        suffers="A leader comes a day after a dead one: what was out already comes twice, but for its first pages.",
    ),
    Patch(
        name="takes a reader to stand where its range was to end",
        promise=1,
        file="streams/log_reader.py",
        old="        self.at = (*place[:2], behind)",
        new="        self.at = (*place[:2], last + 1 if ended else behind)",
        test="tests/unit/streams/test_log_reader.py"
        "::test_nothing_that_lies_in_the_log_is_read_over_when_more_is_written_between_two_ranges",
        suffers="Another campaign is uploaded beside it, and a page in the log is read over: 250 people hear nothing.",
    ),
    Patch(
        name="lets a former leader's cursor stand",
        promise=6,
        file="streams/campaigns.py",
        old="        elif cursor.epoch < known.epoch:\n            self._overwritten.add(campaign.key)",
        new="        elif cursor.epoch < known.epoch:\n            campaign.cursor = cursor",
        test=_DISPATCH + "test_a_cursor_overwritten_by_a_former_leader_is_written_again",
        suffers="A leader that was asleep turns a campaign back by hours for whoever starts next.",
    ),
    Patch(
        name="lets go pages of a paused campaign",
        promise=3,
        file="streams/release.py",
        old="        return is_due and not campaign.is_paused",
        new="        return is_due",
        test=_DISPATCH + "test_a_paused_campaign_lets_nothing_go_until_it_is_resumed",
        suffers="Somebody sees the wrong price in a running campaign and presses pause; it goes on.",
    ),
    Patch(
        name="calls a campaign complete when all its pages are out",
        promise=6,
        file="streams/campaigns.py",
        old="    if finished_at is None and counts.finished >= request.recipients:",
        new="    if finished_at is None and campaign.next_page >= request.pages:",
        test=_DISPATCH + "test_a_campaign_is_complete_when_every_recipient_is_and_stays_so",
        suffers="The report says complete, and afterwards ten thousand people more are written to.",
    ),
    Patch(
        name="adds a partition's counts up instead of taking the newest",
        promise=6,
        file="streams/campaigns.py",
        old="        if known is None or progress.version >= known.version:",
        new="""        if known is not None:
            progress = replace(progress, finished=known.finished + progress.finished)
        if True:""",
        test=_DISPATCH + "test_an_older_count_does_not_turn_back_a_newer_one",
        suffers="Counts grow with every restart of the status process: 23,000 of 20,000 sent.",
    ),
    Patch(
        name="commits in Faust past a record that is still in work",
        promise=1,
        file="streams/faust_patches.py",
        old="    if in_work is None or not acked:",
        new="    if in_work is not None or not acked:",
        test="tests/unit/streams/test_faust_patches.py::test_an_offset_is_never_committed_past_a_record_in_work",
        suffers="A process killed while it works on a record never does it: the next one begins behind it.",
    ),
    Patch(
        name="lets an older profile replace a newer one",
        promise=3,
        file="streams/recipients.lua",
        old="offset_of(redis.call('HGET', profile, field)) < offset then",
        new="true then",
        test=_PEOPLE + "test_an_older_write_never_replaces_a_newer_one",
        suffers="An opt-out is undone by an older record that comes late.",
    ),
    Patch(
        name="leaves the timeline behind at an erasure",
        promise=3,
        file="streams/recipients.lua",
        old="redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])",
        new="redis.call('DEL', KEYS[3], KEYS[4], KEYS[5])",
        test=_PEOPLE + "test_erasure_removes_profile_devices_inbox_and_timeline_and_blocks_sends_at_once",
        suffers="Support reads what an erased person was sent, a month after they asked to be forgotten.",
    ),
    Patch(
        name="keeps the version when an opt-out is written",
        promise=3,
        file="streams/recipients.lua",
        old="if changed then",
        new="if changed and ARGV[2] == 'user' then",
        test=_PEOPLE + "test_every_effective_change_raises_the_version_that_senders_compare",
        suffers="Whoever opts out while their message is being looked at gets it all the same.",
    ),
    Patch(
        name="trusts an emptied Redis before the opt-outs are back",
        promise=3,
        file="streams/rebuild.py",
        old='            await self._rebuild("all" if stored is None or is_foreign else "recent")',
        new='            await self._step("finish", self._epoch.run_id, {})',
        test="tests/integration/people/test_rebuild.py"
        "::test_an_emptied_redis_gets_opt_outs_suppressions_cancels_and_inbox_back_before_anybody_trusts_it",
        suffers="Redis is lost at night: everybody who ever opted out is written to before anybody wakes up.",
    ),
    Patch(
        name="counts a message put twice as unread twice",
        promise=9,
        file="streams/inbox_put.lua",
        old="local stored = redis.call('HGET', inbox, id)",
        new="local stored = false",
        test="tests/integration/people/test_inbox.py"
        "::test_a_read_message_is_read_on_every_connection_and_stays_read_when_put_again",
        suffers="A message read yesterday is new again after a restart, and the badge never goes away.",
    ),
    Patch(
        name="does not suppress an address that bounced",
        promise=3,
        file="streams/callbacks.py",
        old="            if report.suppress and reference.address_hash:",
        new="            if report.suppress and not reference.address_hash:",
        test="tests/integration/people/test_callbacks.py"
        "::test_a_bounce_blocks_the_address_in_redis_before_the_record_is_answered",
        suffers="Dead mailboxes are written to for months, until the provider closes the account.",
    ),
    Patch(
        name="acknowledges a page whose expansion failed",
        promise=1,
        file="streams/agents.py",
        old="""            self._process.fail(error)
        while self._waiting and self._waiting[0][1].done():
            event, done = self._waiting[0]
            if done.cancelled() or done.exception() is not None:""",
        new="""            log.error("page.failed", exc_info=error)
        while self._waiting and self._waiting[0][1].done():
            event, done = self._waiting[0]
            if done.cancelled():""",
        test="tests/integration/streams/test_page_agent.py"
        "::test_an_unexpected_error_ends_the_process_and_the_page_is_not_committed",
        suffers="A slip in one release loses 250 people per page without a word.",
    ),
    Patch(
        name="drops a page that cannot be read",
        promise=10,
        file="streams/agents.py",
        old="            await publisher.publish([park(record, error.reason, error.text)])",
        new="            error.args = (publisher, park)",
        test="tests/integration/streams/test_page_agent.py"
        "::test_garbage_is_parked_byte_for_byte_and_the_pages_around_it_are_fanned_out",
        suffers="A page of a newer release is thrown away by an older one: 250 people hear nothing.",
    ),
    Patch(
        name="writes rows without awaiting the changelog",
        promise=6,
        file="streams/status_flow.py",
        old="        placed = await self._publisher.publish(outgoing)\n",
        new="""        from schemas.records import Placed

        asyncio.ensure_future(self._publisher.publish(outgoing))
        placed = [Placed(partition, 0) for partition, _ in written]
""",
        test=_FLOW + "test_nothing_is_on_disk_that_the_changelog_does_not_have",
        suffers="A process that loses its disk comes back with older rows than it told the world of.",
    ),
    Patch(
        name="writes rows before their news is published",
        promise=6,
        file="streams/status_flow.py",
        old="        await self._publisher.publish(merged.publish)\n",
        new="        await self.write(merged.written)\n        await self._publisher.publish(merged.publish)\n",
        test=_FLOW + "test_what_the_public_could_not_be_told_is_told_by_the_next_process",
        suffers="After a crash a data team's copy misses changes that no later record will ever repeat.",
    ),
    Patch(
        name="forgets what a deposed owner wrote before it could write over it",
        promise=6,
        file="streams/status_rivals.py",
        old="                await self._write_again(partition, await self._keys(partition, max(start, first), last))\n"
        "                flow.put_right(partition, (first, last))\n",
        new="                flow.put_right(partition, (first, last))\n"
        "                await self._write_again(partition, await self._keys(partition, max(start, first), last))\n",
        test=_FLOW + "test_a_row_that_a_deposed_owner_wrote_over_is_written_again_whatever_happens_first",
        suffers="Kafka stutters for a second, and at the next move of a partition statuses and counts go back.",
    ),
    Patch(
        name="forgets at a restart what a deposed owner wrote",
        promise=6,
        file="streams/status_flow.py",
        old="self.store.strange(partition) for partition",
        new="[] for partition",
        test=_FLOW + "test_a_row_that_a_deposed_owner_wrote_over_is_written_again_whatever_happens_first",
        suffers="A status process dies a second after another stood still; weeks later, on a new disk, counts go back.",
    ),
    Patch(
        name="tells no counts of what was merged again after a take-over",
        promise=6,
        file="streams/status_table.py",
        old="        for partition, campaign in merged.heard:",
        new="        for partition, campaign, *_ in merged.moved:",
        test=_FLOW + "test_a_campaign_whose_last_rows_were_written_just_before_a_take_over_is_counted_to_its_end",
        suffers="Status is killed as a campaign ends, which then stays running though everybody was reached.",
    ),
    Patch(
        name="lets go at once of the offset at which a phone was removed",
        promise=3,
        file="streams/recipients.lua",
        old="now_s - removed_s > kept_s then",
        new="now_s - removed_s >= 0 then",
        test=_PEOPLE + "test_a_removed_device_is_not_brought_back_by_its_older_registration",
        suffers="Somebody sells their phone; a late record puts it back, and the buyer reads their messages.",
    ),
    Patch(
        name="remembers every phone that anybody ever removed",
        promise=5,
        file="streams/recipients.lua",
        old="  forget_marks()\n",
        new="",
        test=_PEOPLE + "test_what_every_send_reads_of_somebody_does_not_grow_with_each_phone_they_once_had",
        suffers="Redis fills up over the years, and sends to those who change phones often get slower and slower.",
    ),
    Patch(
        name="keeps the pace of every campaign that ever ran",
        promise=5,
        file="streams/release.py",
        old="        self._forget_paces(running)\n",
        new="",
        test="tests/unit/streams/test_pace.py::test_dispatch_remembers_nothing_of_campaigns_that_have_ended",
        suffers="Dispatch takes a little more memory with each campaign, until it is killed in the middle of one.",
    ),
)
