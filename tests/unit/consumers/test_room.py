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


async def test_the_batches_that_came_first_get_all_their_places_before_a_later_one_gets_any() -> None:
    """Each comes again for the rest of its deliveries; while one makes its claims, the next may go."""
    room, order = Room(1), list[int]()

    async def batch(rank: int) -> None:
        for _ in range(3):
            await room.take(1, 0.0, rank)
            order.append(rank)
            asyncio.get_running_loop().call_soon(room.give, 1)

    async with asyncio.timeout(5):
        await asyncio.gather(batch(1), batch(2), batch(3))
    assert 1 not in order[order.index(3) :], order


async def test_a_cancelled_waiter_keeps_nobody_from_the_places() -> None:
    room = Room(1)
    await room.take(1, 0.0)
    waiting = [asyncio.create_task(room.take(1, 0.0, rank)) for rank in range(4)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # it has the turn, and waits for a place
    waiting[1].cancel()  # it waits for the turn
    await asyncio.sleep(0)
    waiting[2].cancel()  # the turn has just been passed on to it
    async with asyncio.timeout(5):
        room.give(1)
        assert await waiting[3] == 1
