"""`tidings campaigns`, `tidings explain`: what somebody hears while the API is away."""

from __future__ import annotations

import pytest

from deploy.commands import campaigns
from deploy.commands.campaigns import Door
from schemas.errors import Transient


async def test_who_asks_an_api_that_is_away_hears_at_once_that_it_is_asked_again_and_at_last_that_it_stayed_away(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setattr(campaigns, "PAUSES_S", (0.5, 0.5))
    said: list[str] = []
    away = f"http://127.0.0.1:{unused_tcp_port}"
    with pytest.raises(Transient, match=f"{away} did not answer; look whether it runs there"):
        await campaigns.one(Door(away, "", said.append), "spring")
    assert said == [f"{away} is not available; asking again for 1 s"]
