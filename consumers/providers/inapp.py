"""The provider of the in-app channel: ourselves. Into the log first, then into the person's inbox.

The topic `inbox` is the truth; a message that is already there is not written again in any sense that a
person could see: its key is the notification, and the inbox counts it once.
"""

from __future__ import annotations

import logging

from consumers.providers.contract import Call, Way
from schemas import codec, keys, metrics, traces
from schemas.clock import Clock
from schemas.errors import Poison, StoreDown, Transient
from schemas.messages import InboxMessage
from schemas.outcomes import Kind, Outcome
from schemas.records import Outgoing, Publisher
from schemas.stores import Inbox

log = logging.getLogger(__name__)

KEPT_MS = 30 * 24 * 3_600_000
"""How long an inbox keeps a message; the topic's retention is the same."""


class InappProvider:
    """Needs no account. There are no callbacks: what is in the inbox has arrived."""

    carries_reference = True

    def __init__(self, topic: str, publisher: Publisher, inbox: Inbox, clock: Clock, name: str = "inapp") -> None:
        self.name = name
        self._topic = topic
        self._publisher = publisher
        self._inbox = inbox
        self._clock = clock

    async def reach(self) -> Way | Outcome:
        """Itself: whoever holds the log's publisher is there."""
        return self

    def leave(self) -> None:
        """Nobody waits for it."""

    async def send(self, call: Call) -> Outcome:
        """DONE once the log has it; RETRY when it does not answer: a repeat of the same notification is one message."""
        message = _message(call, self._clock.now_ms())
        try:
            await self._publisher.publish([self._record(call, message)])
        except Transient:
            return Outcome(Kind.RETRY, detail="the log did not take the message")
        except Poison:
            return Outcome(Kind.DROP, detail="the message does not fit into the log")
        try:
            await self._inbox.put(message)
        except StoreDown as error:
            # It is in the log, from which `route recipients` puts it into the inbox: it will arrive.
            log.warning("inbox.put_left_to_the_log", extra={"error": str(error)})
        metrics.INBOX_PUT.inc()
        return Outcome(Kind.DONE, provider_id=call.notification_id)

    async def close(self) -> None:
        """Holds nothing of its own."""

    def _record(self, call: Call, message: InboxMessage) -> Outgoing:
        key = keys.inbox_key(message.tenant, message.user_id, message.notification_id)
        headers = ((traces.HEADER, call.traceparent.encode()),) if call.traceparent else ()
        return Outgoing(self._topic, key.encode(), codec.encode(message), headers)


def _message(call: Call, now_ms: int) -> InboxMessage:
    return InboxMessage(
        tenant=call.tenant,
        user_id=call.user_id,
        notification_id=call.notification_id,
        template=call.template,
        title=call.content.title,
        text=call.content.text,
        data=call.content.data,
        at_ms=now_ms,
        expires_at_ms=now_ms + KEPT_MS,
    )
