"""What every case needs: the servers, how large the run is, where to put things, whom to tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deploy import cost
from deploy.local.stack import Stack

SMALLEST = 200
"""Recipients below which nothing can be said."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a case found. values: numbers by the names that `figures` uses. notes: for the page."""

    values: dict[str, float]
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bench:
    """One invocation. scale: of counts and durations, 1 for figures that are to be written down.

    campaign: recipients of the large campaigns. cap_per_s: the provider's rate while it is at its cap.
    peers: the folder of the other queues' harness. seen: what an earlier case of this invocation found out for later
    ones.
    """

    stack: Stack
    folder: Path
    say: Callable[[str], None]
    scale: float = 1.0
    campaign: int = 100_000
    cap_per_s: int = 1_500
    peers: Path | None = None
    seen: dict[str, Any] = field(default_factory=dict)

    def size(self, count: int) -> int:
        """This many, in the run's scale."""
        return max(SMALLEST, round(count * self.scale))

    def seconds(self, whole_s: float) -> float:
        return max(3.0, whole_s * self.scale)

    def servers(self) -> dict[str, int | None]:
        """Kafka's and Redis's processes, where they run on this machine."""
        kafka = int(self.stack.kafka_bootstrap.partition(",")[0].rpartition(":")[2])
        return {"kafka": cost.listener(kafka), "redis": cost.listener(urlsplit(self.stack.redis_url).port or 6379)}
