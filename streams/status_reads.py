"""Reads of status rows from any process: finds the row's owner in Redis and asks it over HTTP.

The other end is `streams/status_view.py`; the API, dispatch and operators' commands read through this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from schemas import keys, partitions
from schemas.errors import Transient
from schemas.stores import DeliveryView, SlotView
from schemas.trips import Trips, asked

TIMEOUT = aiohttp.ClientTimeout(total=2.0)


class OwnerReads:
    """StatusReads port. http keeps its connections; group, partition_count: of `delivery.status`."""

    def __init__(self, http: aiohttp.ClientSession, trips: Trips, group: str, partition_count: int) -> None:
        self._http = http
        self._trips = trips
        self._group = group
        self._partition_count = partition_count

    async def slot(self, tenant: str, address: keys.Address) -> SlotView | None:
        found = await self._ask("slot", tenant, address.row, {"slot": str(address.slot)})
        return _slot_view(found[0]) if found else None

    async def row(self, tenant: str, row: str) -> Sequence[SlotView | None]:
        return [_slot_view(one) for one in await self._ask("row", tenant, row, {})]

    async def _ask(self, what: str, tenant: str, row: str, more: Mapping[str, str]) -> list[Any]:
        key = keys.row_key(tenant, row).encode()
        url = await self._owner(partitions.murmur2_partition(key, self._partition_count))
        try:
            async with self._http.get(
                f"{url}/{what}", params={"tenant": tenant, "row": row, **more}, timeout=TIMEOUT
            ) as response:
                if response.status != 200:
                    raise Transient(f"the status of {row} cannot be read now: its owner answered {response.status}")
                found: list[Any] = await response.json()
                return found
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Transient(f"the owner of the status of {row} does not answer: {type(error).__name__}") from error

    async def _owner(self, partition: int) -> str:
        key = keys.redis_owner(self._group, partition)
        (found,) = await asked(self._trips, lambda trip: trip.execute_command("GET", key))
        if not found:
            raise Transient(f"status partition {partition} has no owner now; it is being restored")
        return str(found.decode())


def _slot_view(found: Any) -> SlotView | None:
    if found is None:
        return None
    deliveries = tuple(DeliveryView(**delivery) for delivery in found.pop("deliveries"))
    return SlotView(**found, deliveries=deliveries)
