"""Digests in a part of the runs: some people are commented on several times within moments, and told of it once.

A comment's value is its own event id, and a message says those of all its comments: so every message tells whom it
was made of. Cancelled, late and repeated comments are among them; whoever dies, dies as in every run.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

from schemas import codec, keys, slots, states
from schemas.keys import Address
from schemas.messages import NotificationRequested
from schemas.reasons import Reason
from tests.simulation.happened import Happened
from tests.simulation.site import CHAT, IDS, TOPICS
from tests.simulation.workload import LONG_MS, SHORT_MS, TENANT, Single, Story

SHARE = 0.3
"""Of the runs."""
PEOPLE, MOMENTS = 8, 3
FOLLOWS_MAX = 3


def begin(rng: random.Random, story: Story) -> None:
    """Adds the comments of this run, if it has any."""
    if rng.random() >= SHARE:
        return
    comments: list[Single] = []
    for user_id in rng.sample(sorted(story.people), PEOPLE):
        for _ in range(MOMENTS):
            moment_s = rng.uniform(0.5, 24.0)
            comments += [_comment(rng, len(comments) + at, user_id, moment_s) for at in range(rng.randint(1, 5))]
    story.singles = (*story.singles, *comments)


def _comment(rng: random.Random, number: int, user_id: str, moment_s: float) -> Single:
    starts_s = moment_s + rng.uniform(0.0, 2.0)
    return Single(
        f"m{number}",
        user_id,
        CHAT,
        "",
        starts_s,
        SHORT_MS if rng.random() < 0.1 else LONG_MS,
        starts_s + rng.uniform(0.0, 4.0) if rng.random() < 0.1 else 0.0,
        rng.random() < 0.1,
        0,
    )


def told_once(happened: Happened) -> Iterator[str]:
    """Every comment is in one message at most, and one that is said to be in a digest is in that."""
    said: defaultdict[str, set[str]] = defaultdict(set)
    messages: defaultdict[Address, set[str]] = defaultdict(set)
    for asked in happened.asked():
        if asked.accepted and asked.call.template == CHAT:
            for comment in asked.call.content.text.split():
                said[comment].add(asked.call.delivery_key)
                messages[asked.address].add(comment)
    for comment, where in said.items():
        if len(where) > 1:
            yield f"{comment} was told in several messages: {sorted(where)}"
    for single, address, _ in happened.story.addresses:
        for _, parts in slots.visible(happened.slot(address)):
            shown = states.shown(parts)
            if shown.reason == Reason.IN_DIGEST:
                digest = _first(happened, shown.detail.rpartition(" ")[2])
                if digest is None or not slots.is_finished(happened.slot(digest)):
                    yield f"{single.event_id} is {shown.detail}, which has no outcome"
                elif messages[digest] and single.event_id not in messages[digest]:
                    yield f"{single.event_id} is {shown.detail}, which was sent without it"


def unfinished(happened: Happened) -> bool:
    """Whether a digest has no outcome yet."""
    return any(not slots.is_finished(happened.slot(address)) for address in _digests(happened))


def _digests(happened: Happened) -> Iterator[Address]:
    topic = TOPICS.requests_bulk(TENANT)
    for record in happened.site.log.records(topic):
        if b"digest/" in (record.value or b"") and codec.decode(record.value, NotificationRequested).digest_of:
            yield keys.single_address(keys.log_epoch("here", topic), record.partition, record.offset)


def _first(happened: Happened, notification_id: str) -> Address | None:
    """Where it lives; of one that was made again, where the first does."""
    address = IDS.address(TENANT, notification_id)
    for _ in range(FOLLOWS_MAX):
        known = slots.view(happened.slot(address)) if address is not None else None
        if known is None or known.reason != Reason.DUPLICATE_OF:
            break
        address = IDS.address(TENANT, known.detail.rpartition(" ")[2])
    return address
