"""A call has a hard end of its own, whatever the calls beside it do."""

from __future__ import annotations

import asyncio

import pytest

from consumers.deadlines import Deadlines


async def for_ever(deadlines: Deadlines) -> None:
    with deadlines.begin():
        await asyncio.Event().wait()


async def test_a_call_that_never_ends_is_left_when_its_time_is_up_and_the_next_has_its_own_time() -> None:
    deadlines, began_s = Deadlines(0.05), asyncio.get_running_loop().time()
    first = asyncio.create_task(for_ever(deadlines))
    await asyncio.sleep(0.03)
    second = asyncio.create_task(for_ever(deadlines))
    for task, ends_s in ((first, 0.05), (second, 0.08)):
        with pytest.raises(TimeoutError):
            await task
        assert asyncio.get_running_loop().time() - began_s >= ends_s - 0.001


async def test_a_call_that_ended_in_time_is_left_alone_afterwards() -> None:
    deadlines = Deadlines(0.02)

    async def short() -> str:
        with deadlines.begin():
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        return "undisturbed"

    late = asyncio.create_task(for_ever(deadlines))
    assert await short() == "undisturbed"
    with pytest.raises(TimeoutError):
        await late


async def test_whoever_cancels_a_call_ends_it_as_cancelled_even_when_its_time_is_up_as_well() -> None:
    deadlines = Deadlines(0.01)
    task = asyncio.create_task(for_ever(deadlines))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    both = asyncio.create_task(for_ever(deadlines))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.01, both.cancel)
    asyncio.get_running_loop().call_later(0.01, both.cancel)
    with pytest.raises(asyncio.CancelledError):
        await both


async def test_a_failure_of_the_call_stays_that_failure() -> None:
    with pytest.raises(ConnectionError), Deadlines(5.0).begin():
        raise ConnectionError
