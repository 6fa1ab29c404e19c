"""Which of a channel's providers a delivery goes to.

The first one in the settings; a small share goes to the second always, so that it is known to be well on the day it
is needed. When the first is open, paused or held, the second gets all. A delivery keeps to its provider by its key,
and a call in doubt is repeated at the provider that has it, which alone can tell by the key, for a while, though it
may be away: one whose answer was lost, and one of a dead worker.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from consumers import throttles, verdicts, wishes
from consumers.breaker import Gate
from consumers.send_checks import Wait
from consumers.sending import Health, Seat, Sending, WorkerOptions
from consumers.telling import Teller
from schemas.clock import Clock
from schemas.reasons import Reason
from schemas.trips import Trips

_HASHES = 1 << 32


class Standby:
    """Chooses seats; whoever finds none is put off."""

    def __init__(
        self, trips: Trips, seats: Sequence[Seat], teller: Teller, clock: Clock, options: WorkerOptions
    ) -> None:
        self._trips = trips
        self._seats = seats
        self._numbers = {seat.provider.name: number for number, seat in enumerate(seats)}
        self._teller = teller
        self._clock = clock
        self._options = options
        self._drawn_below = int(options.standby_share * _HASHES) if len(seats) > 1 else 0

    async def place(self, ready: Sequence[Sending], seen: Sequence[Health]) -> list[tuple[Seat, list[Sending]]]:
        """Who goes where, in the order given. Raises StoreDown."""
        if len(seen) == 1 and self._is_usable(seen[0]) and not seen[0].paused:
            return [(self._seats[0], list(ready))]
        placed: list[list[Sending]] = [[] for _ in self._seats]
        for sending in ready:
            sending.is_probe = False
        for number, health in enumerate(seen):
            if health.state.gate is Gate.HALF_OPEN and not self._is_paused(health):
                chosen = await self._probes(number, ready)
                placed[number] += chosen
                ready = [sending for sending in ready if not sending.is_probe] if chosen else ready
        usual = sorted(range(len(seen)), key=lambda number: seen[number].state.is_avoided)
        for sending in ready:
            found = self._seat_for(sending, seen, usual)
            if isinstance(found, Wait):
                self._teller.stop(sending, found)
            else:
                placed[found].append(sending)
        return [(self._seats[number], there) for number, there in enumerate(placed) if there]

    def number(self, seat: Seat) -> int:
        """Its place in the settings' order, by which claims name it."""
        return self._numbers[seat.provider.name]

    async def _probes(self, number: int, ready: Sequence[Sending]) -> list[Sending]:
        """Those whose calls test whether an open breaker's provider is back, though another one may be well."""
        able = [sending for sending in ready if self._called_before(sending) in (None, number)]
        if not able:
            return []
        breaker = self._seats[number].breaker
        trip = self._trips.begin()
        breaker.ask_probe(trip)
        (reply,) = await trip.execute()
        chosen = able[: breaker.read_probe(reply)]
        for sending in chosen:
            sending.is_probe = True
        return chosen

    def _seat_for(self, sending: Sending, seen: Sequence[Health], usual: Sequence[int]) -> int | Wait:
        number = self._called_before(sending)
        if number is None:
            return self._first_of(self._order(sending, seen, usual), sending, seen)
        found = self._first_of((number,), sending, seen)
        if not isinstance(found, Wait):
            return found
        tied_until_ms = sending.delivery.doubted_at_ms + self._options.stay_ms
        return found._replace(until_ms=min(found.until_ms, tied_until_ms))

    def _first_of(self, order: Sequence[int], sending: Sending, seen: Sequence[Health]) -> int | Wait:
        for number in order:
            if self._is_usable(seen[number]):
                return self._alone(sending, number, seen[number])
        return self._wait([seen[number] for number in order])

    def _order(self, sending: Sending, seen: Sequence[Health], usual: Sequence[int]) -> Sequence[int]:
        """The seats that may be taken, the best first."""
        if self._drawn_below and all(map(self._is_well, seen[:2])) and self._is_drawn(sending):
            return (1,)
        return usual

    def _called_before(self, sending: Sending) -> int | None:
        """The seat of the provider that has a call of it in doubt; None: any will do, also where it is none of ours.

        One that must not be repeated ends at its claim, whoever is well.
        """
        if wishes.is_in_doubt(sending):
            return None
        name = verdicts.doubted_at(sending.delivery, self._options.stay_ms, self._clock.now_ms())
        return self._numbers.get(name)

    def _is_drawn(self, sending: Sending) -> bool:
        return zlib.crc32(sending.bid.delivery_key.encode()) < self._drawn_below

    def _alone(self, sending: Sending, number: int, health: Health) -> int | Wait:
        """This seat, unless its provider wants to be left alone with the recipient: no other is tried instead."""
        if not health.paused:
            return number
        left_ms = throttles.left_ms(health.paused, sending.delivery.channel, sending.address)
        return Wait(self._clock.now_ms() + left_ms, Reason.PROVIDER_THROTTLED) if left_ms else number

    def _wait(self, seen: Sequence[Health]) -> Wait:
        """Until the first of them may be back."""
        left_ms, reason = min((self._left_ms(one), _reason(one)) for one in seen)
        return Wait(self._clock.now_ms() + max(left_ms, self._options.probe_pause_ms), reason)

    def _left_ms(self, health: Health) -> int:
        """Of a pause it is known; how long a breaker stays open is only guessed: nobody waits long without a look."""
        return max(min(health.state.left_ms, self._options.come_back_ms), health.paused.get(throttles.LANE, 0))

    def _is_well(self, health: Health) -> bool:
        return self._is_usable(health) and not health.state.is_avoided

    def _is_usable(self, health: Health) -> bool:
        return health.state.gate is Gate.CLOSED and not self._is_paused(health)

    def _is_paused(self, health: Health) -> bool:
        """A short pause is the pocket's own business: no token comes until it is over."""
        return health.paused.get(throttles.LANE, 0) > self._options.leave_lane_ms


def _reason(health: Health) -> Reason:
    if health.state.gate is Gate.CLOSED:
        return Reason.PROVIDER_THROTTLED
    return Reason.PROVIDER_CONFIG if health.state.is_hold else Reason.PROVIDER_DOWN
