"""The promises, asked of what happened: each checker names what it found broken, in a sentence.

They look at the vendors' ledgers (what was called and accepted), at the status events simply merged (`truth`), and
at what the public was told; never at what a process believes of itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from schemas import keys, slots, states
from schemas.counts import Vector
from schemas.keys import Address
from schemas.messages import Channel, DeliveryState
from schemas.slots import NOTHING, Slot
from tests.simulation import chats, nights, pace, stops, too_much, turned
from tests.simulation.happened import Happened, places
from tests.simulation.site import IDS, TOPICS
from tests.simulation.workload import TENANT

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


def broken(happened: Happened) -> list[str]:
    """Every promise that was broken, in words."""
    asked = [one for one in CHECKERS if not (happened.was_set_back and one in NEED_REDIS)]
    return [f"{checker.__name__}: {text}" for checker in asked for text in checker(happened)]


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
            where[asked.call.delivery_key].add(asked.address)
            slot = happened.slot(asked.address)
            if asked.name not in slots.counted(slot):
                yield f"{asked.call.delivery_key} was sent outside its plan: {slot}"
    for key, count in accepted.items():
        name = key.rpartition(":")[2]
        doubled = sum(_doubled(happened.slot(address), name) for address in where[key])
        if count - 1 > doubled:
            yield f"{key} was accepted {count} times, {doubled} of them counted as possible duplicates"


def told_what_happened(happened: Happened) -> Iterator[str]:
    """A delivery is told as sent exactly when a provider accepted it; where that is in doubt, the doubt is counted."""
    accepted = {(asked.address, asked.name) for asked in happened.asked() if asked.accepted}
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


def no_surprise(happened: Happened) -> Iterator[str]:
    """No process died of anything but a crash, and no task of one failed unheard."""
    for name, error in happened.deployment.deaths:
        yield f"{name} died of {error!r}"
    for name, what in happened.site.loop.errors:
        yield f"in {name}, unheard: {what!r}"


def poison_parked(happened: Happened) -> Iterator[str]:
    """What nobody can read lies byte for byte in a dead letter topic."""
    parked = {record.value for record in happened.site.log.records(*_DEAD_LETTERS)}
    for topic, value in happened.poison:
        if value not in parked:
            yield f"the poison of {topic} was parked nowhere"


def newest_last(happened: Happened) -> Iterator[str]:
    """What compaction would keep of a campaign is the newest leader's word, also after an older one wrote over it."""
    for campaign_id, told in happened.truth.states.items():
        if told[-1] is not happened.truth.newest(campaign_id):
            yield f"the last state of {campaign_id} is not the newest: {told[-1]}"
    for campaign_id, cursors in happened.truth.cursors.items():
        newest = max((cursor.epoch, cursor.next_page, cursor.next_slot) for cursor in cursors)
        last = cursors[-1]
        if (last.epoch, last.next_page, last.next_slot) != newest:
            yield f"the last cursor of {campaign_id} is not the newest: {last}"


NEED_REDIS = (once, turned.turned_once, chats.told_once, too_much.capped)
"""What is kept by what only Redis knows, also of its last second."""
_DEAD_LETTERS = (*map(TOPICS.dlq, Channel), TOPICS.requests_dlq, TOPICS.internal_dlq)
CHECKERS: tuple[Callable[[Happened], Iterator[str]], ...] = (
    nobody_lost,
    counts_exact,
    once,
    told_what_happened,
    public_is_true,
    only_forward,
    newest_last,
    no_surprise,
    poison_parked,
    stops.stopped,
    turned.turned_once,
    nights.undisturbed,
    chats.told_once,
    too_much.capped,
    pace.rate_kept,
    pace.transactional_first,
    pace.small_ones_too,
)


def _doubled(slot: Slot, name: str) -> int:
    parts = slot.deliveries.get(name)
    return parts.doubled.bit_count() if parts is not None else 0


def _version(state: DeliveryState) -> int:
    return state.version
