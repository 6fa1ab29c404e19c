"""Who may enter, and what the API says about itself."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import FormData, web
from aiohttp.test_utils import TestClient, TestServer

from producers import auth
from producers.api.app import build_app
from producers.auth import Scope
from schemas.errors import Misconfigured, Refused
from schemas.topics import Topics
from tests.doubles.api import CODE, Api, api_key, key

Client = TestClient[Any, Any]


@pytest.fixture
async def guarded() -> AsyncIterator[Client]:
    """Two tenants: "red" may send and read, "blue" only send."""
    api = Api(topics=Topics(tenants=("red", "blue")))
    api.with_keys(api_key("r", "red", Scope.SEND, Scope.READ), api_key("b", "blue", Scope.SEND))
    await api.parts.campaigns.open(api.log)
    async with TestClient(TestServer(build_app(api.parts))) as client:
        yield client


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


async def test_without_a_valid_key_nobody_enters(guarded: Client) -> None:
    for headers in ({}, bearer("x"), bearer(""), {"Authorization": "Basic cjpy"}):
        answer = await guarded.post("/v1/notifications", json=CODE, headers=key() | headers)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_a_key_opens_only_what_its_scopes_name_and_only_its_tenant(guarded: Client) -> None:
    sent = await guarded.post("/v1/notifications", json=CODE, headers=key() | bearer("r"))
    assert sent.status == 202
    assert (await guarded.get(sent.headers["Location"], headers=bearer("r"))).status == 200
    assert (await guarded.get(sent.headers["Location"], headers=bearer("b"))).status == 403
    assert (await guarded.delete(sent.headers["Location"], headers=bearer("b"))).status == 404
    assert (await guarded.post("/v1/campaigns", json={}, headers=bearer("r"))).status == 403


async def test_the_same_key_of_two_tenants_names_two_wishes(guarded: Client) -> None:
    for tenant in ("r", "b"):
        answer = await guarded.post("/v1/notifications", json=CODE, headers=key() | bearer(tenant))
        assert answer.status == 202
        assert "Idempotent-Replayed" not in answer.headers


def test_without_keys_only_this_machine_is_served() -> None:
    nobody = auth.Keys()
    for host in ("127.0.0.1:8080", "localhost", "[::1]:80"):
        assert nobody.identify("", "127.0.0.1", host).tenant == "default"
    for remote, host in (
        ("10.0.0.9", "localhost"),
        ("", "localhost"),
        (None, "localhost"),
        ("127.0.0.1", "evil.example"),
    ):
        with pytest.raises(Refused) as refusal:
            nobody.identify("", remote, host)
        assert refusal.value.status == 403
    nobody.check_listen("127.0.0.1")
    nobody.check_listen("localhost")
    with pytest.raises(Misconfigured, match="no API key"):
        nobody.check_listen("0.0.0.0")
    auth.Keys([api_key("r", "red", Scope.SEND)]).check_listen("0.0.0.0")


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null", "", "http://["])
async def test_a_page_of_another_site_changes_nothing_where_no_key_is_asked_for(
    api: Api, client: Client, origin: str
) -> None:
    """A browser on this machine posts whatever a page tells it to, and forms without asking first."""
    routes = {(route.method, str(route.url_for(**dict.fromkeys(_names(route), "x")))) for route in _changing(client)}
    assert {("POST", "/v1/campaigns"), ("POST", "/v1/campaigns/x/pause"), ("DELETE", "/v1/notifications/x")} <= routes
    for method, path in routes:
        answer = await client.request(method, path, data=campaign_form(), headers={"Origin": origin})
        assert (answer.status, (await answer.json())["field"]) == (403, "Origin"), path
    assert not api.campaigns()
    assert (await client.get("/v1/campaigns", headers={"Origin": origin})).status == 200


async def test_a_page_of_the_same_site_and_a_page_with_a_key_may_send(client: Client, guarded: Client) -> None:
    ours = {"Origin": f"http://{client.host}:{client.port}"}
    assert (await client.post("/v1/campaigns", data=campaign_form(), headers=ours)).status == 202
    elsewhere = {"Origin": "https://shop.example", **bearer("r")}
    assert (await guarded.post("/v1/notifications", json=CODE, headers=key() | elsewhere)).status == 202


async def test_unknown_addresses_and_methods_are_problems_too(client: Client) -> None:
    unknown = await client.get("/v1/nothing")
    assert (unknown.status, unknown.content_type) == (404, "application/problem+json")
    wrong = await client.put("/v1/notifications")
    assert (wrong.status, wrong.content_type) == (405, "application/problem+json")
    assert "POST" in wrong.headers["Allow"]


async def test_a_bug_is_answered_500_with_an_id_and_nothing_else(
    api: Api, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    api.reads.slots = None  # type: ignore[assignment]
    sent = await client.post("/v1/notifications", json=CODE, headers=key())
    answer = await client.get(sent.headers["Location"])
    body = await answer.json()
    assert answer.status == 500
    assert body["request_id"] == answer.headers["X-Request-Id"]
    assert "NoneType" not in str(body)
    assert "request.failed" in caplog.messages


async def test_it_is_ready_once_the_campaigns_are_loaded_and_the_log_answers(api: Api, client: Client) -> None:
    assert (await client.get("/healthz")).status == 200
    assert (await client.get("/readyz")).status == 200
    api.log.fail = True
    assert (await client.get("/readyz")).status == 503
    async with TestClient(TestServer(build_app(Api().parts))) as unloaded:
        assert (await unloaded.get("/readyz")).status == 503
        assert (await unloaded.get("/healthz")).status == 200


async def test_metrics_count_what_was_accepted(client: Client) -> None:
    await client.post("/v1/notifications", json=CODE, headers=key())
    text = await (await client.get("/metrics")).text()
    assert 'tidings_accepted_total{priority="transactional",tenant="default"}' in text
    assert 'tidings_http_seconds_count{route="/v1/notifications",status="202"}' in text


async def test_every_route_is_described(client: Client) -> None:
    document = await (await client.get("/openapi.json")).json()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert client.app is not None
    routed = {
        (route.method, route.resource.canonical)
        for route in client.app.router.routes()
        if route.resource is not None and route.resource.canonical.startswith("/v1/") and route.method != "HEAD"
    }
    assert routed == described
    assert document["components"]["schemas"]["NotificationBody"]["required"] == ["template", "user_id"]
    sending = document["paths"]["/v1/campaigns"]["post"]
    streamed = sending["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]["recipients"]
    for described in (sending["description"], streamed["description"]):
        assert "CSV: a header row names the columns; `user_id` must be one, `to.email`," in described
    assert "openapi.json" in await (await client.get("/docs")).text()


def campaign_form() -> FormData:
    """What `<form enctype="multipart/form-data">` sends."""
    form = FormData()
    form.add_field("campaign", '{"campaign_id": "c1", "template": "news"}')
    form.add_field("recipients", '{"user_id": "u1"}\n', filename="r.ndjson", content_type="application/x-ndjson")
    return form


def _changing(client: Client) -> list[web.AbstractRoute]:
    assert client.app is not None
    routes = [route for route in client.app.router.routes() if route.method not in ("GET", "HEAD")]
    return [route for route in routes if route.resource is not None and route.resource.canonical.startswith("/v1/")]


def _names(route: web.AbstractRoute) -> list[str]:
    """Of the variable parts of its path."""
    assert route.resource is not None
    return re.findall(r"{(\w+)}", route.resource.canonical)
