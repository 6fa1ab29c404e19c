"""Ids and references have one spelling each, and reading them agrees with the standard library."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import keys


@given(st.binary(min_size=1, max_size=200))
def test_what_was_written_is_read_back_as_the_standard_library_reads_it(raw: bytes) -> None:
    text = keys._base32(raw)
    assert keys._from_base32(text) == raw == base64.b32decode(text.upper() + "=" * (-len(text) % 8))


@given(st.binary(min_size=1, max_size=50), st.integers(0, 79), st.sampled_from("abcdefgh234567"))
def test_no_second_text_reads_as_the_same_bytes(raw: bytes, at: int, letter: str) -> None:
    text = keys._base32(raw)
    at %= len(text)
    other = text[:at] + letter + text[at + 1 :]
    assert other == text or keys._from_base32(other) != raw
    assert keys._from_base32(text + letter) != raw


@pytest.mark.parametrize("text", ["", "A", "a_a", " aa", "+aaa", "aa=", "a1", "aé", "\u0661\u0661", "a" * 1001])
def test_what_is_not_base32_is_nothing(text: str) -> None:
    assert keys._from_base32(text) is None
