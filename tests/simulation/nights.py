"""Quiet hours in a part of the runs: some people's night ends while it runs, some people's begins, some sleep through.

Who sleeps until long after the expiry is told so at once; the others are reached in their morning, a few seconds
after the run's fortieth.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from schemas.policies import MessageClass, QuietWindow
from schemas.quiet_hours import QuietHours
from tests.doubles.manual_clock import START_MS
from tests.simulation.happened import Happened
from tests.simulation.site import POLICIES
from tests.simulation.workload import TENANT, Story

SHARE = 0.3
"""Of the runs."""
WINDOW = QuietWindow("06:24", "00:54")
"""Runs begin at 00:53:20 by UTC: where it is night then, the morning comes after 40 s."""
ZONES = {"UTC": 0.45, "Europe/Berlin": 0.3, "Asia/Kolkata": 0.15, "Asia/Tokyo": 0.1}
"""Zone -> its share of the people: wakes up; is awake; falls asleep as the first wakes up; sleeps all the time."""
SPREAD_MS = 5_000
"""Shorter than at a customer's, so that a run is short."""
WITHIN_S = 1.0
"""Between the last look at the clock and the call lies the wait for a token that is still good."""


def fall(rng: random.Random, story: Story) -> QuietHours:
    """Those of this run; where it has any, its people live somewhere."""
    if rng.random() >= SHARE:
        return QuietHours({}, {})
    for user_id, profile in story.people.items():
        zone = rng.choices(list(ZONES), list(ZONES.values()))[0]
        story.people[user_id] = replace(profile, time_zone="" if zone == "UTC" and rng.random() < 0.2 else zone)
    return QuietHours({TENANT: WINDOW}, {}, SPREAD_MS)


def undisturbed(happened: Happened) -> Iterator[str]:
    """Nobody is called in their quiet hours, but for a code."""
    if happened.site.quiet.of(TENANT, POLICIES["news"]).window is None:
        return
    for asked in happened.asked():
        if POLICIES[asked.call.template].message_class is MessageClass.TRANSACTIONAL:
            continue
        zone = happened.story.people[asked.call.user_id].time_zone or "UTC"
        clocks = [_shown(zone, at_s) for at_s in (asked.began_s - WITHIN_S, asked.began_s)]
        if all(map(_is_quiet, clocks)) and not happened.stood_still(asked.process, asked.began_s):
            yield f"{asked.call.delivery_key} was called at {asked.began_s:.3f} s: {clocks[1]} in {zone}"


def _shown(zone: str, at_s: float) -> str:
    return f"{datetime.fromtimestamp(START_MS / 1000 + at_s, UTC).astimezone(ZoneInfo(zone)):%H:%M}"


def _is_quiet(clock: str) -> bool:
    return clock >= WINDOW.begins or clock < WINDOW.ends
