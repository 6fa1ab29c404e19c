"""Steering of a campaign: pause, resume, cancel, and another pace or weight while it runs.

An order is in the log before it is answered, and read back; dispatch and every sender follow `campaign.control`. Each
kind of order lies under a key of its own, so two operators at two instances can only overwrite each other's order of
the same kind: there the last one in the log counts, and a cancel is never undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aiohttp import web

from producers import auth, fields
from producers.api import bodies, campaign_answers, openapi, trace
from producers.api.parts import PARTS, ApiParts
from producers.auth import Scope
from producers.campaign import Campaign
from producers.request_bodies import CampaignChangeBody
from schemas import codec, keys, metrics
from schemas.errors import Refused
from schemas.messages import CampaignControl, CampaignOrder
from schemas.records import Headers, Outgoing

PATH = "/v1/campaigns/{id}"
BODY_MAX = 1_024


def register(app: web.Application) -> None:
    app.router.add_patch(PATH, change)
    app.router.add_post(PATH + "/pause", pause)
    app.router.add_post(PATH + "/resume", resume)
    app.router.add_post(PATH + "/cancel", cancel)
    openapi.describe(app, *OPERATIONS)


async def pause(request: web.Request) -> web.Response:
    return await _order(request, CampaignOrder.PAUSED)


async def resume(request: web.Request) -> web.Response:
    return await _order(request, CampaignOrder.RUNNING)


async def cancel(request: web.Request) -> web.Response:
    return await _order(request, CampaignOrder.CANCELLED)


async def change(request: web.Request) -> web.Response:
    """202 with the campaign as it is now; what the body leaves out stays."""
    parts, campaign = await _addressed(request)
    body = fields.read(CampaignChangeBody, await bodies.read_json(request, parts.limits.body_bytes))
    orders = _changes(parts, campaign, body)
    if not orders:
        raise Refused("pace_per_s", "is missing, and so is weight: nothing would change")
    return await _give(parts, campaign, orders, request[trace.TRACE].record_headers())


async def _order(request: web.Request, order: CampaignOrder) -> web.Response:
    """202 with the campaign as it is now; the same order again is the same answer."""
    parts, campaign = await _addressed(request)
    await _check_is_bare(request)
    control = CampaignControl(campaign.tenant, campaign.campaign_id, order, 0, parts.clock.now_ms())
    return await _give(parts, campaign, [control], request[trace.TRACE].record_headers())


async def _addressed(request: web.Request) -> tuple[ApiParts, Campaign]:
    """Raises Refused 403 and 404."""
    parts = request.app[PARTS]
    tenant = auth.allow(request, Scope.CAMPAIGNS, Scope.OPERATE)
    campaign_id = request.match_info["id"]
    campaign = await parts.campaigns.find_newest(tenant, campaign_id)
    if campaign is None:
        raise campaign_answers.unknown(campaign_id)
    return parts, campaign


async def _check_is_bare(request: web.Request) -> None:
    """No body says anything here."""
    if (await bodies.read_at_most(request, BODY_MAX)).strip() not in (b"", b"{}"):
        raise Refused("", "this call takes no body")


def _changes(parts: ApiParts, campaign: Campaign, body: CampaignChangeBody) -> list[CampaignControl]:
    now_ms, given = parts.clock.now_ms(), body.model_fields_set
    orders = []
    if "pace_per_s" in given:
        pace = body.pace_per_s or 0
        orders.append(CampaignControl(campaign.tenant, campaign.campaign_id, CampaignOrder.PACE, pace, now_ms))
    if "weight" in given:
        order = CampaignOrder.WEIGHT
        orders.append(CampaignControl(campaign.tenant, campaign.campaign_id, order, 0, now_ms, body.weight))
    return orders


async def _give(
    parts: ApiParts, campaign: Campaign, orders: Sequence[CampaignControl], headers: Headers
) -> web.Response:
    """Raises Refused 409 when it is too late, Transient when the log does not take them: they may hold or not."""
    for order in orders:
        objection = campaign.objection(order.order, parts.clock.now_ms())
        if objection:
            raise Refused("", objection, 409)
    placed = await parts.publisher.publish([_record(parts, order, headers) for order in orders])
    for order in orders:
        metrics.CAMPAIGN_ORDERS.labels(campaign.tenant, order.order.value).inc()
    if not await parts.campaigns.seen_orders(placed):
        campaign = replace(campaign, orders=campaign.orders.copy())
        for order in orders:
            campaign.orders.take(order)
    return bodies.answer(campaign_answers.campaign_answer(parts, campaign), 202)


def _record(parts: ApiParts, order: CampaignControl, headers: Headers) -> Outgoing:
    key = keys.control_key(order.tenant, order.campaign_id, order.order).encode()
    return Outgoing(parts.topics.campaign_control, key, codec.encode(order), headers)


_TOO_LATE = "it has ended, or was cancelled"
_WHO = (Scope.CAMPAIGNS, Scope.OPERATE)
OPERATIONS = (
    openapi.Operation(
        "patch",
        PATH,
        "Another pace or weight from now on; a pace of null lifts the limit",
        _WHO,
        body=CampaignChangeBody,
        answers={202: "the campaign", 404: "no such campaign", 409: _TOO_LATE},
    ),
    *(
        openapi.Operation(
            "post", f"{PATH}/{word}", summary, _WHO, answers={202: "the campaign", 404: "no such campaign", 409: late}
        )
        for word, summary, late in (
            ("pause", "No call later than 2 s after the answer, until it is resumed", _TOO_LATE),
            ("resume", "Goes on where it was paused; who was sent to is not sent to again", _TOO_LATE),
            ("cancel", "Whoever was not sent to ends as cancelled; never undone", "it has ended otherwise"),
        )
    ),
)
