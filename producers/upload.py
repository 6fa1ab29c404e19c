"""A stream of recipients into pages on `campaign.audience`, and what names them in the campaign's request.

All pages of a campaign lie in order in one partition; pages of other uploads may lie between them, which is
why each carries the upload's id. A page without a campaign request is never read: an upload that is refused
in its last line has sent nothing. Memory stays the same whatever the length: pages being filled, being written.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import orjson

from schemas import codec, keys
from schemas.errors import Refused, Transient
from schemas.messages import AudiencePage, Recipient
from schemas.records import Headers, Outgoing, Placed, Publisher

PAGE_RECIPIENTS = 250
PAGE_BYTES = 900_000
PAGE_USER_ID_BYTES = 12_000
"""A page's status row holds its user ids, and must stay below 64 KB."""
BATCH_PAGES = 8
BATCH_BYTES = 2_000_000
"""Written together; one batch is on its way while the next is filled."""


@dataclass(frozen=True, slots=True)
class Target:
    """Whose pages these are, and where they go."""

    topic: str
    tenant: str
    campaign_id: str
    upload_id: str
    headers: Headers


@dataclass(frozen=True, slots=True)
class Upload:
    """A whole audience. Offsets are -1 when it was only measured, not written."""

    partition: int
    first_offset: int
    last_offset: int
    pages: int
    recipients: int
    content_hash: str


async def upload(
    recipients: AsyncIterator[Sequence[Recipient]], definition: bytes, target: Target, publisher: Publisher | None
) -> Upload:
    """Writes the audience (without a publisher: only measures it). definition: what else the hash covers.

    Raises Refused for an empty or wrong audience, Transient when the log did not take all of it.
    """
    pages = Pages()
    writer = Writer(target, publisher)
    content = hashlib.sha256(definition)
    try:
        async for some in recipients:
            for recipient in some:
                text = orjson.dumps(recipient)
                content.update(text)
                page = pages.add(recipient, len(text))
                if page:
                    await writer.put(page)
                    await asyncio.sleep(0)  # other requests go on while a long stream is cut up
        last = pages.rest()
        if last:
            await writer.put(last)
        await writer.flush()
    finally:
        writer.stop()
    if not writer.recipients:
        raise Refused("recipients", "is empty: a campaign needs at least one recipient")
    return writer.result(content.hexdigest())


class Pages:
    """Cuts recipients into pages, by count, by size and by the length of their user ids."""

    def __init__(self) -> None:
        self._filling: list[Recipient] = []
        self._bytes = 0
        self._user_id_bytes = 0

    def add(self, recipient: Recipient, size: int) -> tuple[Recipient, ...]:
        """The page that is complete because this recipient no longer fits it; mostly empty."""
        user_id_bytes = len(recipient.user_id.encode())
        full: tuple[Recipient, ...] = ()
        if (
            len(self._filling) == PAGE_RECIPIENTS
            or self._bytes + size > PAGE_BYTES
            or self._user_id_bytes + user_id_bytes > PAGE_USER_ID_BYTES
        ):
            full = self.rest()
        self._filling.append(recipient)
        self._bytes += size
        self._user_id_bytes += user_id_bytes
        return full

    def rest(self) -> tuple[Recipient, ...]:
        """What is being filled; starts a new page."""
        full = tuple(self._filling)
        self._filling, self._bytes, self._user_id_bytes = [], 0, 0
        return full


class Writer:
    """Writes pages in order, one batch on its way at a time."""

    def __init__(self, target: Target, publisher: Publisher | None) -> None:
        self.recipients = 0
        self._target = target
        self._publisher = publisher
        self._key = keys.campaign_key(target.tenant, target.campaign_id).encode()
        self._pages = 0
        self._batch: list[Outgoing] = []
        self._batch_bytes = 0
        self._on_its_way: asyncio.Task[list[Placed]] | None = None
        self._places: tuple[Placed, Placed] | None = None

    async def put(self, recipients: tuple[Recipient, ...]) -> None:
        number, self._pages = self._pages, self._pages + 1
        self.recipients += len(recipients)
        if self._publisher is None:
            return
        target = self._target
        value = codec.encode(AudiencePage(target.tenant, target.campaign_id, target.upload_id, number, recipients))
        self._batch.append(Outgoing(target.topic, self._key, value, target.headers))
        self._batch_bytes += len(value)
        if len(self._batch) >= BATCH_PAGES or self._batch_bytes >= BATCH_BYTES:
            await self._send()

    async def flush(self) -> None:
        """Returns once the log has every page."""
        if self._batch:
            await self._send()
        await self._arrived()

    def stop(self) -> None:
        """Gives up what is on its way; after flush there is nothing."""
        if self._on_its_way is not None:
            self._on_its_way.cancel()

    def result(self, content_hash: str) -> Upload:
        nowhere = Placed(-1, -1)
        first, last = self._places or (nowhere, nowhere)
        return Upload(first.partition, first.offset, last.offset, self._pages, self.recipients, content_hash)

    async def _send(self) -> None:
        assert self._publisher is not None
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        await self._arrived()
        self._on_its_way = asyncio.ensure_future(self._publisher.publish(batch))

    async def _arrived(self) -> None:
        """Takes down where the batch on its way now lies."""
        if self._on_its_way is None:
            return
        placed = await self._on_its_way
        self._on_its_way = None
        first = placed[0] if self._places is None else self._places[0]
        if any(place.partition != first.partition for place in placed):
            raise Transient("the audience topic got more partitions during the upload")
        self._places = (first, placed[-1])
