"""What operators ordered of one campaign: the newest of each kind, as `campaign.control` keeps them."""

from __future__ import annotations

from schemas import forgetting, keys
from schemas.messages import CampaignControl, CampaignOrder


class GivenOrders:
    """Kinds do not touch each other, and a cancel is never undone."""

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest: dict[str, CampaignControl] = {}

    def __bool__(self) -> bool:
        return bool(self._newest)

    def copy(self) -> GivenOrders:
        """Of its own: what it takes or loses changes nothing here."""
        made = GivenOrders()
        made._newest.update(self._newest)
        return made

    def take(self, control: CampaignControl) -> None:
        """The newest of its kind."""
        self._newest[keys.order_kind(control.order)] = control

    def lose(self, kind: str, at_ms: int) -> None:
        """A tombstone was written then for this kind (of `keys.campaign_part`)."""
        given = self._newest.get(kind)
        if given is not None and forgetting.is_old(given.at_ms, at_ms):
            del self._newest[kind]

    def given(self) -> list[CampaignOrder]:
        """One of each kind there is."""
        return [control.order for control in self._newest.values()]

    @property
    def is_cancelled(self) -> bool:
        return keys.order_kind(CampaignOrder.CANCELLED) in self._newest

    @property
    def is_paused(self) -> bool:
        given = self._newest.get(keys.order_kind(CampaignOrder.PAUSED))
        return given is not None and given.order is CampaignOrder.PAUSED

    @property
    def pace_per_s(self) -> int | None:
        """As last ordered, 0 = no limit of its own; None when none was."""
        given = self._newest.get(keys.order_kind(CampaignOrder.PACE))
        return given.pace_per_s if given is not None else None

    @property
    def weight(self) -> int | None:
        """As last ordered; None when none was."""
        given = self._newest.get(keys.order_kind(CampaignOrder.WEIGHT))
        return given.weight if given is not None else None
