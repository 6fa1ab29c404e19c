"""FACING OUT. From a lane to a provider.

On the road, in reading order: `engine` (the one poll loop) and `loop` (its parts), `lane_worker` (the story of one
send), `sending` (what its steps share), `looking` (round trip A), `send_checks` (may it go out now?), `controls`
(operators' orders), `bidding` (round trip B), `guarding`, `caps` and `lookalikes` (too much? the same again?),
`digests` (many as one), `breaker` (is the provider well?), `limits` (its rate), `turns` (the
oldest first), `claims` (the right to send), `calling` (the call), `spend` (what it may cost), `prices`, `countries`
(where a number is at home), `deadlines` (its hard end), `tally` (what it counts), `fallbacks` and `wishes` (who turns
to the next channel), `render` and `sandbox` (the text), `providers` (the adapters), `judging` (outcome -> verdict),
`verdicts` (what it makes the log say), `settling` (the verdict into the claim), `telling` (the answer to the record),
`progress` (how far a lane is), `cancellations` (what a cancel still meets), `drops` (what an operator dropped),
`backstage` (what support is told), `spend_watch` (how the day's money goes), `inquiries` (what became of it, asked at
a pace), `standby` (which of two providers), `throttles` (what these want less of), `without_redis` and `local_rate`
(what goes out while it is away), `soft_bounces` (an address that may be right although it refused).
"""
