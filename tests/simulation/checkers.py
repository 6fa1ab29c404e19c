"""The promises, asked of what happened: each checker names what it found broken, in a sentence.

They look at the vendors' ledgers (what was called and accepted), at the status events simply merged (`truth`), and
at what the public was told; never at what a process believes of itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from schemas import keys, slots, states
from schemas.counts import Vector
from schemas.keys import Address
from schemas.messages import DeliveryState
from schemas.slots import EMPTY, NOTHING, Slot
from tests.simulation.deployment import Deployment
from tests.simulation.site import IDS, Site
from tests.simulation.truth import Truth
from tests.simulation.vendor import Asked, fastest_second
from tests.simulation.workload import TENANT, Campaign, Story

CALLED = frozenset({"sent", "delivered", "undelivered", "bounced", "complained", "unconfirmed"})
ACCEPTED = frozenset({"sent", "delivered", "undelivered", "bounced", "complained"})
RANKS = {
    **dict.fromkeys(("accepted", "scheduled", "queued", "held", "retrying"), 0),
    **dict.fromkeys(("suppressed", "expired", "cancelled", "failed"), 1),
    **dict.fromkeys(("sent", "unconfirmed", "undelivered"), 2),
    **dict.fromkeys(("delivered", "bounced"), 3),
    "complained": 4,
}
"""A status may go to one of the same or a higher rank: late and repeated reports only add to what is known."""


@dataclass(frozen=True, slots=True)
class Happened:
    """All that is known once a run has ended."""

    site: Site
    story: Story
    truth: Truth
    deployment: Deployment

    def asked(self) -> Iterator[Asked]:
        for vendor in self.site.vendors.values():
            yield from vendor.asked

    def slot(self, address: Address) -> Slot:
        return self.truth.slots.get((address.row, address.slot), EMPTY)


def broken(happened: Happened) -> list[str]:
    """Every promise that was broken, in words."""
    checkers = (
        nobody_lost,
        counts_exact,
        once,
        told_what_happened,
        public_is_true,
        only_forward,
        rate_kept,
        no_surprise,
    )
    return [f"{checker.__name__}: {text}" for checker in checkers for text in checker(happened)]


def places(campaign: Campaign) -> Iterator[tuple[Address, str]]:
    """Where each recipient's status lives, and who it is."""
    for position, user_id in enumerate(campaign.users):
        page, slot = divmod(position, campaign.page_size)
        yield keys.recipient_address(campaign.id, page, slot), user_id


def nobody_lost(happened: Happened) -> Iterator[str]:
    """Every recipient and every single has an outcome."""
    for campaign in happened.story.campaigns:
        for address, user_id in places(campaign):
            if not slots.is_finished(happened.slot(address)):
                yield f"{user_id} of {campaign.id} ({address}) has no outcome: {happened.slot(address)}"
    for single, address, _ in happened.story.addresses:
        if not slots.is_finished(happened.slot(address)):
            yield f"single {single.event_id} ({address}) has no outcome: {happened.slot(address)}"


def counts_exact(happened: Happened) -> Iterator[str]:
    """What is told of a campaign is the sum of its recipients, and it ends when all have ended, not before."""
    for campaign in happened.story.campaigns:
        state = happened.truth.newest(campaign.id)
        if state is None or state.finished_at is None:
            yield f"{campaign.id} never ended: {state}"
            continue
        vector = Vector()
        for address, _ in places(campaign):
            vector.move(NOTHING, slots.tally(happened.slot(address)))
        true = vector.progress(TENANT, campaign.id, 0, 0)
        told = (state.finished, state.sent, state.delivered, state.possible_duplicates, state.outcomes, state.reasons)
        counted = (true.finished, true.sent, true.delivered, true.possible_duplicates, true.outcomes, true.reasons)
        if told != counted:
            yield f"{campaign.id} is told as {told}, but was {counted}"
        if state.expected != len(campaign.users) or sum(state.outcomes.values()) != state.expected:
            yield f"{campaign.id} has {len(campaign.users)} recipients: {state}"
        yield from (f"{campaign.id} {text}" for text in happened.truth.early.get(campaign.id, ()))


def once(happened: Happened) -> Iterator[str]:
    """Nobody gets a delivery twice, but for possible duplicates that are counted; nothing outside the plan."""
    accepted: Counter[str] = Counter()
    where: defaultdict[str, set[Address]] = defaultdict(set)
    for asked in happened.asked():
        if asked.accepted:
            accepted[asked.call.delivery_key] += 1
            address = _address(asked)
            where[asked.call.delivery_key].add(address)
            name = _name(asked)
            slot = happened.slot(address)
            if name not in slots.counted(slot):
                yield f"{asked.call.delivery_key} was sent outside its plan: {slot}"
    for key, count in accepted.items():
        name = key.rpartition(":")[2]
        doubled = sum(_doubled(happened.slot(address), name) for address in where[key])
        if count - 1 > doubled:
            yield f"{key} was accepted {count} times, {doubled} of them counted as possible duplicates"


def told_what_happened(happened: Happened) -> Iterator[str]:
    """A delivery is told as sent exactly when a provider accepted it; where that is in doubt, the doubt is counted."""
    accepted = {(_address(asked), _name(asked)) for asked in happened.asked() if asked.accepted}
    for (row, number), slot in happened.truth.slots.items():
        for name, parts in slots.visible(slot):
            state = states.shown(parts).state
            was_accepted = (Address(row, number), name) in accepted
            if was_accepted and state not in CALLED and not parts.doubled:
                yield f"{name} at {row}/{number} was accepted and is told as {state}"
            if not was_accepted and state in ACCEPTED:
                yield f"{name} at {row}/{number} was never accepted and is told as {state}"


def public_is_true(happened: Happened) -> Iterator[str]:
    """What was told last of a delivery is what its events come to."""
    for delivery_id, told in happened.truth.deliveries.items():
        newest = max(told, key=lambda state: state.version)
        address = IDS.address(TENANT, newest.notification_id)
        if address is None:
            yield f"{delivery_id} is nobody's"
            continue
        name = keys.shown_suffix(newest.channel, newest.device or "")
        parts = dict(slots.visible(happened.slot(address))).get(name)
        if parts is not None and (shown := states.shown(parts)).state != newest.state:
            yield f"{delivery_id} is told as {newest.state}, but is {shown.state}"


def only_forward(happened: Happened) -> Iterator[str]:
    for delivery_id, told in happened.truth.deliveries.items():
        if not told[0].channel:
            continue  # the whole notification: taken back when there are deliveries after all
        for before, after in pairwise(sorted(told, key=_version)):
            if RANKS[after.state] < RANKS[before.state]:
                yield f"{delivery_id} went from {before.state} back to {after.state}"


def rate_kept(happened: Happened) -> Iterator[str]:
    for vendor in happened.site.vendors.values():
        most = fastest_second(vendor.asked)
        if most > vendor.rate.per_s + vendor.rate.burst:
            yield f"{vendor.name} was called {most} times within a second, with {vendor.rate}"


def no_surprise(happened: Happened) -> Iterator[str]:
    """No process died of anything but a crash, and no task of one failed unheard."""
    for name, error in happened.deployment.deaths:
        yield f"{name} died of {error!r}"
    for name, what in happened.site.loop.errors:
        yield f"in {name}, unheard: {what!r}"


def _address(asked: Asked) -> Address:
    found = IDS.address(TENANT, asked.call.notification_id)
    assert found is not None, "an id that is not ours"
    return found


def _name(asked: Asked) -> str:
    return asked.call.delivery_key.rpartition(":")[2]


def _doubled(slot: Slot, name: str) -> int:
    parts = slot.deliveries.get(name)
    return parts.doubled.bit_count() if parts is not None else 0


def _version(state: DeliveryState) -> int:
    return state.version
