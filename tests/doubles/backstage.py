"""What senders know, in memory: the Backstage port and the profiles beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas import keys
from schemas.backstage import ClaimView, ProviderState, ProviderView
from schemas.errors import StoreDown
from schemas.stores import FacetWrite, Profile


class MemoryBackstage:
    """claimed: (intent, suffix) -> its claim. places: intent -> where it was planned. is_away: Redis is."""

    def __init__(self) -> None:
        self.is_away = False
        self.claimed: dict[tuple[str, str], ClaimView] = {}
        self.places: dict[str, keys.Address] = {}

    async def claims(self, tenant: str, user_id: str, intent: str, suffixes: Sequence[str]) -> Mapping[str, ClaimView]:
        self._answers()
        return {suffix: self.claimed[intent, suffix] for suffix in suffixes if (intent, suffix) in self.claimed}

    async def place(self, tenant: str, user_id: str, intent: str) -> keys.Address | None:
        self._answers()
        return self.places.get(intent)

    async def providers(self, names: Sequence[str]) -> Mapping[str, ProviderView]:
        self._answers()
        return {name: ProviderView(ProviderState.WELL) for name in names}

    async def apply(self, tenant: str, user_id: str, writes: Sequence[FacetWrite]) -> tuple[str, ...]:
        raise NotImplementedError("nobody who explains writes")

    async def load(self, tenant: str, user_id: str) -> Profile:
        self._answers()
        return Profile(1, time_zone="Asia/Tokyo" if user_id == "u1" else "")

    def _answers(self) -> None:
        if self.is_away:
            raise StoreDown("Redis does not answer")
