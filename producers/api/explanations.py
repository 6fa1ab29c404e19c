"""GET .../explain: the whole story of one message, gathered from everywhere and told in plain words.

A source that is away leaves a gap that is named; it never makes the others silent. Words are in `producers.explaining`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from aiohttp import web

from producers import auth
from producers.api import accepted_records, bodies, campaign_answers, notification_status, openapi, people
from producers.api.accepted_records import OfCampaign, Single
from producers.api.parts import PARTS, ApiParts
from producers.auth import Scope
from producers.explaining import happened, story
from producers.explaining.facts import NOTHING_TOLD, Asked, Facts, Missing, Source, Told, Way
from producers.explaining.history import History
from producers.explaining.story import Story
from schemas import keys, local_times, slots
from schemas.backstage import Backstage
from schemas.errors import Poison, Refused, Transient
from schemas.keys import Address
from schemas.messages import Channel, Priority
from schemas.standstill import WaitsFor
from schemas.stores import ProfileWrites, SlotView

T = TypeVar("T")
PATH = "/v1/notifications/{id}/explain"
RECIPIENT_PATH = "/v1/campaigns/{id}/recipients/{user}/explain"
BEFORE_SENT_MS = 15 * 60_000
"""A recipient's events begin when their page is let go, at most so long before most of them are sent."""


@dataclass(frozen=True, slots=True)
class ExplainParts:
    """zones: of tenants, for people who have none. serves: the providers of each channel, in order."""

    backstage: Backstage
    profiles: ProfileWrites
    history: History
    zones: Mapping[str, str]
    serves: Mapping[Channel, tuple[str, ...]]
    tries_most: int


EXPLAIN = web.AppKey("explain", ExplainParts)


def register(app: web.Application, parts: ExplainParts) -> None:
    app[EXPLAIN] = parts
    app.router.add_get(people.pattern(PATH), get)
    app.router.add_get(people.pattern(RECIPIENT_PATH), get_recipient)
    openapi.describe(app, *OPERATIONS)


async def get(request: web.Request) -> web.Response:
    """By notification id, or by the id of one of its deliveries."""
    tenant, parts = auth.allow(request, Scope.READ), request.app[PARTS]
    notification_id, _, delivery = request.match_info["id"].partition(".")
    address = parts.ids.address(tenant, notification_id)
    if address is None:
        raise _unknown(notification_id)
    return await _answer(request, tenant, address, delivery.replace(".", "/"))


async def get_recipient(request: web.Request) -> web.Response:
    """By campaign and user."""
    tenant, parts = auth.allow(request, Scope.READ), request.app[PARTS]
    campaign = await campaign_answers.find(request, parts)
    user_id = people.path_id(request, "user")
    intent = keys.recipient_intent(tenant, campaign.campaign_id, user_id)
    try:
        address = await request.app[EXPLAIN].backstage.place(tenant, user_id, intent)
    except Transient:
        address = None
    if address is None and campaign.requested is not None:
        address = await accepted_records.of_user(parts, campaign.requested, user_id)
    if address is None:
        where = f"is not in the campaign {campaign.campaign_id}, or its audience is not kept any more"
        raise Refused("user", f"{user_id!r} {where}", 404)
    return await _answer(request, tenant, address, "")


async def _answer(request: web.Request, tenant: str, address: Address, delivery: str) -> web.Response:
    gathering = _Gathering(request.app[PARTS], request.app[EXPLAIN], tenant, address)
    facts = await gathering.facts(delivery)
    if facts.slot is None and facts.asked is None and not facts.missing:
        raise _unknown(request.app[PARTS].ids.notification_id(tenant, address))
    return bodies.answer(_document(facts, story.tell(facts)))


class _Gathering:
    """One message's facts; notes which sources are away."""

    def __init__(self, parts: ApiParts, more: ExplainParts, tenant: str, address: Address) -> None:
        self._parts = parts
        self._more = more
        self._tenant = tenant
        self._address = address
        self._missing: dict[Source, str] = {}

    async def facts(self, delivery: str) -> Facts:
        parts, now_ms = self._parts, self._parts.clock.now_ms()
        if parts.away() is WaitsFor.LOG:
            self._missing[Source.LOG] = "it does not answer"
        asked, slot = await asyncio.gather(
            self._logged(Source.ACCEPTED, lambda: accepted_records.at(parts, self._tenant, self._address), None),
            self._got(Source.ROW, parts.reads.slot(self._tenant, self._address), None),
        )
        known = None if asked is None else _asked(asked)
        told = await self._logged(Source.HISTORY, lambda: self._history(known, slot, now_ms), NOTHING_TOLD)
        if Source.ROW in self._missing and told.is_whole and told.events:
            slot = _by_events(told)
        template = known.template if known is not None else slot.template if slot is not None else ""
        user_id = known.user_id if known is not None else slot.user_id if slot is not None else ""
        claims, providers, zone, status = await asyncio.gather(
            self._claims(known, slot),
            self._got(Source.REDIS, self._more.backstage.providers(self._names()), {}),
            self._zone(user_id, known),
            self._campaign(now_ms),
        )
        return Facts(
            notification_id=parts.ids.notification_id(self._tenant, self._address),
            now_ms=now_ms,
            tries_most=self._more.tries_most,
            asked=known,
            policy=parts.policies.get(template),
            slot=slot,
            told=told,
            zone=zone,
            claims=claims,
            providers=providers,
            serves=self._more.serves,
            campaign=status,
            missing=tuple(Missing(source, why) for source, why in self._missing.items()),
            only=delivery,
            repeats=(notification_status.duplicate_of(slot) or "") if slot is not None else "",
        )

    async def _got(self, source: Source, asking: Awaitable[T], otherwise: T) -> T:
        try:
            return await asking
        except (Transient, Poison) as error:
            self._missing.setdefault(source, str(error).partition(": ")[0].rstrip("."))
            return otherwise

    async def _logged(self, source: Source, ask: Callable[[], Awaitable[T]], otherwise: T) -> T:
        """What the log says; while it is known to be away nobody waits for it."""
        if Source.LOG in self._missing:
            self._missing.setdefault(source, self._missing[Source.LOG])
            return otherwise
        return await self._got(source, ask(), otherwise)

    async def _history(self, asked: Asked | None, slot: SlotView | None, now_ms: int) -> Told:
        since_ms = asked.at_ms if asked is not None else slot.accepted_at_ms if slot is not None else now_ms
        if keys.is_campaign_row(self._address.row) and slot is not None:
            sent = [one.sent_at_ms for one in slot.deliveries if one.sent_at_ms]
            since_ms = max(since_ms, min(sent, default=0) - BEFORE_SENT_MS)
        return await self._more.history.of(self._tenant, self._address, since_ms)

    async def _claims(self, asked: Asked | None, slot: SlotView | None) -> Mapping[str, Any]:
        if asked is None or slot is None or not slot.deliveries:
            return {}
        suffixes = [keys.shown_suffix(one.channel, one.device) for one in slot.deliveries]
        found = self._more.backstage.claims(self._tenant, asked.user_id, asked.intent, suffixes)
        return await self._got(Source.REDIS, found, {})

    async def _zone(self, user_id: str, asked: Asked | None) -> str:
        """The person's own, where it is known; else the tenant's."""
        default = self._more.zones.get(self._tenant, "")
        wanted = asked.time_zone if asked is not None else ""
        if not wanted and user_id:
            profile = await self._got(Source.REDIS, self._more.profiles.load(self._tenant, user_id), None)
            wanted = profile.time_zone if profile is not None else ""
        return local_times.known_zone(wanted, default)[0]

    async def _campaign(self, now_ms: int) -> Any:
        if not keys.is_campaign_row(self._address.row):
            return None
        campaign_id = keys.decoded(keys.campaign_of_row(self._address.row)[0])
        found = await self._got(Source.CAMPAIGN, self._parts.campaigns.find_now(self._tenant, campaign_id), None)
        return None if found is None else found.status(now_ms)

    def _names(self) -> Sequence[str]:
        return list(dict.fromkeys(name for names in self._more.serves.values() for name in names))


def _asked(record: Single | OfCampaign) -> Asked:
    if isinstance(record, OfCampaign):
        campaign, to = record.campaign, record.recipient.to
        return Asked(
            Way.CAMPAIGN,
            record.user_id,
            campaign.template,
            campaign.accepted_at_ms,
            campaign.channels,
            campaign.priority == Priority.BULK,
            campaign.campaign_id,
            campaign.send_at_ms,
            campaign.send_at_local,
            campaign.send_on,
            campaign.expires_at_ms,
            to is not None,
            to.time_zone if to is not None else "",
            record.intent,
        )
    asked = record.asked
    return Asked(
        Way.HTTP if asked.accepted_at_ms else Way.EVENT,  # who publishes events does not know when they are accepted
        asked.user_id,
        asked.template,
        asked.accepted_at_ms or record.written_at_ms,
        asked.channels,
        asked.priority == Priority.BULK,
        "",
        asked.send_at_ms,
        asked.send_at_local,
        asked.send_on,
        asked.expires_at_ms,
        asked.to is not None,
        asked.to.time_zone if asked.to is not None else "",
        record.intent,
    )


def _by_events(told: Told) -> SlotView:
    """The row as it must be by these events: what its owner would say."""
    slot = slots.EMPTY
    for event in told.events:
        slot = slots.merge(slot, event, exact=True)
    return slots.view(slot)


def _document(facts: Facts, told: Story) -> dict[str, Any]:
    deliveries = facts.slot.deliveries if facts.slot is not None else ()
    return {
        "notification_id": told.notification_id,
        "status": told.status,
        "in_short": told.in_short,
        "story": [{"title": section.title, "lines": list(section.lines)} for section in told.sections],
        "missing": list(told.missing),
        "deliveries": [
            notification_status.delivery_answer(replace(one, detail=happened.shown(one.detail, one.reason)))
            for one in deliveries
            if facts.only in ("", keys.shown_suffix(one.channel, one.device))
        ],
    }


def _unknown(notification_id: str) -> Refused:
    return Refused("", f"no such notification: {notification_id!r}, or it is older than what is kept", 404)


OPERATIONS = (
    openapi.Operation(
        "get", PATH, "Its whole story in plain words, for support", Scope.READ, answers={200: "sentences, in order"}
    ),
    openapi.Operation(
        "get", RECIPIENT_PATH, "The same of one recipient of a campaign", Scope.READ, answers={200: "sentences"}
    ),
)
