"""How full a lane may be, and which lanes a campaign may use. Pure.

Bulk lanes hold a few seconds of what the provider allows bulk: never idle, and still short enough that a new
campaign, a pause or a cancel is felt soon. Transactional campaigns get half of the reserved slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.messages import CampaignRequested, Channel, Priority
from schemas.policies import TemplatePolicy
from schemas.topics import Topics
from streams.pace import Allowance

TRANSACTIONAL_MOST_S = 1.0


@dataclass(frozen=True, slots=True)
class Window:
    """share: the part of a provider's rate that bulk may use. least_s, most_s: seconds of it kept in a bulk lane."""

    share: float = 0.7
    least_s: float = 2.0
    most_s: float = 5.0


DEFAULT = Window()


@dataclass(slots=True)
class Lane:
    """One lane at one look. backlog counts deliveries; least_s, most_s: what it should hold, in seconds of rate.

    pace: set where workers drain the lane as fast as it fills, so that its backlog alone would not slow it down.
    """

    name: str
    rate_per_s: float
    backlog: float
    least_s: float
    most_s: float
    pace: Allowance | None = None

    def has_room(self, deliveries: float, now_s: float) -> bool:
        """Whether so many more may come. A piece larger than the lane's window goes in when little is left."""
        if self.rate_per_s <= 0 or (self.pace is not None and self.pace.left(self.rate_per_s, now_s) <= 0):
            return False
        return (
            self.backlog < self.least_s * self.rate_per_s or self.backlog + deliveries <= self.most_s * self.rate_per_s
        )

    def add(self, deliveries: float) -> None:
        self.backlog += deliveries
        if self.pace is not None:
            self.pace.spend(deliveries)


def bulk_lane(name: str, provider_rate_per_s: float, lying: float, coming: float, window: Window = DEFAULT) -> Lane:
    """The lane as it is now. lying: not finished by workers; coming: let go and not fanned out yet.

    provider_rate_per_s: of the channel's usable providers; 0: nothing may be let go. What is coming counts for at
    most what the lane should hold.
    """
    rate = provider_rate_per_s * window.share
    return Lane(name, rate, lying + min(coming, window.most_s * rate), window.least_s, window.most_s)


def transactional_lane(
    name: str,
    provider_rate_per_s: float,
    lying: float,
    coming: float,
    pace: Allowance,
    window: Window = DEFAULT,
) -> Lane:
    """The same of a transactional lane, for campaigns: singles keep the other half of what bulk may not use."""
    rate = provider_rate_per_s * (1 - window.share) / 2
    backlog = lying + min(coming, TRANSACTIONAL_MOST_S * rate)
    return Lane(name, rate, backlog, TRANSACTIONAL_MOST_S / 2, TRANSACTIONAL_MOST_S, pace)


@dataclass(frozen=True, slots=True)
class Use:
    """The lanes of one campaign. lanes: name -> its channel; expected: name -> deliveries for each recipient, 0 for
    fallback lanes beyond the first.
    """

    priority: Priority
    lanes: Mapping[str, Channel]
    expected: Mapping[str, float]


def use(request: CampaignRequested, policy: TemplatePolicy, topics: Topics) -> Use:
    """Every lane that this campaign may put something into."""
    priority = policy.priority(request.priority)
    sent = request.channels or policy.channels or policy.fallback[:1]
    rest = () if request.channels else policy.fallback
    expected = dict.fromkeys(rest, 0.0) | dict.fromkeys(sent, 1.0)
    names = {channel: topics.lane(channel, priority) for channel in expected}
    return Use(
        priority,
        {name: channel for channel, name in names.items()},
        {names[channel]: count for channel, count in expected.items()},
    )
