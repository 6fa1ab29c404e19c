"""How an in-app message is stored in Redis and travels in the news: everything besides its ids and its read mark."""

from __future__ import annotations

import orjson

from schemas.messages import InboxMessage


def pack(message: InboxMessage) -> bytes:
    return orjson.dumps(
        [message.template, message.title, message.text, message.data, message.at_ms, message.expires_at_ms]
    )


def unpack(tenant: str, user_id: str, notification_id: bytes, read_at_ms: bytes, body: bytes) -> InboxMessage:
    template, title, text, data, at_ms, expires_at_ms = orjson.loads(body)
    return InboxMessage(
        tenant,
        user_id,
        notification_id.decode(),
        template,
        title,
        text,
        data,
        at_ms,
        expires_at_ms,
        read_at_ms=int(read_at_ms),
    )
