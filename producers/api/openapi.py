"""/openapi.json, built from the same models that check the bodies, and /docs, a page that shows it.

Every resource describes its operations; a test compares them with the routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
import pydantic
from aiohttp import web
from pydantic.json_schema import models_json_schema

from producers.auth import Scope

PAGE = (Path(__file__).parent / "docs.html").read_text()
_REF = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. scope: which a key needs; of several any will do.

    streamed: what may follow the body in a second part named `recipients`, instead of standing in it.
    answers: status -> what it means; problems need not be named.
    """

    method: str
    path: str
    summary: str
    scope: Scope | tuple[Scope, ...] | None
    body: type[pydantic.BaseModel] | None = None
    headers: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    streamed: str = ""
    answers: Mapping[int, str] = field(default_factory=dict)


OPERATIONS = web.AppKey("operations", list[Operation])


def register(app: web.Application) -> None:
    """The first resource of an application: the others describe themselves to it."""
    app[OPERATIONS] = []
    app.router.add_get("/openapi.json", document)
    app.router.add_get("/docs", page)


def describe(app: web.Application, *operations: Operation) -> None:
    """Adds a resource's operations to the document."""
    app[OPERATIONS].extend(operations)


async def document(request: web.Request) -> web.Response:
    body = orjson.dumps(as_document(request.app[OPERATIONS]), option=orjson.OPT_INDENT_2)
    return web.Response(body=body, content_type="application/json")


async def page(request: web.Request) -> web.Response:
    return web.Response(text=PAGE, content_type="text/html")


def as_document(operations: list[Operation]) -> dict[str, Any]:
    """OpenAPI 3.1."""
    models = {operation.body for operation in operations if operation.body is not None}
    _, schemas = models_json_schema([(model, "validation") for model in _ordered(models)], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidings", "version": "1", "description": "Notifications in, statuses out."},
        "paths": paths,
        "components": {
            "schemas": {**schemas.get("$defs", {}), "Problem": _PROBLEM},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _ordered(models: set[type[pydantic.BaseModel]]) -> list[type[pydantic.BaseModel]]:
    return sorted(models, key=lambda model: model.__name__)


def _described(operation: Operation) -> dict[str, Any]:
    scopes = (operation.scope,) if isinstance(operation.scope, Scope) else operation.scope
    scope = " Needs the scope " + " or ".join(f"`{one}`" for one in scopes) + "." if scopes else ""
    described: dict[str, Any] = {
        "summary": operation.summary,
        "description": ". ".join(filter(None, (operation.summary, operation.streamed))) + "." + scope,
        "parameters": _parameters(operation),
        "responses": _responses(operation),
    }
    if operation.body is not None:
        schema = {"$ref": _REF.format(model=operation.body.__name__)}
        content: dict[str, Any] = {"application/json": {"schema": schema}}
        if operation.streamed:
            content["multipart/form-data"] = {"schema": _in_parts(schema, operation.streamed)}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _in_parts(first: dict[str, Any], streamed: str) -> dict[str, Any]:
    recipients = {"type": "string", "description": f"{streamed}."}
    properties = {"campaign": first, "recipients": recipients}
    return {"type": "object", "properties": properties, "required": ["campaign", "recipients"]}


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    in_path = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    named = [("path", name) for name in in_path]
    named += [("header", name) for name in operation.headers] + [("query", name) for name in operation.query]
    text = {"type": "string"}
    return [{"name": name, "in": place, "required": place == "path", "schema": text} for place, name in named]


def _responses(operation: Operation) -> dict[str, Any]:
    problem = {"content": {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}}
    described: dict[str, Any] = {"default": {"description": "a problem", **problem}}
    for status, meaning in operation.answers.items():
        described[str(status)] = {"description": meaning or HTTPStatus(status).phrase}
        if status >= 400:
            described[str(status)].update(problem)
    return described


_PROBLEM = {
    "type": "object",
    "description": "RFC 9457. field names the offending part of the input; request_id is what to quote.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": "string"},
        "request_id": {"type": "string"},
    },
}
