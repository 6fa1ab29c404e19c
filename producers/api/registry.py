"""The read calls of the Confluent Schema Registry API, for whoever consumes our topics with a stock client.

Subjects are `<topic>-value`; ids are those in every record's first bytes. Nothing can be registered here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web
from fastavro.schema import SchemaParseException, UnknownType, to_parsing_canonical_form

from producers.api import bodies
from schemas import schema_files
from schemas.errors import Refused
from schemas.schema_files import Schema, Schemas
from schemas.topics import Topics

PREFIX = "/registry"
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
NO_SUBJECT, NO_VERSION, NO_SCHEMA, NO_INPUT = 40401, 40402, 40403, 42201
LOOKUP_BYTES_MAX = 262_144
Subjects = Mapping[str, Sequence[Schema]]
_NO_SCHEMA_TEXT = (ValueError, KeyError, TypeError, AttributeError, RecursionError, SchemaParseException, UnknownType)


def register(app: web.Application, topics: Topics, schemas: Schemas | None = None) -> None:
    """schemas: those of this release when not given."""
    answers = _Registry(topics, schemas or schema_files.load())
    calls = {
        "/subjects": answers.subjects,
        "/subjects/{subject}/versions": answers.versions,
        "/subjects/{subject}/versions/{version}": answers.version,
        "/subjects/{subject}/versions/{version}/schema": answers.bare_schema,
        "/schemas/types": answers.types,
        "/schemas/ids/{id}": answers.schema,
        "/schemas/ids/{id}/schema": answers.bare_schema_of_id,
        "/schemas/ids/{id}/versions": answers.uses,
        "/config": answers.config,
        "/config/{subject}": answers.config,
        "/mode": answers.mode,
    }
    for path, call in calls.items():
        app.router.add_get(PREFIX + path, call)
    app.router.add_post(PREFIX + "/subjects/{subject}", answers.look_up)


def subjects_of(topics: Topics, schemas: Schemas) -> Subjects:
    """Subject -> its versions, oldest first, of every topic whose values are one kind of message."""
    return {
        f"{spec.name}-value": schemas.versions[spec.value] for spec in topics.specs() if spec.value in schemas.versions
    }


class _Registry:
    def __init__(self, topics: Topics, schemas: Schemas) -> None:
        self._schemas = schemas
        self._subjects = subjects_of(topics, schemas)

    async def subjects(self, request: web.Request) -> web.Response:
        return _answer(sorted(self._subjects))

    async def versions(self, request: web.Request) -> web.Response:
        found = self._subjects.get(request.match_info["subject"])
        if found is None:
            return _missing(NO_SUBJECT, "Subject not found.")
        return _answer([schema.version for schema in found])

    async def version(self, request: web.Request) -> web.Response:
        found = self._find(request)
        if isinstance(found, web.Response):
            return found
        return _answer(_described(request.match_info["subject"], found))

    async def bare_schema(self, request: web.Request) -> web.Response:
        found = self._find(request)
        return found if isinstance(found, web.Response) else _answer(found.document)

    async def types(self, request: web.Request) -> web.Response:
        return _answer(["AVRO"])

    async def schema(self, request: web.Request) -> web.Response:
        found = self._schemas.by_id.get(_number(request.match_info["id"]))
        return _missing(NO_SCHEMA, "Schema not found") if found is None else _answer({"schema": _text(found)})

    async def bare_schema_of_id(self, request: web.Request) -> web.Response:
        found = self._schemas.by_id.get(_number(request.match_info["id"]))
        return _missing(NO_SCHEMA, "Schema not found") if found is None else _answer(found.document)

    async def uses(self, request: web.Request) -> web.Response:
        wanted = _number(request.match_info["id"])
        if wanted not in self._schemas.by_id:
            return _missing(NO_SCHEMA, "Schema not found")
        every = [(subject, schema) for subject, found in self._subjects.items() for schema in found]
        return _answer([{"subject": subject, "version": one.version} for subject, one in every if one.id == wanted])

    async def config(self, request: web.Request) -> web.Response:
        return _answer({"compatibilityLevel": "BACKWARD_TRANSITIVE"})

    async def mode(self, request: web.Request) -> web.Response:
        return _answer({"mode": "READONLY"})

    async def look_up(self, request: web.Request) -> web.Response:
        """Which version of the subject this schema is; for serializers that look before they write."""
        subject = request.match_info["subject"]
        found = self._subjects.get(subject)
        if found is None:
            return _missing(NO_SUBJECT, "Subject not found.")
        try:
            body = json.loads(await bodies.read_at_most(request, LOOKUP_BYTES_MAX))
            wanted = to_parsing_canonical_form(json.loads(body["schema"]))
        except (*_NO_SCHEMA_TEXT, Refused):
            return _answer({"error_code": NO_INPUT, "message": "The body must be JSON with a schema."}, 422)
        for schema in found:
            if to_parsing_canonical_form(schema.document) == wanted:
                return _answer(_described(subject, schema))
        return _missing(NO_SCHEMA, "Schema not found")

    def _find(self, request: web.Request) -> Schema | web.Response:
        found = self._subjects.get(request.match_info["subject"])
        if found is None:
            return _missing(NO_SUBJECT, "Subject not found.")
        wanted = request.match_info["version"]
        number = len(found) if wanted in ("latest", "-1") else _number(wanted)
        return found[number - 1] if 0 < number <= len(found) else _missing(NO_VERSION, "Version not found.")


def _described(subject: str, schema: Schema) -> dict[str, Any]:
    return {"subject": subject, "version": schema.version, "id": schema.id, "schema": _text(schema)}


def _text(schema: Schema) -> str:
    return orjson.dumps(schema.document).decode()


def _number(text: str) -> int:
    """-1 for what is no number; no schema and no version has it."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def _answer(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type=CONTENT_TYPE)


def _missing(code: int, message: str) -> web.Response:
    return _answer({"error_code": code, "message": message}, 404)
