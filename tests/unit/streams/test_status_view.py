"""Reads at the owner: what it answers, and when it must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from schemas import keys
from schemas.messages import EventKind
from streams.status_view import Owner, StatusView
from tests.doubles.memory_trips import MemoryTrips
from tests.doubles.status_events import event, planned
from tests.doubles.status_road import PAGE, StatusRoad, batch

URL = "http://10.0.0.1:8099"
GROUP = "tidings-status"


class Served:
    """An owner of one row, asked as over HTTP."""

    def __init__(self, road: StatusRoad, trips: MemoryTrips) -> None:
        self.road = road
        self.trips = trips
        self.owner = Owner(road.flow, trips, GROUP, URL, road.clock)
        self._app = StatusView(road.flow, self.owner, 1).app()

    async def get(self, path: str) -> Any:
        request = make_mocked_request("GET", path, app=self._app)
        found = await self._app.router.resolve(request)
        response = await found.handler(request)
        assert isinstance(response, web.Response) and isinstance(response.body, bytes)
        return orjson.loads(response.body)


@pytest.fixture
async def served(tmp_path: Path) -> Served:
    road = StatusRoad(tmp_path)
    await road.restart()
    await road.write(batch(planned("email", slot=2), event(EventKind.SENT, slot=2)))
    await road.read()
    served = Served(road, MemoryTrips())
    await served.owner.beat()
    return served


async def test_the_owner_says_where_it_is_for_three_seconds_at_a_time(served: Served) -> None:
    assert served.trips.kept == {keys.redis_owner(GROUP, 0): (URL, "EX", 3)}


async def test_a_slot_and_a_row_are_answered(served: Served) -> None:
    (slot,) = await served.get(f"/slot?tenant=default&row={PAGE}&slot=2")
    assert (slot["status"], slot["user_id"], slot["template"]) == ("sent", "42", "welcome")
    assert await served.get(f"/row?tenant=default&row={PAGE}") == [None, None, slot]
    assert await served.get(f"/slot?tenant=default&row={PAGE}&slot=7") == [None]
    assert await served.get("/row?tenant=default&row=c.other.0") == []


async def test_an_owner_whose_heartbeat_is_too_old_answers_nothing(served: Served) -> None:
    served.trips.down = True
    served.road.clock.advance(4_900)
    await served.owner.beat()
    assert await served.get(f"/slot?tenant=default&row={PAGE}&slot=2")
    served.road.clock.advance(200)
    with pytest.raises(web.HTTPServiceUnavailable) as refused:
        await served.get(f"/slot?tenant=default&row={PAGE}&slot=2")
    assert refused.value.headers["Retry-After"]


async def test_rows_of_a_partition_that_was_taken_away_are_not_answered(served: Served) -> None:
    served.road.flow.revoked({0})
    with pytest.raises(web.HTTPServiceUnavailable):
        await served.get(f"/row?tenant=default&row={PAGE}")
    await served.owner.beat()


@pytest.mark.parametrize("slot", ["", "x", "-1"])
async def test_a_slot_is_a_number(served: Served, slot: str) -> None:
    with pytest.raises(web.HTTPBadRequest):
        await served.get(f"/slot?tenant=default&row={PAGE}&slot={slot}")
