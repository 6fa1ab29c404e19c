"""Turns one Avro schema and its dataclass into two plain functions: message -> bytes, bytes -> message.

Used by `codec.py` for the current schemas. Every delivery passes here several times; the functions written
below take about a third of the time of a schemaless Avro library plus a conversion to and from dictionaries
(docs/decisions). That library stays the judge in the tests and reads records of older schemas.

Supported: record, string, bytes, long, boolean, array, map, and [null, X]. A field that is nullable in the
schema but not in the dataclass is null exactly when it has the dataclass's default (or is empty).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from functools import lru_cache
from itertools import groupby
from typing import Any

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_EMPTY_VALUES: Mapping[type, Any] = {str: "", int: 0, bool: False, bytes: b""}


@dataclass(frozen=True, slots=True)
class Functions:
    """write gives the Avro body. read takes bytes and a start, gives the message and the place after it.

    read raises IndexError, KeyError or ValueError on malformed bytes; the place may lie beyond the end when the
    last text was cut off, so the caller must compare it with the length. write_inside: how the records that lie
    inside this one are written, by their class.
    """

    write: Callable[[Any], bytes]
    read: Callable[[bytes, int], tuple[Any, int]]
    write_inside: Mapping[type, Callable[[Any], bytes]]


def compile_record(
    schema: Mapping[str, Any], record: type, varying: Mapping[type, Collection[str]] | None = None
) -> Functions:
    """The two functions of a dataclass. Raises TypeError when schema and class do not fit together.

    varying: where most records differ from the one read before in these fields only, what lies between them is
    compared with that record's bytes, and read anew only when it differs. Half the price.
    """
    source = _Source(varying or {})
    name = source.record(schema, record)
    # The source holds only names and constants of our own schema files, never input.
    exec("\n".join(source.lines), source.names)  # noqa: S102
    inside = {kind: source.names[f"write_{kind.__name__}"] for kind in source.records}
    return Functions(source.names[f"write_{name}"], source.names[f"read_{name}"], inside)


class _Source:
    """Python source in the making, and the objects that it names."""

    def __init__(self, varying: Mapping[type, Collection[str]]) -> None:
        self._varying = varying
        self.lines: list[str] = []
        self.records: list[type] = []
        self.names: dict[str, Any] = {
            "LONG": LONGS,
            "SMALL": tuple((n >> 1) ^ -(n & 1) for n in range(128)),
            "HALF": {n: n // 2 for n in range(0, 128, 2)},
            "BOOL": {0: False, 1: True},
            "join": b"".join,
            "read_long": _read_long,
            "read_span": _read_span,
            "read_block": _read_block,
            "bad_union": _bad_union,
        }
        self._count = 0

    def record(self, schema: Mapping[str, Any], record: type) -> str:
        """Writes both functions of a record; gives the name they carry."""
        name, hints = record.__name__, typing.get_type_hints(record)
        self.records.append(record)
        missing = {f.name for f in fields(record)} ^ {f["name"] for f in schema["fields"]}
        if missing:
            raise TypeError(f"{name}: only in the schema or only in the class: {sorted(missing)}")
        parts, setting = [], []
        reading: dict[str, list[str]] = {}
        for field in schema["fields"]:
            variable = f"f_{field['name']}"
            hint, default = hints[field["name"]], _default(record, field["name"], hints[field["name"]])
            parts += self._parts(field["type"], hint, f"m.{field['name']}", default)
            reading[field["name"]] = self._reading(field["type"], hint, variable, default)
            setting.append(f"m.{field['name']} = {variable}")  # a third of a call of its constructor
        self._define(f"write_{name}(m)", [f"return join(({', '.join(parts)},))"])
        self.names[f"new_{name}"], self.names[name] = record.__new__, record
        lines = self._in_order(reading, self._varying.get(record, ()))
        self._define(f"read_{name}(raw, p)", [*lines, f"m = new_{name}({name})", *setting, "return m, p"])
        return name

    def _in_order(self, reading: Mapping[str, list[str]], varying: Collection[str]) -> list[str]:
        """The fields one after the other; those between varying ones are skipped when they are as last time."""
        lines: list[str] = []
        for differs, names in groupby(reading, lambda name: not varying or name in varying):
            run = list(names)
            own = [line for name in run for line in reading[name]]
            lines += own if differs else self._as_last_time([f"f_{name}" for name in run], own)
        return lines

    def _as_last_time(self, variables: list[str], reading: list[str]) -> list[str]:
        last = self._named("LAST", [((), *[None] * len(variables))])  # no bytes start with one of no texts
        keeping = f"if p <= len(raw): {last}[0] = (raw[start:p], {', '.join(variables)})"  # not of a cut off one
        return [
            f"run, {', '.join(variables)} = {last}[0]",
            "if raw.startswith(run, p): p += len(run)",
            *_block("else:", ["start = p", *reading, keeping]),
        ]

    def _define(self, head: str, body: list[str]) -> None:
        self.lines += [f"def {head}:", *(f" {line}" for line in body)]

    def _named(self, prefix: str, value: Any) -> str:
        """A fresh name for an object."""
        self._count += 1
        name = f"{prefix}{self._count}"
        self.names[name] = value
        return name

    # Writing: a value becomes expressions that give bytes.

    def _parts(self, schema: Any, hint: Any, value: str, default: Any = MISSING) -> list[str]:
        if isinstance(schema, list):
            return [self._nullable_part(_of_union(schema), hint, value, default)]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "array":
            return [self._array_part(schema["items"], _argument(hint, 0), value)]
        if kind == "map":
            return [self._map_part(schema["values"], _argument(hint, 1), value)]
        if kind == "record":
            return [f"write_{self.record(schema, hint)}({value})"]
        return self._plain_parts(kind, hint, value)

    def _plain_parts(self, kind: str, hint: Any, value: str) -> list[str]:
        if kind == "long":
            return [f"LONG[{value}]"]
        if kind == "boolean":
            return [f"b'\\1' if {value} else b'\\0'"]
        if kind == "bytes":
            return [f"LONG[len(s := {value})]", "s"]
        if kind == "string" and _is_enum(hint):
            return [f"{self._named('ENUM', {member: text(member.value) for member in hint})}[{value}]"]
        if kind == "string":
            return [f"LONG[len(s := {value}.encode())]", "s"]
        raise TypeError(f"no such type here: {kind}")

    def _nullable_part(self, schema: Any, hint: Any, value: str, default: Any) -> str:
        u = f"u{self._fresh()}"
        inner = ", ".join(self._parts(schema, _not_none(hint), u))
        absent = f"({u} := {value}) is None" if _is_optional(hint) else self._equals(f"({u} := {value})", default)
        return f"b'\\0' if {absent} else join((b'\\2', {inner}))"

    def _array_part(self, schema: Any, hint: Any, value: str) -> str:
        u, item = f"u{self._fresh()}", f"item{self._fresh()}"
        self._define(f"{item}(v)", [f"return join(({', '.join(self._parts(schema, hint, 'v'))},))"])
        return f"join((LONG[len({u})], *map({item}, {u}), b'\\0')) if ({u} := {value}) else b'\\0'"

    def _map_part(self, schema: Any, hint: Any, value: str) -> str:
        u, entry = f"u{self._fresh()}", f"entry{self._fresh()}"
        parts = ", ".join(self._parts("string", str, "k") + self._parts(schema, hint, "v"))
        self._define(f"{entry}(k, v)", [f"return join(({parts},))"])
        return (
            f"join((LONG[len({u})], *[{entry}(k, v) for k, v in {u}.items()], b'\\0')) if ({u} := {value}) else b'\\0'"
        )

    def _equals(self, value: str, default: Any) -> str:
        return f"not {value}" if not default else f"{value} == {self._named('DEFAULT', default)}"

    def _fresh(self) -> int:
        self._count += 1
        return self._count

    # Reading: statements that take a value from raw[p:] into a variable and move p behind it.

    def _reading(self, schema: Any, hint: Any, variable: str, default: Any = MISSING) -> list[str]:
        if isinstance(schema, list):
            inner = self._reading(_of_union(schema), _not_none(hint), variable)
            absent = None if _is_optional(hint) else default
            return [
                "n = raw[p]; p += 1",
                f"if n == 0: {variable} = {self._named('DEFAULT', absent)}",
                "elif n != 2: bad_union(n)",
                *_block("else:", inner),
            ]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "array":
            item = self._reading(schema["items"], _argument(hint, 0), "item")
            return _collection(variable, "[]", [*item, "items.append(item)"], "tuple(items)", "()")
        if kind == "map":
            entry = self._reading("string", str, "key") + self._reading(schema["values"], _argument(hint, 1), "item")
            return _collection(variable, "{}", [*entry, "items[key] = item"], "items", "{}")
        if kind == "record":
            return [f"{variable}, p = read_{hint.__name__}(raw, p)"]
        return self._plain_reading(kind, hint, variable)

    def _plain_reading(self, kind: str, hint: Any, variable: str) -> list[str]:
        if kind == "long":
            return [
                "n = raw[p]; p += 1",
                f"if n < 128: {variable} = SMALL[n]",
                f"else: {variable}, p = read_long(raw, p, n)",
            ]
        if kind == "boolean":
            return [f"{variable} = BOOL[raw[p]]; p += 1"]
        if kind == "string" and _is_enum(hint):
            members = self._named("MEMBERS", {member.value.encode(): member for member in hint})
            return [*_span(), f"{variable} = {members}[raw[p:q]]; p = q"]
        ending = ".decode()" if kind == "string" else ""
        empty = "''" if kind == "string" else "b''"
        taking = [*_span(), f"{variable} = raw[p:q]{ending}; p = q"]
        return [f"if raw[p] == 0: {variable} = {empty}; p += 1", *_block("else:", taking)]


def _block(head: str, body: list[str]) -> list[str]:
    return [head, *(f" {line}" for line in body)]


def _span() -> list[str]:
    """p and q become start and end of a text."""
    return ["n = raw[p]", "if n < 128: p += 1; q = p + HALF[n]", "else: p, q = read_span(raw, p)"]


def _collection(variable: str, empty: str, turn: list[str], result: str, nothing: str) -> list[str]:
    loop = [*_block("for _ in range(count):", turn), "count, p = read_block(raw, p)"]
    filling = [
        f"items = {empty}",
        "count, p = read_block(raw, p)",
        *_block("while count:", loop),
        f"{variable} = {result}",
    ]
    return [f"if raw[p] == 0: {variable} = {nothing}; p += 1", *_block("else:", filling)]


def _default(record: type, name: str, hint: Any) -> Any:
    """What a null stands for."""
    field = next(f for f in fields(record) if f.name == name)
    return _EMPTY_VALUES.get(hint) if field.default is MISSING else field.default


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _is_optional(hint: Any) -> bool:
    return typing.get_origin(hint) in (types.UnionType, typing.Union)


def _not_none(hint: Any) -> Any:
    return next(a for a in typing.get_args(hint) if a is not type(None)) if _is_optional(hint) else hint


def _argument(hint: Any, position: int) -> Any:
    return typing.get_args(hint)[position]


def _of_union(schema: list[Any]) -> Any:
    if len(schema) != 2 or schema[0] != "null":
        raise TypeError(f"only [null, something] is supported, not {schema}")
    return schema[1]


# Called by the written functions, or used like them.


def _packed_long(number: int) -> bytes:
    """Zigzag, then seven bits a byte, lowest first."""
    if not _LONG_MIN <= number <= _LONG_MAX:
        raise OverflowError(f"{number} does not fit into 64 bits")
    rest, packed = (number << 1) ^ (number >> 63), b""
    while rest > 16_383:
        packed += _PAIRS[rest & 16_383]
        rest >>= 14
    return packed + bytes((rest & 127 | 128, rest >> 7) if rest > 127 else (rest,))


class _Pairs(dict[int, bytes]):
    """Fourteen bits as the two bytes of a long that goes on behind them; each is made when it is first needed."""

    def __missing__(self, bits: int) -> bytes:
        made = self[bits] = bytes((bits & 127 | 128, bits >> 7 | 128))
        return made


_PAIRS = _Pairs()


class _Longs(dict[int, bytes]):
    """Packed longs. Times repeat within a page, so the latest others are remembered too."""

    def __missing__(self, number: int) -> bytes:
        return _remembered_long(number)


_remembered_long = lru_cache(8192)(_packed_long)
LONGS = _Longs({number: _packed_long(number) for number in range(-64, 2048)})
"""number -> the Avro long. OverflowError for one of more than 64 bits."""


def text(value: str) -> bytes:
    """An Avro string. Raises UnicodeEncodeError for a lone surrogate."""
    encoded = value.encode()
    return LONGS[len(encoded)] + encoded


_MOMENT_BYTES = 6
_MOMENTS_MAX = 8192
_MOMENTS: dict[bytes, int] = {}
"""Bytes of a time in milliseconds -> the time: of one second's events nearly all times were read before, which takes
0.25 us instead of 0.9. No shorter long begins with such bytes: only in the sixth the highest bit says that it ends."""


def _read_long(raw: bytes, p: int, first: int) -> tuple[int, int]:
    """A long of more than one byte whose first was taken already."""
    begins = p - 1
    if (moment := _MOMENTS.get(raw[begins : begins + _MOMENT_BYTES])) is not None:
        return moment, begins + _MOMENT_BYTES
    number, shift = first & 127, 7
    while True:
        byte = raw[p]
        p += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")
    if number >> 64:
        raise ValueError("a number of more than 64 bits")
    number = (number >> 1) ^ -(number & 1)
    if p - begins == _MOMENT_BYTES:
        if len(_MOMENTS) >= _MOMENTS_MAX:
            _MOMENTS.clear()
        _MOMENTS[raw[begins:p]] = number
    return number, p


def _read_span(raw: bytes, p: int) -> tuple[int, int]:
    """Start and end of a text of 64 bytes or more."""
    length, start = _read_long(raw, p + 1, raw[p])
    if length < 0:
        raise ValueError("a text of negative length")
    return start, start + length


def _read_block(raw: bytes, p: int) -> tuple[int, int]:
    """Items in the next block of a collection; 0 ends it. A negative count is followed by the size in bytes."""
    first = raw[p]
    count, p = _read_long(raw, p + 1, first) if first > 127 else ((first >> 1) ^ -(first & 1), p + 1)
    if count >= 0:
        return count, p
    first = raw[p]
    _, p = _read_long(raw, p + 1, first) if first > 127 else (0, p + 1)
    return -count, p


def _bad_union(branch: int) -> None:
    raise ValueError(f"a union of two has no branch {branch >> 1}")
