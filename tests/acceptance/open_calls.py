"""Which calls a worker had open when it was killed, as the claims in Redis tell it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import redis.asyncio

from consumers import claims
from schemas import keys
from tests.acceptance import people
from tests.acceptance.world import World

SETTLED_S = 1.5
"""By then whoever lives has settled what was begun before, and no lease of the dead has run out."""


LATER_S = 1.0
"""Leases begin at the latest time at which they may have been given: a slow round trip later than they were."""


async def after_kill(world: World, campaign: str, users: Sequence[str], lease_s: float) -> list[str]:
    """Call right after the kill: the users whose calls nobody will settle."""
    lease_end_ms = int((time.time() + lease_s + LATER_S) * 1000)
    before = {
        user: entry.token
        for user, entry in (await _claims(world, campaign, users)).items()
        if entry.is_open() and entry.lease_end_ms <= lease_end_ms
    }
    await asyncio.sleep(SETTLED_S)
    found = await _claims(world, campaign, users)
    return [user for user, token in before.items() if user in found and _is_left_open(found[user], token)]


def _is_left_open(entry: claims.Entry, token: bytes) -> bool:
    """Its holder never settled it: still theirs and open, or taken over since."""
    return entry.takeovers > 0 or (entry.is_open() and entry.token == token)


async def _claims(world: World, campaign: str, users: Sequence[str]) -> dict[str, claims.Entry]:
    wanted = zip(users, people.reader_keys(campaign, users), strict=True)
    places = [keys.redis_claim(people.TENANT, user, key) for user, key in wanted]
    async with redis.asyncio.Redis.from_url(world.deployment.redis_url) as client:
        raws = await client.mget(places)
    return {user: claims.unpacked_entry(raw) for user, raw in zip(users, raws, strict=True) if raw}
