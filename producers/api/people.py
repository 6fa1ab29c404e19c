"""What the resources about people share: their parts, the person in the path, and the way facets are written.

users, suppressions, inbox and user_notifications are registered with these parts. A write goes into the log,
then into Redis with the offset it got there, and only then it is answered: callers read what they wrote.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from aiohttp import web

from producers import fields
from producers.api import trace
from schemas.clock import Clock
from schemas.errors import Refused
from schemas.facets import FacetTopic
from schemas.messages import RecipientFacet
from schemas.records import Publisher
from schemas.stores import FacetWrite, Inbox, Profile, ProfileWrites, SuppressionWrites, Timeline
from schemas.topics import Topics

USER_PATH = "/v1/users/{id}"


def pattern(path: str) -> str:
    """The path to register: what stands for its names may hold anything but a slash. Alone, they match no braces."""
    return re.sub(r"\{(\w+)\}", r"{\1:[^/]+}", path)


@dataclass(frozen=True, slots=True)
class PeopleParts:
    """body_bytes: the longest body; devices: how many a person keeps, the newest."""

    publisher: Publisher
    topics: Topics
    facets: FacetTopic
    profiles: ProfileWrites
    suppressions: SuppressionWrites
    inbox: Inbox
    timeline: Timeline
    clock: Clock
    body_bytes: int = 65_536
    devices: int = 20


PEOPLE = web.AppKey("people", PeopleParts)
LOCKS = web.AppKey("people_locks", WeakValueDictionary[tuple[str, str], asyncio.Lock])


def register(app: web.Application, parts: PeopleParts) -> None:
    """Called by each resource about people; the first one counts."""
    if PEOPLE not in app:
        app[PEOPLE] = parts
        app[LOCKS] = WeakValueDictionary()


@asynccontextmanager
async def one_at_a_time(request: web.Request, tenant: str, user: str) -> AsyncIterator[Profile]:
    """The person as known now; whoever changes them in this process meanwhile waits, so no change is lost.

    Over several API processes the later of two simultaneous writes of one facet wins as a whole.
    """
    locks, key = request.app[LOCKS], (tenant, user)
    lock = locks.get(key) or locks.setdefault(key, asyncio.Lock())
    async with lock:
        yield await request.app[PEOPLE].profiles.load(tenant, user)


def user_id(request: web.Request) -> str:
    """The person in the path. Raises Refused."""
    return path_id(request, "id")


def path_id(request: web.Request, name: str) -> str:
    """An id in the path. Raises Refused naming it."""
    try:
        return fields.identifier(request.match_info[name])
    except ValueError as error:
        raise Refused(name, str(error)) from None


async def write(request: web.Request, tenant: str, user: str, changes: Mapping[str, RecipientFacet | None]) -> None:
    """Facet name -> its new content, None removes it; written in this order, as one.

    Raises Transient when the log or Redis did not take them: then nothing was answered, and a repeat is harmless.
    """
    if not changes:
        return
    parts = request.app[PEOPLE]
    headers = request[trace.TRACE].record_headers()
    records = [parts.facets.record(tenant, user, name, facet, headers) for name, facet in changes.items()]
    placed = await parts.publisher.publish(records)
    writes = [FacetWrite(name, at.offset, facet) for (name, facet), at in zip(changes.items(), placed, strict=True)]
    await parts.profiles.apply(tenant, user, writes)
