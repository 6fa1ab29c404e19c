"""Provider kind `http`: in-house gateways, demos, benchmarks. Wire format: the design, section 11.

POSTs one JSON object per delivery with `Idempotency-Key`; callbacks come back as Standard Webhooks
(`producers/callbacks`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from consumers.providers import retry_after
from consumers.providers.contract import ALONE_MS, Call, Way
from consumers.providers.http_pool import Answer, HttpConnection, HttpPool, PoolOptions
from consumers.providers.pool import NoAnswer, NotSent, PooledWay
from schemas import traces
from schemas.clock import Clock
from schemas.outcomes import Kind, Outcome, Scope

DETAIL_MAX = 200
NAMED_REFUSALS = {"dead_address": Kind.DEAD_ADDRESS, "suppress": Kind.SUPPRESS, "blocked": Kind.BLOCKED}


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """headers: sent with every request, e.g. the gateway's own Authorization."""

    url: str
    timeout_s: float = 5.0
    headers: Mapping[str, str] = field(default_factory=dict)
    pool: PoolOptions = field(default_factory=PoolOptions)


class HttpProvider:
    """An account at a gateway that takes Tidings' own JSON."""

    carries_reference = True

    def __init__(self, name: str, options: HttpOptions, clock: Clock) -> None:
        self.name = name
        self._timeout_s = options.timeout_s
        self._clock = clock
        self._pool = HttpPool(options.url, options.pool)
        own = "".join(f"{key}: {value}\r\n" for key, value in options.headers.items())
        self._headers = f"Content-Type: application/json\r\nUser-Agent: tidings\r\n{own}".encode()

    async def reach(self) -> Way | Outcome:
        """A connection to the gateway; NOT_PROCESSED when there is none."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._timeout_s
        try:
            connection = await self._pool.acquire(self._timeout_s)
        except NotSent as error:
            return _not_sent(error)
        return PooledWay(connection, self._post, self._pool.release, give_up_at - loop.time())

    async def close(self) -> None:
        await self._pool.close()

    async def _post(self, connection: HttpConnection, call: Call, left_s: float) -> Outcome:
        """What the gateway answered; UNKNOWN when the request may have arrived and no answer came."""
        try:
            answer = await self._pool.post(self._request_headers(call), _body(call), left_s, connection)
        except NotSent as error:
            return _not_sent(error)
        except NoAnswer as error:
            return Outcome(Kind.UNKNOWN, detail=str(error)[:DETAIL_MAX])
        return read_answer(answer, self._clock.now_ms())

    def _request_headers(self, call: Call) -> bytes:
        trace = f"{traces.HEADER}: {call.traceparent}\r\n" if call.traceparent else ""
        return self._headers + f"Idempotency-Key: {call.delivery_key}\r\n{trace}".encode()


def _not_sent(error: NotSent) -> Outcome:
    return Outcome(Kind.NOT_PROCESSED, detail=str(error)[:DETAIL_MAX])


def _body(call: Call) -> bytes:
    content = call.content
    fields = {
        "delivery_key": call.delivery_key,
        "notification_id": call.notification_id,
        "reference": call.reference,
        "channel": call.channel.value,
        "to": call.to,
        "text": content.text,
    }
    if content.subject:
        fields["subject"] = content.subject
    if content.title:
        fields["title"] = content.title
    if content.html:
        fields["html"] = content.html
    if content.data:
        return orjson.dumps({**fields, "data": orjson.Fragment(content.data)})
    return orjson.dumps(fields)


def read_answer(answer: Answer, now_ms: int) -> Outcome:
    """The outcome behind an HTTP answer of the `http` kind."""
    fields = _fields(answer.body)
    if 200 <= answer.status < 300:
        return Outcome(Kind.DONE, provider_id=str(fields.get("id", ""))[:DETAIL_MAX])
    wait = retry_after.wait_ms(answer.headers.get("retry-after"), now_ms)
    kind, detail = _refusal(answer.status, fields), f"status {answer.status}"
    if kind is not Kind.THROTTLE:
        return Outcome(kind, detail=detail, retry_after_ms=wait)
    scope = _scope(fields.get("scope"))
    if wait is None and scope in (Scope.RECIPIENT, Scope.DOMAIN):
        wait = ALONE_MS
    return Outcome(kind, detail=detail, retry_after_ms=wait, scope=scope)


def _refusal(status: int, fields: dict[str, object]) -> Kind:
    if status == 408 or status >= 500:
        return Kind.RETRY
    if status == 429:
        return Kind.THROTTLE
    if status in (401, 403) or status < 400:
        return Kind.AUTH_CONFIG  # a redirect is a wrong URL: keep every message, tell a person
    return NAMED_REFUSALS.get(str(fields.get("error", "")), Kind.DROP)


def _scope(named: object) -> Scope:
    """What the call was one too many for; all that we send there, unless the gateway says otherwise."""
    return Scope(named) if isinstance(named, str) and named in list(Scope) else Scope.LANE


def _fields(body: bytes) -> dict[str, object]:
    try:
        fields = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}
