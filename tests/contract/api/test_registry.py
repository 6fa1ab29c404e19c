"""The registry's read calls, as stock clients make them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from aiohttp.test_utils import TestClient

from schemas import codec
from schemas.messages import DeliveryState

Client = TestClient[Any, Any]
SUBJECT = "notification.state-value"
STATE = DeliveryState(
    "n1.email", "n1", "default", None, "u1", "code", "email", None,
    "sent", None, None, "mail", None, 1, 0, 5, 6, None, 7, 9,
)  # fmt: skip


async def test_a_consumer_of_the_public_topic_can_read_it_with_what_the_registry_says(client: Client) -> None:
    value = codec.encode(STATE)
    number = int.from_bytes(value[1:5], "big")
    answer = await client.get(f"/registry/schemas/ids/{number}")
    assert answer.content_type == "application/vnd.schemaregistry.v1+json"
    schema = fastavro.parse_schema(json.loads((await answer.json())["schema"]))
    read: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
    assert (read["delivery_id"], read["state"], read["calls"]) == ("n1.email", "sent", 1)
    uses = await (await client.get(f"/registry/schemas/ids/{number}/versions")).json()
    assert {"subject": SUBJECT, "version": 1} in uses


async def test_subjects_versions_and_schemas_agree(client: Client) -> None:
    subjects = await (await client.get("/registry/subjects")).json()
    assert {SUBJECT, "campaign.state-value", "notification.requests-value"} <= set(subjects)
    versions = await (await client.get(f"/registry/subjects/{SUBJECT}/versions")).json()
    latest = await (await client.get(f"/registry/subjects/{SUBJECT}/versions/latest")).json()
    assert latest["version"] == versions[-1]
    bare = await (await client.get(f"/registry/subjects/{SUBJECT}/versions/1/schema")).json()
    assert bare["name"] == "DeliveryState"
    spaced = json.dumps(json.loads(latest["schema"]), indent=2)
    found = await client.post(f"/registry/subjects/{SUBJECT}", json={"schema": spaced})
    assert (await found.json())["id"] == latest["id"]


async def test_what_is_not_there_is_answered_as_the_registry_does(client: Client) -> None:
    for path, code in (
        ("subjects/nothing-value/versions", 40401),
        ("subjects/nothing-value/versions/1", 40401),
        (f"subjects/{SUBJECT}/versions/99", 40402),
        (f"subjects/{SUBJECT}/versions/x", 40402),
        ("schemas/ids/99999", 40403),
        ("schemas/ids/x", 40403),
    ):
        answer = await client.get(f"/registry/{path}")
        assert (answer.status, (await answer.json())["error_code"]) == (404, code)
    deep = b'{"schema": "' + b"[" * 20_000 + b'"}'
    for body in (b"", b"[]", b'{"schema": 5}', b'{"schema": "{"}', b'{"schema": "{}"}', b"[" * 100_000, deep):
        assert (await client.post(f"/registry/subjects/{SUBJECT}", data=body)).status == 422


async def test_nothing_can_be_registered(client: Client) -> None:
    assert (await client.post(f"/registry/subjects/{SUBJECT}/versions", json={"schema": "{}"})).status == 405
    assert (await (await client.get("/registry/mode")).json())["mode"] == "READONLY"
    assert "TRANSITIVE" in await (await client.get("/registry/config")).text()
