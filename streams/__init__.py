"""FACING ACROSS. Log to log, log to table.

On the road, in reading order.
Singles: `route` (a request -> its deliveries), `intake` (the request in a record), `starts` (when it may go),
`planning` (who is reached how), `single_plans` (the plan that holds), `plans` (kept under its intent), `singles_queue`
(who waits for the pace of bulk singles), `grants` (that pace), `single_records` (what is written), `snapshots` (who is
reached while Redis is away), `row_waits` (what a row still waits for after a day).
Campaigns: `dispatch` (one leader lets pages go), `leader` (who that is), `campaigns` (what is known of each),
`page_reader` (their pages), `cursors` (how far each is), `released_before` (what may be out already), `release`
(what goes next), `lanes` (how full each may be),
`backlog` (how full each is), `fairness` (whose turn it is), `pace` (a rate kept by counting), `stalls` (who does not
move), `fan_out` (a page -> its deliveries), `page_waits` (who of it is due later), `fanned` (which pages reached the
lanes), `lane_records` and `stencil` (their bytes), `page_status` (what their rows are told), `ticks` (a daily word to
delete old rows), `burials` (what old campaigns left), `page_records` (what dispatch writes of a page).
What waits for long: `holds` (what is held and when it is due), `held_flows` (its turns in the lanes), `held_release`
(what the leader does with it), `hold_orders` (what operators order), `letting_go` (what comes out),
`went_before` (what came out long ago), `digest_groups`
(who goes out with whom), `digests` (many messages as one), `digest_requests` (what is written of it), `digest_marks`
(who is in which).
People: `recipients_route` (the process), `recipients_apply` (records -> Redis), `recipients` (who may be reached),
`rebuild` (makes an emptied Redis trustworthy again), `inbox`, `inbox_format`, `inbox_live`, `timelines`.
Status: `callbacks` (reports -> events), `status_process` (all of it composed), `agents` (Faust), `faust_patches`
(its repairs), `status_flow` (the order of writes), `status_table` (the rules), `state_records`
(what the public reads of a row), `row_store` (rows on disk),
`status_rivals` (two owners for a moment), `status_watch` (ends a deaf process), `status_sweep` (old rows),
`status_view` (reads at the owner), `status_reads` (reads from anywhere), `reconcile` (sent long ago, and no word).
How much arrives: `share_tally` (counts it), `delivery_shares` (is it less than usual?), `share_watch` (warns).
Beside it, the doors: `log_reader` and `tails` (the log without a group), `asking` (where it begins and ends).
"""
