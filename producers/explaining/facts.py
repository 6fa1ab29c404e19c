"""All that is known of one message, from wherever it could be read. Pure data; `story` makes sentences of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from schemas.backstage import ClaimView, ProviderView
from schemas.messages import CampaignStatus, Channel, StatusEvent
from schemas.policies import TemplatePolicy
from schemas.stores import SlotView


class Way(StrEnum):
    """How it was asked for."""

    HTTP = "http"
    EVENT = "event"
    CAMPAIGN = "campaign"


class Source(StrEnum):
    """Where facts come from: what may be missing."""

    ACCEPTED = "the accepted request"
    ROW = "the status row"
    HISTORY = "the log of events"
    REDIS = "Redis"
    LOG = "the log"
    CAMPAIGN = "the campaign"


class Missing(NamedTuple):
    """A source that could not be read, and why."""

    source: Source
    why: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked, as the accepted record has it. send_at_local, send_on: a start in the user's own zone.

    own_contact: it brought addresses of its own, beside those of the profile.
    """

    way: Way
    user_id: str
    template: str
    at_ms: int
    channels: tuple[Channel, ...] = ()
    is_lowered: bool = False
    campaign_id: str = ""
    send_at_ms: int = 0
    send_at_local: str = ""
    send_on: str = ""
    expires_at_ms: int = 0
    own_contact: bool = False
    time_zone: str = ""
    intent: str = ""


class Told(NamedTuple):
    """What the log of events says. is_whole: read from the first to the newest; else until_ms is how far."""

    events: tuple[StatusEvent, ...] = ()
    is_whole: bool = True
    until_ms: int = 0


NOTHING_TOLD = Told()


@dataclass(frozen=True, slots=True)
class Facts:
    """zone: the user's, "" = not known. claims: by delivery suffix. serves: the providers of a channel, in order.

    only: the one delivery that was asked about ("" = all). repeats: the id that this one is a repeat of.
    """

    notification_id: str
    now_ms: int
    tries_most: int
    asked: Asked | None = None
    policy: TemplatePolicy | None = None
    slot: SlotView | None = None
    told: Told = NOTHING_TOLD
    zone: str = ""
    claims: Mapping[str, ClaimView] = field(default_factory=dict)
    providers: Mapping[str, ProviderView] = field(default_factory=dict)
    serves: Mapping[Channel, tuple[str, ...]] = field(default_factory=dict)
    campaign: CampaignStatus | None = None
    missing: tuple[Missing, ...] = ()
    only: str = ""
    repeats: str = ""

    def is_untouched(self) -> bool:
        """Whether the log says for certain that nothing was done with it yet."""
        return self.told.is_whole and not self.told.events and not self.lacks(Source.HISTORY)

    def lacks(self, source: Source) -> bool:
        return any(missing.source is source for missing in self.missing)
