"""Ports of the stores that two rooms use; each body lives in one room and is handed over by `deploy`.

A body's `ask_*` adds exactly one command to a round trip (`schemas.trips`), its `read_*` reads that command's
reply; so several stores share one trip.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Any, Protocol

from schemas import keys, messages, timeline
from schemas.quick import dataclass
from schemas.trips import Trip


@dataclass(frozen=True, slots=True)
class Profile:
    """A user as known now. version rises with every write; 0 = nothing stored. opt_outs: (channel, kind)."""

    version: int = 0
    erased: bool = False
    email: str = ""
    phone: str = ""
    locale: str = ""
    time_zone: str = ""
    devices: tuple[messages.Device, ...] = ()
    opt_outs: frozenset[tuple[str, str]] = field(default_factory=frozenset)

    def opted_out(self, channel: str, template: str, message_class: str) -> bool:
        """Whether an opt-out covers it: kind is a template's name or a class; "*" means all of either."""
        kinds = ("*", template, message_class)
        return any((c, k) in self.opt_outs for c in ("*", channel) for k in kinds)


class Profiles(Protocol):
    def ask(self, trip: Trip, tenant: str, user_id: str) -> None: ...

    def read(self, reply: Any) -> Profile: ...


class Suppressions(Protocol):
    def ask(self, trip: Trip, tenant: str, channel: str, address: str) -> None: ...

    def read(self, reply: Any) -> str:
        """The cause; "" when the address may be written to."""
        ...


@dataclass(frozen=True, slots=True)
class FacetWrite:
    """One facet as the log has it. name: the last part of its record key; facet None: it was removed."""

    name: str
    offset: int
    facet: messages.RecipientFacet | None


class ProfileWrites(Protocol):
    """What the API needs of the profile store beside the log."""

    async def apply(self, tenant: str, user_id: str, writes: Sequence[FacetWrite]) -> tuple[str, ...]:
        """Stores what is newer than what is there; names the facets that an erasure among them removed.

        Raises StoreDown when Redis does not answer.
        """
        ...

    async def load(self, tenant: str, user_id: str) -> Profile:
        """The profile now. Raises StoreDown when Redis cannot be trusted."""
        ...


class SuppressionWrites(Protocol):
    """What the API and the callbacks need of the suppression store beside the log. Both raise StoreDown."""

    async def apply(self, tenant: str, channel: str, hashed: str, offset: int, cause: str) -> None:
        """Stores the cause, "" removes it, unless something newer is there."""
        ...

    async def load(self, tenant: str, channel: str, hashed: str) -> str:
        """The cause; "" when the address may be written to."""
        ...


@dataclass(frozen=True, slots=True)
class InboxItem:
    """One message as the inbox has it. seq rises with every arrival of a user's inbox."""

    seq: int
    message: messages.InboxMessage


@dataclass(frozen=True, slots=True)
class InboxView:
    """Newest first. seq: the newest sequence number given so far."""

    seq: int
    unread: int
    items: tuple[InboxItem, ...]


@dataclass(frozen=True, slots=True)
class InboxNews:
    """Something happened in an inbox: `arrived`, or (None) messages were read or removed."""

    seq: int
    unread: int
    arrived: messages.InboxMessage | None = None


class Inbox(Protocol):
    """In-app messages; the unread count is exact: a message put twice counts once. All raise StoreDown."""

    async def put(self, message: messages.InboxMessage) -> None: ...

    async def view(self, tenant: str, user_id: str) -> InboxView: ...

    async def mark_read(self, tenant: str, user_id: str, notification_ids: Sequence[str], at_ms: int) -> int:
        """Marks these as read; returns what is left unread. Unknown ids change nothing."""
        ...

    def live(self, tenant: str, user_id: str) -> AbstractAsyncContextManager[AsyncIterator[InboxNews]]:
        """News from the moment the block is entered; the iterator raises StoreDown when some may be missing."""
        ...


class Timeline(Protocol):
    async def newest(self, tenant: str, user_id: str) -> Sequence[timeline.Entry]:
        """Newest first. Raises StoreDown."""
        ...


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """One delivery as the API shows it. generation, call: of the newest call; 0 while there is none."""

    channel: str
    device: str
    state: str
    reason: str
    detail: str
    provider: str
    calls: int
    sent_at_ms: int
    waits_until_ms: int
    possible_duplicates: int
    generation: int = 0
    call: int = 0


@dataclass(frozen=True, slots=True)
class SlotView:
    """One notification as its row tells it. status, reason and detail: of the delivery that says most of it; without
    any, of a slot end, e.g. duplicate_of, or, with waits_until_ms, of what the whole waits for before it is planned.
    """

    status: str
    reason: str
    detail: str
    user_id: str
    template: str
    accepted_at_ms: int
    deliveries: tuple[DeliveryView, ...]
    waits_until_ms: int = 0


class StatusReads(Protocol):
    """Reads of status rows through their owner."""

    async def slot(self, tenant: str, address: keys.Address) -> SlotView | None:
        """The slot; None when its row holds nothing of it yet. Raises Transient while no owner can answer."""
        ...

    async def row(self, tenant: str, row: str) -> Sequence[SlotView | None]:
        """All slots of a row by position; empty when there is no such row. Raises Transient likewise."""
        ...


class Cancellations(Protocol):
    """Cancel of one notification: flag the intent, see which of its deliveries can still be stopped."""

    async def cancel(self, tenant: str, user_id: str, intent: str) -> Sequence[tuple[str, str]] | None:
        """Sets the flag; returns (delivery suffix, "waiting" | "sending" | "sent") of the plan's deliveries.

        None when there is no plan yet: nothing was put into a lane, so all of it is stopped.
        """
        ...


class Drops(Protocol):
    """Deliveries that an operator dropped from hold."""

    async def drop(self, deliveries: Sequence[messages.Delivery], at_ms: int) -> None:
        """No record of these is sent from now on. What was sent already stays so. Raises StoreDown."""
        ...
