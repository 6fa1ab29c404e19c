"""What a gateway's answer means to the sender."""

from __future__ import annotations

import pytest

from consumers.providers import http, retry_after
from consumers.providers.http_pool import Answer
from schemas.outcomes import Kind, Scope

NOW_MS = 1_793_000_000_000


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b'{"id": "m-1"}', Kind.DONE),
        (202, b"", Kind.DONE),
        (200, b"<html>", Kind.DONE),
        (408, b"", Kind.RETRY),
        (500, b"", Kind.RETRY),
        (503, b"[]", Kind.RETRY),
        (429, b"", Kind.THROTTLE),
        (401, b"", Kind.AUTH_CONFIG),
        (403, b"", Kind.AUTH_CONFIG),
        (302, b"", Kind.AUTH_CONFIG),
        (400, b"", Kind.DROP),
        (413, b'{"error": "something else"}', Kind.DROP),
        (404, b'{"error": "dead_address"}', Kind.DEAD_ADDRESS),
        (410, b'{"error": "suppress"}', Kind.SUPPRESS),
        (422, b'{"error": "blocked"}', Kind.BLOCKED),
    ],
)
def test_each_answer_has_one_meaning(status: int, body: bytes, kind: Kind) -> None:
    assert http.read_answer(Answer(status, {}, body), NOW_MS).kind is kind


@pytest.mark.parametrize(
    ("body", "scope", "wait_ms"),
    [
        (b'{"error": "throttled", "scope": "recipient"}', Scope.RECIPIENT, 60_000),
        (b'{"error": "throttled", "scope": "domain"}', Scope.DOMAIN, 60_000),
        (b'{"error": "throttled", "scope": "sender"}', Scope.SENDER, None),
        (b'{"error": "throttled", "scope": "planet"}', Scope.LANE, None),
        (b'{"scope": ["recipient"]}', Scope.LANE, None),
        (b"", Scope.LANE, None),
    ],
)
def test_a_gateway_may_say_what_was_too_much(body: bytes, scope: Scope, wait_ms: int | None) -> None:
    found = http.read_answer(Answer(429, {}, body), NOW_MS)
    assert (found.kind, found.scope, found.retry_after_ms) == (Kind.THROTTLE, scope, wait_ms)
    told = http.read_answer(Answer(429, {"retry-after": "7"}, body), NOW_MS)
    assert told.retry_after_ms == 7_000


def test_the_gateways_message_id_is_kept() -> None:
    assert http.read_answer(Answer(200, {}, b'{"id": 17}'), NOW_MS).provider_id == "17"


@pytest.mark.parametrize(
    ("value", "wait_ms"),
    [
        ("7", 7_000),
        ("0", 1_000),
        ("99999999999999999999", 3_600_000),
        ("Mon, 26 Oct 2026 07:33:30 GMT", 10_000),
        ("Mon, 26 Oct 2020 07:33:30 GMT", 1_000),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_both_forms_and_clamped(value: str | None, wait_ms: int | None) -> None:
    now_ms = 1_793_000_000_000  # 2026-10-26 07:33:20 UTC
    assert retry_after.wait_ms(value, now_ms) == wait_ms
