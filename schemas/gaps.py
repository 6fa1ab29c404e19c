"""The gaps of the road: every place between two steps where a process may die, and what is at stake there.

Whoever composes a process may hand it a `Gap`, which is told each name as it is passed; without one nothing is called.
The product never does: tests end or stop a process there.
"""

from __future__ import annotations

from collections.abc import Callable

Gap = Callable[[str], None]
"""Told the name of a gap by the thread that passes it; may never return."""

AT_STAKE = {
    # The API: `producers/api`.
    "after_log": "The log has a request, its key does not: the caller asks again, and it must stay one notification.",
    "before_answer": "The key is answered in Redis, the caller is not: the same answer must come again.",
    "after_audience": "All pages of a campaign are in the log, its request is not: nobody may be sent to yet.",
    "after_request": "A campaign's request is in the log, unanswered: asked again, it must not run twice.",
    "after_callback": "A report is in the log, the provider is not told: it reports again, and nothing may change.",
    # Singles: `streams/route.py`.
    "after_route_plan": "Plans of singles are fixed in Redis, no delivery is in a lane: nobody may be left out.",
    # Campaigns: `streams/dispatch.py`, `streams/fan_out.py`.
    "before_release": "A leader has chosen pages; another may lead by the time they are written.",
    "after_release": "Pages are in the log, the cursor is not: they go out again, and nobody may get them twice.",
    "after_ends": "Recipients that get nothing are ended, the cursor has not moved: they are ended again, once each.",
    "after_held_release": "What was due in hold is in the log, its tombstone is not: it goes again, to nobody twice.",
    "after_digest": "A digest is in the log, its messages are still in hold: they go out in no other, nor alone.",
    "after_page_plan": "Plans of a page are fixed in Redis, no delivery is in a lane: nobody may be left out.",
    "after_fan_out": "A page's deliveries are in their lanes, it is not acknowledged: all come again, none is sent.",
    # Sends: `consumers/calling.py`, `consumers/settling.py`.
    "after_claim": "A delivery is claimed, not called: taken over when its lease ends, counted as possible repeat.",
    "before_send": "The last look at the lease is behind: who wakes up here calls a second time, counted before.",
    "after_send": "The provider has accepted, nobody knows: called again after the lease, and counted.",
    "after_settle": "The verdict is in the claim, not in the log: it is published again, the call is not repeated.",
    "after_fallback": "A fallback has started in Redis, not in the log: it goes into its lane all the same, and once.",
    # Every engine: `consumers/loop`.
    "before_publish": "Records are handled, nothing they led to is in the log: they come again.",
    "after_publish": "All they led to is in the log, they are not finished: it is written twice, in effect once.",
    "before_commit": "Records are finished, not committed: they come again and change nothing.",
    # Status: `streams/status_flow.py`.
    "after_state": "Public states are published, the rows are not written: the same merge publishes them again.",
    "before_changelog": "The owner has made sure that it is the owner; another may be one by the time it writes.",
    "after_changelog": "A row is in the changelog, not on disk: what restores it must not lose it or count it twice.",
    "after_rows": "Rows are on disk, the events not acknowledged: they are merged again and change nothing.",
}
"""Name -> why a crash matters there."""
