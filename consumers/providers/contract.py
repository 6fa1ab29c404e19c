"""The port of a provider: a way there, one call in, one outcome out. Adapters decide nothing about retries."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from schemas.content import Content
from schemas.messages import Channel
from schemas.outcomes import Outcome

ALONE_MS = 60_000
"""How long a recipient, or a mail domain, that a provider wants less of is left alone when it does not say."""


class Call(NamedTuple):
    """One delivery, ready to go. to: the normalised address (device token, email, E.164 number, user id for inapp).

    reference is what callbacks must carry back. traceparent is "" when the record had none that is valid.
    """

    tenant: str
    user_id: str
    delivery_key: str
    notification_id: str
    reference: str
    channel: Channel
    template: str
    to: str
    content: Content
    expires_at_ms: int
    traceparent: str = ""


class Way(Protocol):
    """A way to the provider for one call: as a rule a connection, nobody else's until it is left."""

    async def send(self, call: Call) -> Outcome:
        """What the provider made of it. Never raises for what the outside world does, never retries or sleeps.

        Ends within what `reach` has left of the provider's own time-out; a time-out or a lost connection after the
        request may have left is UNKNOWN, before it NOT_PROCESSED.
        """
        ...

    def leave(self) -> None:
        """After the call, or instead of one."""
        ...


class Provider(Protocol):
    """One configured account at one vendor."""

    name: str
    carries_reference: bool
    """Whether the vendor returns `Call.reference` in its callbacks; else settle keeps `pm:<provider>:<message id>`."""

    async def reach(self) -> Way | Outcome:
        """A way for one call, to be left by whoever got it; or what came of looking for one: nothing was sent then.

        Asked before the call's token is spent: of those that waited for a connection none goes faster than the rate.
        Never raises for what the outside world does, never retries. Ends within the provider's own time-out.
        """
        ...

    async def close(self) -> None: ...
