"""What operators dropped, as the leader tells the claims: same port as `consumers/drops.py`."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.errors import StoreDown
from schemas.messages import Delivery


class Dropped:
    """deliveries: those dropped so far. down: Redis does not answer."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.down = False

    async def drop(self, deliveries: Sequence[Delivery], at_ms: int) -> None:
        if self.down:
            raise StoreDown("told to be away")
        self.deliveries += deliveries
