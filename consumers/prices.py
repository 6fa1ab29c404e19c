"""What one call costs at a provider: in micro-units, whole numbers, so that no budget is ever off by a rounding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumers import countries
from schemas import sms_segments
from schemas.content import Content
from schemas.messages import Channel

MICROS = 1_000_000
"""In one unit of the currency that prices and budgets are given in."""


@dataclass(frozen=True, slots=True)
class Prices:
    """One provider's, in micro-units. default: where the number's country has none, and on other channels than SMS."""

    by_country: Mapping[str, int]
    default: int

    def cost(self, channel: Channel, address: str, content: Content) -> int:
        """Of an SMS by its segments and the country of the number; of anything else by the message."""
        if channel is not Channel.SMS:
            return self.default
        price = self.by_country.get(countries.country(address), self.default) if self.by_country else self.default
        return price * sms_segments.count(content.text).segments
