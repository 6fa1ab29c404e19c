"""A campaign looked at again and again: whatever is told of it must be possible, and never go back."""

from __future__ import annotations

from typing import Any

from tests.acceptance.world import FINISHED, PUSH, World

STAGES = ("delivered", "sent", "released", "accepted")


class Watch:
    """size: recipients of the campaign; it is the only one by push since the ledger was new."""

    def __init__(self, world: World, campaign: str, size: int) -> None:
        self._world = world
        self._campaign = campaign
        self._size = size
        self._before = dict.fromkeys(STAGES, 0)
        self.told: dict[str, Any] = {}

    async def look(self) -> dict[str, Any]:
        told = await self._world.told(self._campaign)
        arrived = (await self._world.ledger(PUSH))["sends"]
        progress, outcomes = told["progress"], sum(told["outcomes"].values())
        counts = [progress[stage] for stage in STAGES]
        assert counts == sorted(counts), f"a stage is ahead of the one before it: {progress}"
        assert progress["sent"] <= arrived, "told sent, but it did not arrive"
        assert told["expected"] == progress["accepted"] == self._size >= outcomes
        assert all(progress[stage] >= self._before[stage] for stage in STAGES), f"{self._before}, then {progress}"
        assert (told["status"] in FINISHED) <= (outcomes == self._size), f"{told['status']} with {outcomes} outcomes"
        self._before, self.told = progress, told
        return told

    async def until_sent(self, count: float, within_s: float = 60) -> None:
        await self._world.until(
            self.look, lambda told: bool(told["progress"]["sent"] >= count), f"{count:g} are sent", within_s
        )

    async def until_finished(self, within_s: float = 120) -> dict[str, Any]:
        return await self._world.until(self.look, lambda told: told["status"] in FINISHED, "is finished", within_s)

    async def until_reported(self, count: int) -> dict[str, Any]:
        """Until so many recipients are told as delivered."""
        return await self._world.until(
            self.look, lambda told: bool(told["progress"]["delivered"] >= count), f"{count} are reported"
        )
