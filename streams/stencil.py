"""Many messages that differ in a few fields: encoded once, then cut where those fields lie.

A page's deliveries share all but five of 24 fields. Putting the bytes of the five between the pieces costs a
third of building and encoding each message. The codec makes the pieces, so its field order is not repeated here.
"""

from __future__ import annotations

from collections.abc import Sequence

MARK = "\x00tidings\x00"
"""Marked texts begin so: no text that a door lets through holds a control character next to these letters."""
MARKED_NUMBER = 0x5AC3A55A3C
"""Stands for a number that varies."""


def cut(encoded: bytes, marks: Sequence[bytes]) -> tuple[bytes, ...] | None:
    """The bytes around the marks, which come in this order; None when one is not there exactly once."""
    if any(encoded.count(mark) != 1 for mark in marks):
        return None
    pieces = []
    for mark in marks:
        piece, _, encoded = encoded.partition(mark)
        pieces.append(piece)
    return (*pieces, encoded)


def number(value: int) -> bytes:
    """An Avro long; here only counts, positions and the mark, never negative."""
    return _SMALL[value] if value < _SMALL_COUNT else _packed(value)


def text(value: str) -> bytes:
    """An Avro string. Raises UnicodeEncodeError for a lone surrogate, as the codec would."""
    raw = value.encode()
    length = len(raw)
    return (_SMALL[length] if length < _SMALL_COUNT else _packed(length)) + raw


def texts(values: Sequence[str]) -> bytes:
    """An Avro array of strings."""
    if not values:
        return b"\0"
    return b"".join((number(len(values)), *map(text, values), b"\0"))


def optional(encoded: bytes | None) -> bytes:
    """An Avro union of null and something that is encoded already."""
    return b"\0" if encoded is None else b"\2" + encoded


def _packed(value: int) -> bytes:
    rest, packed = value << 1, bytearray()
    while rest > 127:
        packed.append(rest & 127 | 128)
        rest >>= 7
    packed.append(rest)
    return bytes(packed)


_SMALL_COUNT = 2048
_SMALL = tuple(_packed(value) for value in range(_SMALL_COUNT))
