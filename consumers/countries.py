"""The country of a phone number: what an SMS to it costs depends on it.

Most calling codes are one country's own and are known at a glance. Those that several countries share (+1, +7, +44 ...)
are asked of `phonenumbers`, which is slow, once for all numbers that differ only at their end.
"""

from __future__ import annotations

from functools import lru_cache

import phonenumbers

_REGIONS = phonenumbers.COUNTRY_CODE_TO_REGION_CODE
_LONGEST_CODE = 3
_ENDING = "0000"
_SHORT = 10
"""Of longer numbers the last four digits tell no country from another."""
REMEMBERED = 50_000
KNOWN = frozenset(phonenumbers.SUPPORTED_REGIONS)
"""ISO 3166 codes of two letters."""


def country(number: str) -> str:
    """The code of the country that this number (E.164, with "+") belongs to; "" when no country has its calling code.

    Of a shared code, a number that fits no country's plan is taken for the largest one's.
    """
    for length in range(1, _LONGEST_CODE + 1):
        code = number[1 : 1 + length]
        regions = _REGIONS.get(int(code)) if code.isdecimal() else None
        if regions is not None:
            break
    else:
        return ""
    if len(regions) > 1:
        alike = number if len(number) <= _SHORT else number[: -len(_ENDING)] + _ENDING
        return _shared(alike) or regions[0]
    return regions[0] if regions[0] in KNOWN else ""


@lru_cache(REMEMBERED)
def _shared(number: str) -> str:
    """The country of a number; "" when it fits none."""
    try:
        whole = phonenumbers.parse(number, None)
    except phonenumbers.NumberParseException:
        return ""
    return phonenumbers.region_code_for_number(whole) or ""
