"""How much of a provider's work may be retries: a tenth. A sick provider is not hit harder by its own failures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """share: retries per send. floor: retries that are always allowed, so that little traffic can be retried at all."""

    share: float = 0.1
    floor: int = 10

    def allows(self, sends: int, retries: int) -> bool:
        """Whether one more retry fits, given the sends and retries of the last while over all workers."""
        return retries + 1 <= max(self.floor, self.share * sends)
