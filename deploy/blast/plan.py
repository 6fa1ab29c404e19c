"""How large a blast is, how fast its provider, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

from deploy import sections
from schemas.errors import Misconfigured

CODES_PER_S = 20
SMALL = 200
LARGE_ID, SMALL_ID, CODE = "large", "small", "code"
"""The campaigns' ids and, at the beginning of their texts, the names by which the simulator counts them."""
BULK_SHARE = sections.Sending().bulk_share
LEAST_RECIPIENTS = 1_000
LEAST_RATE = 100
SLACK_S = 600.0
ANSWER_MS = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """seconds: after so many a run is given up; 0: as soon as it takes three times as long as the rate allows.

    kills: every kind of process is killed once, at moments that follow from the seed.
    """

    recipients: int = 1_000_000
    rate_per_s: int = 2_000
    seconds: float = 0.0
    seed: int = 1
    kills: bool = False

    def check(self) -> None:
        """Raises Misconfigured for numbers that nothing can be said about."""
        if self.recipients < LEAST_RECIPIENTS:
            raise Misconfigured(f"--recipients: at least {LEAST_RECIPIENTS:,}")
        if self.rate_per_s < LEAST_RATE:
            raise Misconfigured(f"--rate: at least {LEAST_RATE} a second")
        if self.seconds < 0:
            raise Misconfigured("--seconds: 0 or more")

    @property
    def burst(self) -> int:
        return self.rate_per_s // 10

    @property
    def bulk_per_s(self) -> float:
        """What the provider's rate leaves to campaigns."""
        return self.rate_per_s * BULK_SHARE

    @property
    def within_s(self) -> float:
        return self.seconds or 3 * self.recipients / self.bulk_per_s + SLACK_S
