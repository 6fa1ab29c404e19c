"""Places at a provider: whoever waits for them goes in company, so that claims share round trips."""

from __future__ import annotations

import asyncio

from consumers.sending import Room


async def test_who_waited_behind_another_gathers_company_too_instead_of_going_alone() -> None:
    room = Room(4)
    await room.take(4, 0.0)
    first, second = (asyncio.create_task(room.take(4, 0.0)) for _ in range(2))
    await asyncio.sleep(0)
    room.give(2)
    assert await first == 2
    await asyncio.sleep(0)
    room.give(1)
    await asyncio.sleep(0)
    room.give(1)
    assert await second == 2


async def test_nobody_waits_for_company_while_there_are_places_enough() -> None:
    room = Room(4)
    async with asyncio.timeout(1):
        assert await room.take(3, 60.0) == 3
