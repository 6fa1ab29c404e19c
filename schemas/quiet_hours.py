"""Until when somebody must be left alone: a template's quiet hours, else its tenant's, in the user's own zone.

Fan-out asks before it plans, a worker at its checks and again just before the call. The arithmetic of the clocks is
`schemas/local_times.py`'s. Transactional messages go at any hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from schemas import local_times
from schemas.policies import MessageClass, QuietWindow, TemplatePolicy

DEFAULT_ZONE = "UTC"
TOO_LONG = "the user's quiet hours end after its expiry"
SPREAD_MS = 30 * 60_000
"""Over how long those who waited are spread: else every telephone rings at eight."""
_DAY_MINUTES = 24 * 60


class Nights(NamedTuple):
    """The quiet hours of one template for one tenant's users. window None: there are none; zone: of who has none;
    spread_ms: over how long at most those who waited are spread.
    """

    window: QuietWindow | None
    zone: str
    spread_ms: int = SPREAD_MS

    def until_ms(self, own_zone: str, at_ms: int, delay_ms: int = 0) -> int:
        """0: may be written to at this moment. Else when the quiet hours end, and delay_ms later: less where the
        spread is shorter than that, or they would begin again.

        own_zone: "" or one that nobody knows stands for the tenant's.
        """
        if self.window is None:
            return 0
        zone, _ = local_times.known_zone(own_zone, self.zone)
        end_ms = _until_ms(self.window, zone, at_ms // 1_000)
        if not end_ms or not delay_ms:
            return end_ms
        later_ms = end_ms + delay_ms % min(_room_ms(self.window), self.spread_ms)
        return end_ms if _until_ms(self.window, zone, later_ms // 1_000) else later_ms


class QuietHours:
    """Of every template and tenant of a deployment. windows: of tenants that have any; zones: of those who are not in
    DEFAULT_ZONE. A template's own word wins.
    """

    def __init__(
        self, windows: Mapping[str, QuietWindow], zones: Mapping[str, str], spread_ms: int = SPREAD_MS
    ) -> None:
        self._windows = windows
        self._zones = zones
        self._spread_ms = spread_ms
        self._known: dict[tuple[str, str], Nights] = {}

    def of(self, tenant: str, policy: TemplatePolicy) -> Nights:
        """Worked out once: policies do not change while a process runs."""
        known = self._known.get((tenant, policy.name))
        if known is None:
            zone = self._zones.get(tenant, DEFAULT_ZONE)
            known = Nights(self._window(tenant, policy), zone, self._spread_ms)
            self._known[tenant, policy.name] = known
        return known

    def _window(self, tenant: str, policy: TemplatePolicy) -> QuietWindow | None:
        if policy.message_class is MessageClass.TRANSACTIONAL:
            return None
        own = policy.quiet_hours if policy.quiet_hours is not None else self._windows.get(tenant)
        return own if isinstance(own, QuietWindow) else None


@lru_cache(local_times.REMEMBERED)
def _until_ms(window: QuietWindow, zone: str, at_s: int) -> int:
    """By whole seconds, on which windows begin and end: asked for every call, it is reckoned once a second."""
    return local_times.quiet_until_ms(window.begins, window.ends, zone, at_s * 1_000)


@lru_cache(local_times.REMEMBERED)
def _room_ms(window: QuietWindow) -> int:
    """Over how long those who waited may be spread: half of what lies between two windows, so that the last get out."""
    return (_minutes(window.begins) - _minutes(window.ends)) % _DAY_MINUTES * 30_000


def _minutes(time: str) -> int:
    return int(time[:2]) * 60 + int(time[3:])
