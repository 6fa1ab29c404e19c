"""kill -9 of a sender in the middle of a large campaign, and what it costs."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from schemas import codec
from schemas.messages import DeliveryState
from tests.acceptance import open_calls, people
from tests.acceptance.world import PUSH, World

WORKERS = ("work-push.bulk", "work-push.bulk-2")
ANSWER_MS = 300
"""Longer than tokens come apart: whoever gets any has calls open from one grant to the next."""
LATELY = 20
"""Accepted from one of them since the first look."""
WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Cost:
    """lost: recipients that the provider never heard of. repeats: messages it took beside the first of each delivery.

    in_flight: calls that were open when the sender died. told: possible duplicates in the campaign's counts.
    whole_after_s: from the kill until the last of the open calls was made good.
    """

    lost: int
    repeats: int
    in_flight: int
    told: int
    whole_after_s: float


async def kill_in_the_middle(world: World, size: int, sends: int, lease_s: float) -> Cost:
    """A campaign of this size; the sender dies when the provider has taken so many messages."""
    await world.new_ledger()
    await world.faults(PUSH, answer_ms=ANSWER_MS)
    users = [world.name(f"reader{number}") for number in range(size)]
    campaign = await world.campaign("news", people.readers(users))
    await world.until(
        lambda: world.ledger(PUSH), lambda seen: seen["sends"] >= sends, "the middle is reached", WITHIN_S
    )
    os.kill(await world.running(await _busiest(world)), signal.SIGKILL)
    killed_s = time.time()
    left_open = await open_calls.after_kill(world, campaign, users, lease_s)

    told = await world.until_finished(campaign, WITHIN_S)
    for role in ("work push.bulk", "status"):
        await world.until_read(role)
    told = await world.until_told(
        campaign, lambda seen: seen["progress"]["delivered"] == size, "is delivered", WITHIN_S
    )
    assert (told["status"], told["outcomes"]) == ("processed", {"delivered": size})
    assert left_open, "it died with no call open: that proves nothing"
    book = [sends for _, sends in (await world.calls(PUSH, people.reader_keys(campaign, users))).values()]
    repeats = sum(book) - size
    await world.until_repeats_are_told(campaign, repeats)
    made_good_s = await _sent_s(world, campaign)
    return Cost(
        lost=book.count(0),
        repeats=repeats,
        in_flight=len(left_open),
        told=(await world.told(campaign))["possible_duplicates"],
        whole_after_s=max(made_good_s[user] for user in left_open) - killed_s,
    )


async def _busiest(world: World) -> str:
    """The sender from which the provider accepted most just now.

    Not the one that has most in hand: it may be the one that waits, as tokens go to the earliest records first.
    """
    before = await _sent(world)

    async def look() -> dict[str, float]:
        return {role: sent - before[role] for role, sent in (await _sent(world)).items()}

    lately = await world.until(look, lambda sent: max(sent.values()) >= LATELY, "one of them sends", WITHIN_S)
    return max(lately, key=lately.__getitem__)


async def _sent(world: World) -> dict[str, float]:
    """Worker -> how many deliveries a provider accepted from it."""
    counted = {role: await world.numbers(role) for role in WORKERS}
    return {
        role: sum(count for name, count in numbers.items() if name.startswith("tidings_sent_total"))
        for role, numbers in counted.items()
    }


async def _sent_s(world: World, campaign: str) -> dict[str, float]:
    """User -> when the newest call of their delivery was accepted, as `notification.state` tells it."""
    found: dict[str, tuple[int, float]] = {}
    for record in await world.records(world.topics.state):
        state = codec.decode(record.value, DeliveryState) if record.value else None
        if state is not None and state.campaign_id == campaign and state.sent_at is not None:
            found[state.user_id] = max(found.get(state.user_id, (-1, 0.0)), (state.version, state.sent_at / 1000))
    return {user: sent_s for user, (_, sent_s) in found.items()}
