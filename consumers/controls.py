"""What operators want of each campaign, in memory: asked before every call, so a pause or cancel holds within 2 s.

Follows all of `campaign.control` from its start; `lane_worker` sees no lane record before `load` returned.
A cancel has a key of its own on the topic: no later pause or resume undoes it, only the tombstone that dispatch writes
long after the campaign has ended. A pace or a weight changes nothing here: dispatch lets go accordingly.
"""

from __future__ import annotations

import logging

from schemas import codec, forgetting, keys, metrics
from schemas.errors import Poison
from schemas.messages import CampaignControl, CampaignOrder
from schemas.records import Record, Tails
from schemas.topics import Topics

log = logging.getLogger(__name__)


class Controls:
    """The newest order of every campaign that is not simply running, and when it was given."""

    def __init__(self) -> None:
        self._paused: dict[tuple[str, str], int] = {}
        self._cancelled: dict[tuple[str, str], int] = {}

    async def load(self, tails: Tails, topics: Topics) -> None:
        """Returns when everything ordered so far is known; goes on following."""
        view = await tails.follow([topics.campaign_control], self.see)
        await view.caught_up()

    def order(self, tenant: str, campaign_id: str) -> CampaignOrder:
        """What holds now; a campaign nobody spoke of is running."""
        campaign = (tenant, campaign_id)
        if campaign in self._cancelled:
            return CampaignOrder.CANCELLED
        return CampaignOrder.PAUSED if campaign in self._paused else CampaignOrder.RUNNING

    def see(self, record: Record) -> None:
        """One record of the topic. An unreadable one is logged and changes nothing."""
        if record.value is None:
            self._forget(record)
            return
        try:
            control = codec.decode(record.value, CampaignControl)
        except Poison as error:
            log.error("control.unreadable", extra={"offset": record.offset, "error": str(error)})
            return
        campaign = (control.tenant, control.campaign_id)
        match control.order:
            case CampaignOrder.CANCELLED:
                self._cancelled[campaign] = control.at_ms
            case CampaignOrder.PAUSED:
                self._paused[campaign] = control.at_ms
            case CampaignOrder.RUNNING:
                self._paused.pop(campaign, None)
            case CampaignOrder.PACE | CampaignOrder.WEIGHT:
                return
        self._tell()

    def _forget(self, record: Record) -> None:
        """Its campaign ended long ago (`schemas/forgetting.py`)."""
        tenant, campaign_id, kind = keys.campaign_part(record.key or b"")
        for order, given in ((CampaignOrder.PAUSED, self._paused), (CampaignOrder.CANCELLED, self._cancelled)):
            at_ms = given.get((tenant, campaign_id)) if kind == keys.order_kind(order) else None
            if at_ms is not None and forgetting.is_old(at_ms, record.timestamp_ms):
                del given[tenant, campaign_id]
        self._tell()

    def _tell(self) -> None:
        metrics.CONTROL_CAMPAIGNS.labels("paused").set(len(self._paused))
        metrics.CONTROL_CAMPAIGNS.labels("cancelled").set(len(self._cancelled))
