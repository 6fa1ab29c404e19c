"""How many segments an SMS is billed as: counted on the final text, as the networks cut it.

Pure. A text of GSM-7 characters alone takes 7 bits for each (two times that for the extension table), any other
character makes all of it UCS-2. What does not fit into one segment is cut into several by the provider; each then
carries a header and holds less. Nothing that is one thing to the network is cut in two: neither the two septets of an
extension character nor the two halves of a surrogate pair.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

BASIC = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
"""The default alphabet of 3GPP TS 23.038: one septet each."""
EXTENSION = "\f^{}\\[~]|€"
"""Its extension table: an escape and one more septet each."""
_GSM_7 = re.compile(f"[{re.escape(BASIC + EXTENSION)}]*")
_EXTENSION = re.compile(f"[{re.escape(EXTENSION)}]")
_BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")


class Encoding(StrEnum):
    GSM_7 = "GSM-7"
    UCS_2 = "UCS-2"


class Counted(NamedTuple):
    """units: septets of GSM-7, or 16-bit units of UCS-2, without what is left empty at the end of a segment."""

    encoding: Encoding
    units: int
    segments: int


_SINGLE = {Encoding.GSM_7: 160, Encoding.UCS_2: 70}
_EACH_OF_SEVERAL = {Encoding.GSM_7: 153, Encoding.UCS_2: 67}


def count(text: str) -> Counted:
    """The segments of a text; an empty one is a message all the same."""
    if _GSM_7.fullmatch(text):
        encoding, doubles = Encoding.GSM_7, _EXTENSION
    else:
        encoding, doubles = Encoding.UCS_2, _BEYOND_16_BITS
    at = [found.start() for found in doubles.finditer(text)]
    units = len(text) + len(at)
    if units <= _SINGLE[encoding]:
        return Counted(encoding, units, 1)
    return Counted(encoding, units, _cut(len(text), at, _EACH_OF_SEVERAL[encoding]))


def _cut(characters: int, doubles: Iterable[int], room: int) -> int:
    """How many segments of this room so many characters take; those at `doubles` take two units that stay together."""
    used = passed = 0
    for at in doubles:
        used += at - passed
        if used % room == room - 1:
            used += 1  # the last unit of the segment stays empty
        used += 2
        passed = at + 1
    used += characters - passed
    return -(-used // room)
