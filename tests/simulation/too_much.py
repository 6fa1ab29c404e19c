"""A cap on marketing in a part of the runs: people are in several campaigns at once, and get two messages of them all.

Runs begin at 00:53:20 by UTC and are over within the hour: no date ends in one. Not in the runs with digests, which
ask for every message's fate.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

from consumers.caps import CapRules
from schemas.policies import MessageClass
from tests.simulation.happened import Happened
from tests.simulation.site import CHAT, POLICIES
from tests.simulation.workload import TENANT, Story

SHARE = 0.4
"""Of the runs without digests."""
CAP = 2


def begin(rng: random.Random, story: Story) -> CapRules:
    """The caps of this run."""
    is_capped = rng.random() < SHARE and not any(single.template == CHAT for single in story.singles)
    return CapRules({TENANT: CAP} if is_capped else {}, {})


def capped(happened: Happened) -> Iterator[str]:
    """Nobody gets more than the cap, of a notification and channel each."""
    if not happened.site.cap_rules.marketing:
        return
    got: defaultdict[str, set[str]] = defaultdict(set)
    for asked in happened.asked():
        if asked.accepted and POLICIES[asked.call.template].message_class is MessageClass.MARKETING:
            got[asked.call.user_id].add(asked.call.delivery_key)
    for user_id, messages in got.items():
        if len(messages) > CAP:
            yield f"{user_id} got {len(messages)} messages: {sorted(messages)}"
