"""How full a lane may be, and which lanes a campaign may use. Pure.

Bulk lanes hold between 2 and 5 seconds of what the provider allows bulk: never idle, and still short enough that
a new campaign, a pause or a cancel is felt soon. Transactional campaigns get half of the reserved slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.messages import CampaignRequested, Channel, Priority
from schemas.policies import TemplatePolicy
from schemas.topics import Topics
from streams.pace import Allowance

BULK_SHARE = 0.7
TRANSACTIONAL_SHARE = 0.15
"""Half of the slice that is reserved for transactional messages: singles keep the other half."""
BULK_LEAST_S, BULK_MOST_S = 2.0, 5.0
TRANSACTIONAL_MOST_S = 1.0


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


def bulk_lane(name: str, provider_rate_per_s: float, lying: float, coming: float) -> Lane:
    """The lane as it is now. lying: not finished by workers; coming: let go and not fanned out yet.

    provider_rate_per_s: of the channel's usable providers; 0: nothing may be let go. What is coming counts for at
    most what the lane should hold.
    """
    rate = provider_rate_per_s * BULK_SHARE
    return Lane(name, rate, lying + min(coming, BULK_MOST_S * rate), BULK_LEAST_S, BULK_MOST_S)


def transactional_lane(name: str, provider_rate_per_s: float, lying: float, coming: float, pace: Allowance) -> Lane:
    """The same of a transactional lane, for campaigns."""
    rate = provider_rate_per_s * TRANSACTIONAL_SHARE
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
