"""Campaigns: POST with its audience inline or streamed, and the reads.

`campaign_orders.py` steers them, `campaign_recipients.py` lists who got what.

The log alone decides who came first: after its own request is in the log, the API reads `campaign.requests`
up to it, and the first request of an id is the campaign.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from producers import auth, fields, recipient_lines, requests, upload
from producers.api import bodies, campaign_answers, openapi, trace
from producers.api.parts import PARTS, ApiParts
from producers.auth import Scope
from producers.campaign import First
from producers.request_bodies import CampaignBody, RecipientBody
from schemas import codec, keys, metrics
from schemas.errors import Refused, Transient
from schemas.messages import CampaignRequested, Recipient
from schemas.records import Outgoing

PATH = "/v1/campaigns"
CHUNK_BYTES = 32_768
SEEN_TIMEOUT_S = 10.0
Recipients = AsyncIterator[Sequence[Recipient]]
_BROKEN = (ValueError, AssertionError, RuntimeError, HttpProcessingError)
"""What aiohttp's reader of parts raises for bytes that are none."""


def register(app: web.Application) -> None:
    app.router.add_post(PATH, post)
    app.router.add_get(PATH, campaign_answers.get_all)
    app.router.add_get(PATH + "/{id}", campaign_answers.get)
    openapi.describe(app, *OPERATIONS)


@dataclass(frozen=True, slots=True)
class _Wish:
    """A campaign as asked for, its audience still to be read."""

    tenant: str
    campaign_id: str
    body: CampaignBody
    recipients: Recipients
    traced: trace.Trace
    asked_at_ms: int


async def post(request: web.Request) -> web.Response:
    """202 once all pages and then the request are in the log; the same id and content: the same answer."""
    tenant = auth.allow(request, Scope.CAMPAIGNS)
    parts = request.app[PARTS]
    asked_at_ms = parts.clock.now_ms()
    body, recipients = await _read(request, parts.limits, asked_at_ms)
    campaign_id = body.campaign_id or _id_of_key(request.headers.get("Idempotency-Key"))
    return await _accept(parts, _Wish(tenant, campaign_id, body, recipients, request[trace.TRACE], asked_at_ms))


async def _accept(parts: ApiParts, wish: _Wish) -> web.Response:
    known = await parts.campaigns.first(wish.tenant, wish.campaign_id)
    if known is not None:
        measured = await _upload(parts, wish, "", write=False)
        return _same(wish, known, measured)
    _draft(parts, wish)
    upload_id = parts.random_bytes(8).hex()
    written = await _upload(parts, wish, upload_id, write=True)
    if parts.gap is not None:
        parts.gap("after_audience")
    first = await _first_request(parts, wish, upload_id, written)
    if first.upload_id != upload_id:
        return _same(wish, first, written)
    metrics.CAMPAIGNS_ACCEPTED.labels(wish.tenant).inc()
    metrics.RECIPIENTS_ACCEPTED.labels(wish.tenant).inc(written.recipients)
    return _accepted(wish, first, {})


async def _upload(parts: ApiParts, wish: _Wish, upload_id: str, *, write: bool) -> upload.Upload:
    headers = wish.traced.record_headers()
    target = upload.Target(parts.topics.audience, wish.tenant, wish.campaign_id, upload_id, headers)
    publisher = parts.publisher if write else None
    return await upload.upload(wish.recipients, requests.definition_text(wish.body), target, publisher)


async def _first_request(parts: ApiParts, wish: _Wish, upload_id: str, written: upload.Upload) -> First:
    """Writes this request, last of all; returns the first one of its id, which may be another."""
    asked = _asked(parts, wish, upload_id, written)
    key = keys.campaign_key(wish.tenant, wish.campaign_id).encode()
    record = Outgoing(parts.topics.campaign_requests, key, codec.encode(asked), wish.traced.record_headers())
    [placed] = await parts.publisher.publish([record])
    if parts.gap is not None:
        parts.gap("after_request")
    try:
        async with asyncio.timeout(SEEN_TIMEOUT_S):
            await parts.campaigns.seen(placed)
    except TimeoutError:
        raise Transient("the campaign's request was written but not read back in time") from None
    first = await parts.campaigns.first(wish.tenant, wish.campaign_id)
    assert first is not None, "a view holds what it has seen"
    return first


def _asked(parts: ApiParts, wish: _Wish, upload_id: str, written: upload.Upload) -> CampaignRequested:
    """Its time is that of the end of the upload: a long one must not eat the expiry."""
    return replace(
        _draft(parts, wish),
        upload_id=upload_id,
        partition=written.partition,
        first_offset=written.first_offset,
        last_offset=written.last_offset,
        pages=written.pages,
        recipients=written.recipients,
        content_hash=written.content_hash,
    )


def _draft(parts: ApiParts, wish: _Wish) -> CampaignRequested:
    """What is asked for, judged now. Raises Refused."""
    now_ms, asked_at_ms = parts.clock.now_ms(), wish.asked_at_ms
    who = (wish.body, wish.campaign_id, wish.tenant)
    return requests.campaign(*who, parts.policies, now_ms, parts.limits, asked_at_ms)


def _same(wish: _Wish, first: First, asked: upload.Upload) -> web.Response:
    """The first request's answer, when this one asks for the same."""
    if first.content_hash != asked.content_hash:
        raise Refused("campaign_id", "was used for another campaign before; a new campaign needs a new id")
    return _accepted(wish, first, {"Idempotent-Replayed": "true"})


def _accepted(wish: _Wish, first: First, headers: dict[str, str]) -> web.Response:
    body = {"campaign_id": wish.campaign_id, "status": "accepted", "expected": first.recipients}
    return bodies.answer(body, 202, {"Location": f"{PATH}/{wish.campaign_id}", **headers})


def _id_of_key(key: str | None) -> str:
    """Without a campaign_id the Idempotency-Key names the campaign."""
    if not key:
        raise Refused("campaign_id", "is missing; without it an Idempotency-Key header must name the campaign", 400)
    return "k-" + hashlib.sha256(requests.idempotency_key(key).encode()).hexdigest()[:24]


async def _read(request: web.Request, limits: requests.Limits, now_ms: int) -> tuple[CampaignBody, Recipients]:
    """The definition, and the recipients: inline ones checked already, streamed ones as they come."""
    if request.content_type.startswith("multipart/"):
        return await _read_parts(request, limits, now_ms)
    body = fields.read(CampaignBody, await bodies.read_json(request, limits.inline_bytes))
    if body.recipients is None:
        raise Refused("recipients", "is missing; a long audience can be streamed as a second part")
    if len(body.recipients) > limits.inline_recipients:
        raise Refused("recipients", f"holds more than {limits.inline_recipients}; stream them as a second part")
    return body, _inline(body.recipients, limits, now_ms)


async def _inline(
    recipients: Sequence[RecipientBody], limits: requests.Limits, now_ms: int
) -> AsyncIterator[Sequence[Recipient]]:
    for position, body in enumerate(recipients):
        try:
            recipient = body.recipient(now_ms)
            requests.check_params(recipient.params, limits)
        except Refused as error:
            raise Refused(f"recipients.{position}.{error.field}", error.text) from None
        yield [recipient]


async def _read_parts(request: web.Request, limits: requests.Limits, now_ms: int) -> tuple[CampaignBody, Recipients]:
    try:
        reader = await request.multipart()
        raw = await _small_part(await reader.next(), limits.body_bytes)
        audience = await reader.next()
    except _BROKEN as error:
        raise _broken(error) from None
    body = fields.read(CampaignBody, raw)
    if body.recipients is not None:
        raise Refused("recipients", "belongs into the second part here")
    if not isinstance(audience, BodyPartReader) or audience.name != "recipients":
        raise Refused("recipients", "the second part must be named recipients", 400)
    return body, recipient_lines.recipients(_chunks(reader, audience), _line_reader(audience, now_ms))


def _line_reader(part: BodyPartReader, now_ms: int) -> recipient_lines.Reader:
    kind = part.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    is_csv = kind == "text/csv" or (part.filename or "").lower().endswith(".csv")
    return recipient_lines.Csv(now_ms) if is_csv else recipient_lines.Ndjson(now_ms)


async def _small_part(part: MultipartReader | BodyPartReader | None, longest: int) -> bytes:
    if not isinstance(part, BodyPartReader) or part.name != "campaign":
        raise Refused("campaign", "the first part must be named campaign and hold JSON", 400)
    body = b""
    while not part.at_eof():
        body += await part.read_chunk(CHUNK_BYTES)
        if len(body) > longest:
            raise Refused("campaign", f"is longer than {longest} bytes", 413)
    return body


async def _chunks(reader: MultipartReader, part: BodyPartReader) -> AsyncIterator[bytes]:
    """The part's bytes. Raises Refused when the body ends before its closing boundary: it may be cut off."""
    try:
        while not part.at_eof():
            yield await part.read_chunk(CHUNK_BYTES)
        if await reader.next() is not None:
            raise Refused("", "nothing may follow the part named recipients", 400)
    except _BROKEN as error:
        raise _broken(error) from None


def _broken(error: Exception) -> Refused:
    return Refused("", f"the body is not multipart as announced: {error}", 400)


OPERATIONS = (
    openapi.Operation(
        "post",
        PATH,
        "Send one message to many, given inline or, in multipart/form-data, as `recipients` after `campaign`",
        Scope.CAMPAIGNS,
        body=CampaignBody,
        streamed=recipient_lines.FORMAT,
        headers=("Idempotency-Key",),
        answers={202: "accepted: the log has all of it"},
    ),
    openapi.Operation("get", PATH, "The newest campaigns", Scope.READ, query=("limit",), answers={200: "campaigns"}),
    openapi.Operation("get", PATH + "/{id}", "Progress and outcomes", Scope.READ, answers={200: "a campaign"}),
)
