"""The short way of reading a recipient's line gives what its model gives, or leaves the line to it."""

from __future__ import annotations

import json
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers import plain_lines
from producers.request_bodies import RecipientBody
from schemas.errors import Refused
from schemas.messages import Contact, Device, Recipient

NOW_MS = 1_796_000_000_000
texts = st.sampled_from(["ann", "", "näh", "a\n", "\x7f", "\u00a0", "\u2028", "x" * 129, "x" * 257, "x" * 4097, "ios"])
odd = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.just([]), st.just({}), st.just(2**70))
devices = st.fixed_dictionaries(
    {"token": st.one_of(texts, odd), "platform": st.sampled_from(["ios", "web", "fax", 1])},
    optional={"id": odd, "app": odd, "environment": st.sampled_from(["sandbox", "production", "x", None])},
) | st.fixed_dictionaries({"token": texts}, optional={"registered_at": odd, "x": odd})
contacts = odd | st.fixed_dictionaries(
    {}, optional={"devices": odd | st.lists(devices, max_size=21), "email": texts, "locale": texts}
)
params = odd | st.dictionaries(texts, odd | st.dictionaries(texts, odd, max_size=1), max_size=3)
lines = st.fixed_dictionaries({"user_id": odd}, optional={"params": params, "to": contacts, "x": odd})


@settings(deadline=None, max_examples=400)
@given(lines)
def test_a_plain_line_gives_the_message_that_its_model_gives(line: dict[str, Any]) -> None:
    raw = json.dumps(line).encode()
    found = plain_lines.recipient(raw)
    if found is not None:
        assert found == by_model(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"user_id": "ann", "params": {"n": 1' + b"0" * 30 + b"}}",
        b'{"user_id": "ann", "params": {"n": NaN}}',
        b'{"user_id": "ann", "params": {"n": {"m": 1' + b"0" * 30 + b"}}}",
        b'{"user_id": "\\ud800"}',
        b'{"user_id": "a\xff"}',
        b'{"user_id": 42}',
        b'{"user_id": "ann", "to": {"email": "ann@example.org"}}',
        b'["ann"]',
        b"{",
    ],
)
def test_what_needs_more_than_a_look_is_left_to_the_model(raw: bytes) -> None:
    assert plain_lines.recipient(raw) is None


def test_the_usual_line_needs_no_more_than_a_look() -> None:
    raw = b'{"user_id":"ann","params":{"b":"x","a":7},"to":{"devices":[{"token":"t","platform":"ios","id":"d"}]}}\r'
    expected = Recipient("ann", '{"a":7,"b":"x"}', Contact(devices=(Device("d", "t", "ios"),)))
    assert plain_lines.recipient(raw) == expected == by_model(raw)
    assert plain_lines.recipient(b'{"user_id":"ann"}') == by_model(b'{"user_id":"ann"}') == Recipient("ann")


def by_model(raw: bytes) -> Recipient | None:
    try:
        return RecipientBody.model_validate_json(raw).recipient(NOW_MS)
    except (pydantic.ValidationError, Refused):
        return None
