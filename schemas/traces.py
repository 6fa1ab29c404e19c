"""The trace that a request belongs to (W3C traceparent): from whoever asks, on every record, to the provider.

Anybody may write the header of a record, so what is read of it never goes on as it came.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HEADER = "traceparent"
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Trace(NamedTuple):
    """trace_id, parent_id and flags are lower-case hex digits: 32, 16 and 2."""

    trace_id: str
    parent_id: str
    flags: str

    def __str__(self) -> str:
        """As the version that is known here, whatever one it came with."""
        return f"00-{self.trace_id}-{self.parent_id}-{self.flags}"


def read(text: str) -> Trace | None:
    """The trace; None where the standard calls it invalid: version ff, ids of zeros, a fifth part of version 00."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    has_zeros = not trace_id.strip("0") or not parent_id.strip("0")
    if has_zeros or version == "ff" or (version == "00" and more):
        return None
    return Trace(trace_id, parent_id, flags)


def carried(header: bytes | None) -> str:
    """What goes on of a record's header; "" where it has none, or none that is valid."""
    found = read(header.decode("ascii", "replace")) if header else None
    return "" if found is None else str(found)
