"""What operators ordered, as a sender knows it before its first record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from consumers.controls import Controls
from schemas import codec, keys
from schemas.messages import CampaignControl, CampaignOrder
from schemas.records import Record
from schemas.topics import Topics

TOPICS = Topics()


def ordered(order: CampaignOrder, campaign: str = "spring", key: str = "") -> Record:
    value = codec.encode(CampaignControl("default", campaign, order, 0, 1))
    name = key or keys.campaign_key("default", campaign)
    return Record(TOPICS.campaign_control, 0, 0, name.encode(), value, (), 0)


class OldTails:
    """A topic that holds these records already."""

    def __init__(self, *records: Record) -> None:
        self.records = records
        self.topics: Sequence[str] = ()

    async def follow(self, topics: Sequence[str], on_record: Callable[[Record], None]) -> OldTails:
        self.topics = topics
        self._on_record = on_record
        return self

    async def caught_up(self) -> None:
        for record in self.records:
            self._on_record(record)

    async def seen(self, topic: str, placed: object) -> None:
        return None


async def known(*records: Record) -> CampaignOrder:
    controls = Controls()
    await controls.load(OldTails(*records), TOPICS)
    return controls.order("default", "spring")


async def test_a_campaign_nobody_spoke_of_is_running() -> None:
    assert await known() is CampaignOrder.RUNNING
    assert await known(ordered(CampaignOrder.PAUSED, "other")) is CampaignOrder.RUNNING


async def test_pause_and_resume_hold_in_their_order() -> None:
    assert await known(ordered(CampaignOrder.PAUSED)) is CampaignOrder.PAUSED
    assert await known(ordered(CampaignOrder.PAUSED), ordered(CampaignOrder.RUNNING)) is CampaignOrder.RUNNING


async def test_a_cancel_is_never_undone_by_a_later_pause_or_resume() -> None:
    cancel = ordered(CampaignOrder.CANCELLED, key=keys.cancel_key("default", "spring"))
    for later in (CampaignOrder.RUNNING, CampaignOrder.PAUSED):
        assert await known(cancel, ordered(later)) is CampaignOrder.CANCELLED


async def test_a_pace_or_a_weight_neither_resumes_nor_pauses() -> None:
    for order in (CampaignOrder.PACE, CampaignOrder.WEIGHT):
        assert await known(ordered(CampaignOrder.PAUSED), ordered(order)) is CampaignOrder.PAUSED
        assert await known(ordered(order)) is CampaignOrder.RUNNING


async def test_an_unreadable_order_changes_nothing() -> None:
    garbage = Record(TOPICS.campaign_control, 0, 1, b"default/spring", b"\x00nonsense", (), 0)
    tombstone = Record(TOPICS.campaign_control, 0, 2, b"default/spring", None, (), 0)
    assert await known(ordered(CampaignOrder.PAUSED), garbage, tombstone) is CampaignOrder.PAUSED
