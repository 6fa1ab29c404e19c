"""Ports of the stores that two rooms use; each body lives in one room and is handed over by `deploy`.

A body's `ask_*` appends exactly one command to a pipelined round trip, its `read_*` reads that command's
reply; so several stores share one round trip. Every trusted round trip ends with `Epoch.ask`, checked first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from schemas import keys, messages
from schemas.errors import StoreDown


class Pipeline(Protocol):
    """A pipelined round trip in the making (redis.asyncio's pipeline satisfies it)."""

    def execute_command(self, *args: Any) -> Any: ...


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
    def ask(self, pipeline: Pipeline, tenant: str, user_id: str) -> None: ...

    def read(self, reply: Any) -> Profile: ...


class Suppressions(Protocol):
    def ask(self, pipeline: Pipeline, tenant: str, channel: str, address: str) -> None: ...

    def read(self, reply: Any) -> str:
        """The cause; "" when the address may be written to."""
        ...


class Inbox(Protocol):
    """In-app messages; the unread count is exact: a message put twice counts once."""

    async def put(self, message: messages.InboxMessage) -> None: ...


class Epoch:
    """Whether Redis's content can be trusted: the key `epoch` holds the run_id its rebuild was made for.

    run_id is set by the connection callback of the process's Redis client on every (re)connect.
    """

    def __init__(self) -> None:
        self.run_id = b""

    def ask(self, pipeline: Pipeline) -> None:
        pipeline.execute_command("GET", keys.REDIS_EPOCH)

    def check(self, reply: bytes | None) -> None:
        """Raises StoreDown when the content was not rebuilt for the server now running."""
        if reply is None or reply != self.run_id:
            raise StoreDown("Redis was emptied or restarted; waiting for `tidings route recipients` to rebuild it")


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """One delivery as the API shows it."""

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


@dataclass(frozen=True, slots=True)
class SlotView:
    """One notification as its row tells it. reason and detail: of a slot end, e.g. duplicate_of."""

    status: str
    reason: str
    detail: str
    user_id: str
    template: str
    accepted_at_ms: int
    deliveries: tuple[DeliveryView, ...]


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
