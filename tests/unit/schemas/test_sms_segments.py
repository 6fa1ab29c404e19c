"""An SMS is paid by the segment: the count is that of the network, on the text as it goes out."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import sms_segments
from schemas.sms_segments import BASIC, EXTENSION, Encoding

VECTORS = json.loads(Path(__file__).with_name("sms_segments.json").read_text())["cases"]
GSM_7 = st.text(BASIC + EXTENSION, max_size=700)
ANY = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("я😀€a")), max_size=400)
FAMILY = "👨‍👩‍👧‍👦"
LINK = "https://shop.example.org/orders/4711?from=sms"


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["note"] for vector in VECTORS])
def test_a_text_is_counted_as_the_vendors_own_calculator_counts_it(vector: dict[str, Any]) -> None:
    """P49: brackets once in UCS-2, an emoji as its two units, nothing cut in two."""
    counted = sms_segments.count(vector["text"])
    assert (counted.encoding, counted.units, counted.segments) == (
        vector["encoding"],
        vector["units"],
        vector["segments"],
    )


def test_there_is_a_vector_for_every_kind_of_text() -> None:
    assert len(VECTORS) == 21


@given(GSM_7)
def test_the_letters_of_the_old_alphabet_never_make_a_text_dear(text: str) -> None:
    counted = sms_segments.count(text)
    assert (counted.encoding, counted.segments) == (Encoding.GSM_7, len(cut(text, 160, 153, EXTENSION)))


@given(ANY)
def test_what_the_network_keeps_together_is_never_cut(text: str) -> None:
    """Cut one character at a time, as slowly as it is plain, it comes to the same number of segments."""
    counted = sms_segments.count(text)
    if counted.encoding is Encoding.UCS_2:
        wide = {character for character in text if ord(character) > 0xFFFF}
        pieces = cut(text, 70, 67, wide)
        assert counted.segments == len(pieces)
        assert counted.units == len(text.encode("utf-16-le")) // 2
        assert "".join(pieces) == text


@given(ANY, st.characters(exclude_categories=["Cs"]))
def test_a_longer_text_is_never_cheaper(text: str, more: str) -> None:
    assert sms_segments.count(text + more).segments >= sms_segments.count(text).segments


def test_700_characters_with_a_link_and_a_family_across_a_border_are_counted_whole() -> None:
    """N52"""
    text = ("я" * 60 + FAMILY + LINK + " ").ljust(700, "я")
    counted = sms_segments.count(text)
    assert (len(text), counted.units, counted.segments) == (700, 704, 11)


def cut(text: str, single: int, several: int, doubles: Any) -> list[str]:
    """The pieces that a network would send."""
    widths = [2 if character in doubles else 1 for character in text]
    if sum(widths) <= single:
        return [text]
    borders, used = [0], 0
    for at, width in enumerate(widths):
        if used + width > several:
            borders.append(at)
            used = 0
        used += width
    return [text[begin:end] for begin, end in pairwise([*borders, len(text)])]
