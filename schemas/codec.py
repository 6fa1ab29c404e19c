"""Bytes <-> message, in the Confluent wire format: a zero byte, the schema's id (4 bytes, big endian), the Avro body.

A record of the current schema is read by compiled functions, one of an older schema through Avro's schema
resolution into the current one. What cannot be read exactly is Poison: the caller parks it byte for byte.
"""

from __future__ import annotations

import io
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import fastavro

from schemas import compiled, messages, schema_files
from schemas.errors import Poison, Refused
from schemas.reasons import ParkReason

M = TypeVar("M")
P = TypeVar("P")
PREFIX_BYTES = 5
_VARYING: Mapping[type, tuple[str, ...]] = {
    messages.Delivery: ("user_id", "intent", "slot", "device", "params", "siblings"),
    messages.StatusEvent: (
        *("slot", "kind", "at_ms", "delivery", "provider_id", "next"),
        *("plan", "source_offset", "user_id"),
    ),
}
"""In what the records of one page, or the events of one batch, differ."""
_MALFORMED = (IndexError, KeyError, ValueError, EOFError, TypeError, OverflowError)


@dataclass(frozen=True, slots=True)
class _Kind:
    """One message class with its current schema."""

    prefix: bytes
    schema: schema_files.Schema
    write: Callable[[Any], bytes]
    read: Callable[[bytes, int], tuple[Any, int]]
    write_inside: Mapping[type, Callable[[Any], bytes]]


class Codec:
    """Encodes and decodes every message for a set of schemas."""

    def __init__(self, schemas: schema_files.Schemas) -> None:
        self._schemas = schemas
        self._kinds = {message: _kind(schemas, message) for message in typing.get_args(messages.Message)}
        self._parsed: dict[int, Any] = {}

    def encode(self, message: messages.Message) -> bytes:
        """The message as a record's value, in the current schema.

        Raises Refused naming the field when a text holds a lone surrogate: it has no bytes in any encoding.
        """
        kind = self._kinds[type(message)]
        try:
            return kind.prefix + kind.write(message)
        except UnicodeEncodeError as error:
            raise Refused(_unencodable(message), "holds a lone surrogate, which is no character; remove it") from error

    def writer_inside(self, message: type, part: type[P]) -> Callable[[P], bytes]:
        """How a record of class `part` is written where it lies inside this message: a function that gives its bytes.

        That function raises UnicodeEncodeError for a lone surrogate.
        """
        return self._kinds[message].write_inside[part]

    def prefix(self, message: type[messages.Message]) -> bytes:
        """What comes before the Avro body: a zero byte and the current schema's id."""
        return self._kinds[message].prefix

    def decode(self, raw: bytes | None, message: type[M]) -> M:
        """The message in these bytes.

        Raises Poison: unknown_schema when the id is not one of this message's, undecodable for everything else.
        """
        kind = self._kinds[message]
        if raw is None:
            raise Poison(ParkReason.UNDECODABLE, f"a {message.__name__} was expected, the value is null")
        if not raw.startswith(kind.prefix):
            raw = self._in_current_schema(raw, kind)
        try:
            found, end = kind.read(raw, PREFIX_BYTES)
        except _MALFORMED as error:
            raise Poison(ParkReason.UNDECODABLE, f"not a {message.__name__}: {_described(error)}") from error
        if end != len(raw):
            text = f"{len(raw) - end} bytes too many" if end < len(raw) else "cut off"
            raise Poison(ParkReason.UNDECODABLE, f"not a {message.__name__}: {text}")
        return typing.cast(M, found)

    def _in_current_schema(self, raw: bytes, kind: _Kind) -> bytes:
        """The same record written anew in the current schema."""
        if len(raw) < PREFIX_BYTES or raw[0] != 0:
            raise Poison(ParkReason.UNDECODABLE, "not framed: a zero byte and a schema id must come first")
        number = int.from_bytes(raw[1:PREFIX_BYTES], "big")
        writer = self._schemas.by_id.get(number)
        if writer is None or writer.name != kind.schema.name:
            expected = ", ".join(str(schema.id) for schema in self._schemas.versions[kind.schema.name])
            raise Poison(ParkReason.UNKNOWN_SCHEMA, f"schema id {number}; {kind.schema.name} has {expected}")
        body, rewritten = io.BytesIO(raw[PREFIX_BYTES:]), io.BytesIO()
        try:
            value = fastavro.schemaless_reader(body, self._parse(writer), self._parse(kind.schema))
        except (*_MALFORMED, fastavro.read.SchemaResolutionError) as error:
            raise Poison(ParkReason.UNDECODABLE, f"not a {kind.schema.name}: {_described(error)}") from error
        if body.read(1):
            raise Poison(ParkReason.UNDECODABLE, f"not a {kind.schema.name}: bytes too many")
        fastavro.schemaless_writer(rewritten, self._parse(kind.schema), value)
        return kind.prefix + rewritten.getvalue()

    def _parse(self, schema: schema_files.Schema) -> Any:
        if schema.id not in self._parsed:
            self._parsed[schema.id] = fastavro.parse_schema(plain(schema.document))
        return self._parsed[schema.id]


def plain(document: Any) -> Any:
    """The schema without logical types: times stay numbers. The bytes are the same."""
    if isinstance(document, list):
        return [plain(part) for part in document]
    if not isinstance(document, Mapping):
        return document
    bare = {key: value if key == "default" else plain(value) for key, value in document.items() if key != "logicalType"}
    return bare["type"] if set(bare) == {"type"} else bare


def _kind(schemas: schema_files.Schemas, message: type) -> _Kind:
    schema = schemas.current(message.__name__)
    functions = compiled.compile_record(plain(schema.document), message, _VARYING)
    return _Kind(b"\0" + schema.id.to_bytes(4, "big"), schema, functions.write, functions.read, functions.write_inside)


def _described(error: Exception) -> str:
    return "cut off" if isinstance(error, IndexError | EOFError) else f"{type(error).__name__}: {error}"[:200]


def _unencodable(value: Any, path: str = "") -> str:
    """The field that holds text without an encoding."""
    if isinstance(value, str):
        return path if any("\ud800" <= c <= "\udfff" for c in value) else ""
    if is_dataclass(value):
        parts = [(f.name, getattr(value, f.name)) for f in fields(value)]
    elif isinstance(value, dict):
        parts = [(str(i), part) for i, pair in enumerate(value.items()) for part in pair]
    else:
        parts = [(str(i), part) for i, part in enumerate(value)] if isinstance(value, tuple) else []
    return next(filter(None, (_unencodable(part, f"{path}.{name}".lstrip(".")) for name, part in parts)), "")


_codec = Codec(schema_files.load())
encode = _codec.encode
decode = _codec.decode
prefix = _codec.prefix
writer_inside = _codec.writer_inside
