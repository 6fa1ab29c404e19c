"""Who gets what: stored people, deliveries as a lane holds them, pages, status batches, audiences."""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import islice, zip_longest
from typing import Any

from benchmarks import log
from benchmarks.site import Site, order
from deploy.settings import DEFAULT_TENANT as TENANT
from schemas import codec, facets, keys
from schemas.messages import (
    Channel,
    Delivery,
    Device,
    EventKind,
    FacetKind,
    Priority,
    Recipient,
    RecipientFacet,
    ReleasedPage,
    StatusBatch,
    StatusEvent,
)
from schemas.records import Outgoing

PEOPLE = 10_000
"""Stored profiles; larger loads reach the same people in several campaigns, or people who come with their addresses."""
PAGE = 250
DAY_MS = 86_400_000
TEMPLATE = order(0)
DEVICE = "phone"
STORE_WITHIN_S = 300
LINES_A_CHUNK = 500


def user(number: int) -> str:
    return f"user-{number:06}"


def params(number: int) -> str:
    return f'{{"name":"Recipient {number}","order":"A{100_000 + number}"}}'


def campaigns(count: int) -> int:
    """How many campaigns to the stored people make so many deliveries."""
    return math.ceil(count / PEOPLE)


async def store_people(site: Site, count: int) -> int:
    """Profiles with a mail address and a phone, through `route recipients`; how many, at most PEOPLE."""
    stored = min(count, PEOPLE)
    watch = log.Watch(site.kafka, site.topics.group("route recipients"))
    topic = facets.FacetTopic(site.topics.recipients, partition_count(site, site.topics.recipients))
    try:
        await log.fill(site.kafka, _facets(topic, stored))
        await log.until(lambda: not watch.left(topic.name), "people are stored", STORE_WITHIN_S)
    finally:
        watch.close()
    return stored


def _facets(topic: facets.FacetTopic, count: int) -> Iterator[Outgoing]:
    now_ms = int(time.time() * 1000)
    for number in range(count):
        user_id = user(number)
        device = Device(DEVICE, f"token-{number:032}", "android", registered_at_ms=now_ms)
        for facet in (
            RecipientFacet(TENANT, user_id, FacetKind.USER, now_ms, email=f"{user_id}@example.org", locale="en"),
            RecipientFacet(TENANT, user_id, FacetKind.DEVICE, now_ms, device=device),
        ):
            yield topic.record(TENANT, user_id, facets.name_of(facet), facet)


def deliveries(site: Site, channel: Channel, count: int, people: int) -> Iterator[Outgoing]:
    """Records of a bulk lane as fan-out writes them: campaign after campaign to the same people."""
    lane, now_ms = site.topics.lane(channel, Priority.BULK), int(time.time() * 1000)
    for number in range(count):
        made = delivery(channel, number // people, number % people, now_ms)
        yield Outgoing(lane, keys.user_key(TENANT, made.user_id).encode(), codec.encode(made))


def delivery(channel: Channel, turn: int, position: int, now_ms: int) -> Delivery:
    """Of one campaign to one person. turn: which campaign; position: who."""
    campaign, user_id = f"bench-{turn}", user(position)
    address = keys.recipient_address(campaign, position // PAGE, position % PAGE)
    return Delivery(
        tenant=TENANT,
        user_id=user_id,
        intent=keys.recipient_intent(TENANT, campaign, user_id),
        row=address.row,
        slot=address.slot,
        index=0,
        channel=channel,
        device=DEVICE if channel is Channel.PUSH else "",
        priority=Priority.BULK,
        template=order(turn),
        campaign_id=campaign,
        params=params(turn * PEOPLE + position),
        campaign_params="{}",
        to=None,
        accepted_at_ms=now_ms,
        released_at_ms=now_ms,
        expires_at_ms=now_ms + DAY_MS,
    )


def pages(site: Site, campaign: str, count: int, people: int) -> Iterator[Outgoing]:
    """Released pages of one campaign to stored people, `count` recipients in all; at most `people`."""
    now_ms = int(time.time() * 1000)
    for page, first in enumerate(range(0, min(count, people), PAGE)):
        numbers = range(first, min(first + PAGE, count, people))
        released = ReleasedPage(
            tenant=TENANT,
            campaign_id=campaign,
            page=page,
            template=TEMPLATE,
            params="{}",
            channels=(Channel.PUSH,),
            priority=Priority.BULK,
            accepted_at_ms=now_ms,
            released_at_ms=now_ms,
            expires_at_ms=now_ms + DAY_MS,
            source_offset=page,
            hop=0,
            slots=(),
            recipients=tuple(Recipient(user(number), params(number)) for number in numbers),
        )
        yield Outgoing(site.topics.pages, keys.page_key(TENANT, campaign, page).encode(), codec.encode(released))


STEPS = (EventKind.PLANNED, EventKind.SENT, EventKind.DELIVERED)


def transitions(site: Site, campaign: str, count: int, sizes: Mapping[str, float]) -> Iterator[Outgoing]:
    """Status batches of one campaign: each recipient planned, sent, delivered. sizes: events a batch by kind.

    Pages come side by side as they do when a campaign runs: some are planned while others are delivered.
    """
    abreast = PAGE * 16
    for first in range(0, count, abreast):
        rows = [range(start, min(start + PAGE, count)) for start in range(first, min(first + abreast, count), PAGE)]
        for step in STEPS:
            size = max(1, min(200, round(sizes[step])))
            lists = [list(_batches(site, campaign, numbers, step, size)) for numbers in rows]
            yield from (record for turn in zip_longest(*lists) for record in turn if record is not None)


def _batches(site: Site, campaign: str, numbers: range, step: EventKind, size: int) -> Iterator[Outgoing]:
    """One step of all recipients of one page."""
    row = keys.recipient_address(campaign, numbers.start // PAGE, 0).row
    for start in range(numbers.start, numbers.stop, size):
        part = range(start, min(start + size, numbers.stop))
        events = tuple(_event(step, number) for number in part)
        yield Outgoing(
            site.topics.status, keys.row_key(TENANT, row).encode(), codec.encode(StatusBatch(TENANT, row, events))
        )


def _event(step: EventKind, number: int) -> StatusEvent:
    slot, now_ms, suffix = number % PAGE, int(time.time() * 1000), keys.delivery_suffix(Channel.PUSH, DEVICE)
    if step is EventKind.PLANNED:
        return StatusEvent(
            slot,
            step,
            now_ms,
            plan=(suffix,),
            source_offset=0,
            user_id=user(number),
            template=TEMPLATE,
            accepted_at_ms=now_ms,
        )
    if step is EventKind.SENT:
        return StatusEvent(slot, step, now_ms, suffix, call=1, provider="gateway", provider_id=f"sim-{number:08}")
    return StatusEvent(slot, step, now_ms, index=0, call=1, provider="gateway", provider_id=f"sim-{number:08}")


def audience(count: int, stored: int) -> Iterator[bytes]:
    """Lines of NDJSON: the first `stored` have a profile, the others come with their phone, as from another system."""
    for number in range(count):
        line: dict[str, Any] = {"user_id": user(number), "params": json.loads(params(number))}
        if number >= stored:
            line["to"] = {"devices": [{"id": DEVICE, "token": f"token-{number:032}", "platform": "android"}]}
        yield json.dumps(line).encode() + b"\n"


async def chunks(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    """As a file is read."""
    while part := list(islice(lines, LINES_A_CHUNK)):
        yield b"".join(part)


def partition_count(site: Site, topic: str) -> int:
    return next(spec.partitions for spec in site.topics.specs() if spec.name == topic)
