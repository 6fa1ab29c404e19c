"""How full a lane may be, and which lanes a campaign may use. Pure.

Bulk lanes hold a few seconds of what the provider allows bulk: never idle, and still short enough that a new
campaign, a pause or a cancel is felt soon. Transactional campaigns get half of the reserved slice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from schemas.messages import CampaignRequested, Channel, Priority
from schemas.policies import TemplatePolicy
from schemas.topics import Topics
from streams.pace import Allowance

TRANSACTIONAL_MOST_S = 1.0
LARGEST_PIECE = 250
"""Recipients of a full page: no piece that is let go holds more."""


@dataclass(frozen=True, slots=True)
class Window:
    """share: the part of a provider's rate that bulk may use. least_s, most_s: seconds of it kept in a bulk lane.

    piece_s: a piece is at most so many seconds of what its flow gets of the slowest lane that it fills: whoever is a
    piece ahead at one end of ten seconds and a piece behind at the other has still its share within a twentieth.
    least_piece_s: nor need it be less than so many seconds of the whole lane, where very many flows share it.
    """

    share: float = 0.7
    least_s: float = 2.0
    most_s: float = 5.0
    piece_s: float = 0.25
    least_piece_s: float = 0.02

    def rate(self, provider_rate_per_s: float, priority: Priority) -> float:
        """What campaigns and bulk singles may send in a second; in transactional lanes half of the reserve."""
        return provider_rate_per_s * (self.share if priority is Priority.BULK else (1 - self.share) / 2)

    def piece(self, rates_per_s: Collection[float], share: float, pace_per_s: float | None = None) -> int:
        """How many go at most in one turn into lanes of these rates, of a flow with this share of them.

        pace_per_s: its own, if it has one.
        """
        seconds = max(self.piece_s * share, self.least_piece_s)
        most = min(seconds * min(rates_per_s), self.piece_s * pace_per_s if pace_per_s else LARGEST_PIECE)
        return min(LARGEST_PIECE, max(1, int(most)))


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

    @property
    def is_overfull(self) -> bool:
        """Whether it holds more than those who fill it by `has_room` can have put there."""
        least, most = self.least_s * self.rate_per_s, self.most_s * self.rate_per_s
        return self.backlog > max(most, least + LARGEST_PIECE)

    def reserve(self, deliveries: float) -> None:
        """Keeps room, for this look, for a piece that waits for another lane."""
        self.backlog += deliveries

    def add(self, deliveries: float) -> None:
        self.backlog += deliveries
        if self.pace is not None:
            self.pace.spend(deliveries)


def bulk_lane(name: str, provider_rate_per_s: float, lying: float, coming: float, window: Window = DEFAULT) -> Lane:
    """The lane as it is now. lying: not finished by workers; coming: let go and not fanned out yet.

    provider_rate_per_s: of the channel's usable providers; 0: nothing may be let go. What is coming counts for at
    most what the lane should hold.
    """
    rate = window.rate(provider_rate_per_s, Priority.BULK)
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
    rate = window.rate(provider_rate_per_s, Priority.TRANSACTIONAL)
    backlog = lying + min(coming, TRANSACTIONAL_MOST_S * rate)
    return Lane(name, rate, backlog, TRANSACTIONAL_MOST_S / 2, TRANSACTIONAL_MOST_S, pace)


@dataclass(frozen=True, slots=True)
class Use:
    """The lanes of one campaign: name -> its channel, those with a provider only.

    sent: every recipient gets a delivery into each; fallback: one lane after the other is tried, in this order.
    """

    priority: Priority
    sent: Mapping[str, Channel]
    fallback: Mapping[str, Channel]

    @property
    def lanes(self) -> dict[str, Channel]:
        return {**self.sent, **self.fallback}

    def filled(self, rates: Mapping[Channel, float]) -> tuple[str, ...]:
        """The lanes that a page of it fills now, by what each channel's usable providers allow.

        All of `sent`, usable or not. Without any, the first fallback lane that is usable; nothing while none is.
        """
        if self.sent:
            return tuple(self.sent)
        return tuple([lane for lane, channel in self.fallback.items() if rates[channel] > 0][:1])


def use(request: CampaignRequested, policy: TemplatePolicy, topics: Topics, served: Collection[Channel]) -> Use:
    """Every lane that this campaign may put something into. served: the channels that have a provider."""
    priority = policy.priority(request.priority)

    def named(channels: Collection[Channel]) -> dict[str, Channel]:
        return {topics.lane(channel, priority): channel for channel in channels if channel in served}

    return Use(priority, named(request.channels or policy.channels), {} if request.channels else named(policy.fallback))
