"""Who may post callbacks: the known answers of Standard Webhooks, and everything that is not quite right."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
from hypothesis import example, given
from hypothesis import strategies as st

from producers.callbacks.signatures import StandardWebhooks
from schemas.errors import Misconfigured

VECTORS = json.loads((Path(__file__).parent / "data" / "standard_webhooks.json").read_text())
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NEXT_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
NOW_S = 1_796_000_000
BODY = b'{"type": "delivered"}\r\n'


@pytest.fixture
def webhooks() -> StandardWebhooks:
    return StandardWebhooks("gateway", [SECRET])


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_known_answers(vector: dict[str, Any]) -> None:
    """P54: a malformed header among them."""
    given_ = vector["input"]
    headers = {f"webhook-{name}": given_[f"webhook_{name}"] for name in ("id", "timestamp", "signature")}
    verifier = StandardWebhooks("gateway", given_["secrets"])
    verified = verifier.verify(headers, given_["raw_body"].encode(), given_["verify_at"])
    assert verified == vector["expect"]["valid"]


def test_the_reference_library_accepts_what_we_sign(
    monkeypatch: pytest.MonkeyPatch, webhooks: StandardWebhooks
) -> None:

    signed = webhooks.sign("msg_1", int(time.time()), BODY)
    assert standardwebhooks.Webhook(SECRET).verify(BODY, signed) == {"type": "delivered"}


def test_a_changed_body_id_or_time_is_refused(webhooks: StandardWebhooks) -> None:
    headers = webhooks.sign("msg_1", NOW_S, BODY)
    assert webhooks.verify(headers, BODY, NOW_S)
    assert not webhooks.verify(headers, BODY.strip(), NOW_S)
    assert not webhooks.verify(headers, json.dumps(json.loads(BODY)).encode(), NOW_S)
    assert not webhooks.verify({**headers, "webhook-id": "msg_2"}, BODY, NOW_S)
    assert not webhooks.verify({**headers, "webhook-timestamp": str(NOW_S + 1)}, BODY, NOW_S)


@pytest.mark.parametrize(("late_s", "is_valid"), [(300, True), (301, False), (-300, True), (-301, False)])
def test_a_signature_ages_within_five_minutes_both_ways(
    webhooks: StandardWebhooks, late_s: int, is_valid: bool
) -> None:
    assert webhooks.verify(webhooks.sign("msg_1", NOW_S, BODY), BODY, NOW_S + late_s) == is_valid


def test_during_a_rotation_both_secrets_are_good_and_afterwards_only_the_new_one() -> None:
    old, new = StandardWebhooks("gateway", [SECRET]), StandardWebhooks("gateway", [NEXT_SECRET])
    both = StandardWebhooks("gateway", [SECRET, NEXT_SECRET])
    for signer in (old, new):
        assert both.verify(signer.sign("msg_1", NOW_S, BODY), BODY, NOW_S)
    assert not new.verify(old.sign("msg_1", NOW_S, BODY), BODY, NOW_S)
    assert old.verify(both.sign("msg_1", NOW_S, BODY), BODY, NOW_S)


@pytest.mark.parametrize(
    "secret",
    [
        "v1," + SECRET,
        SECRET.removeprefix("whsec_"),
        "whsec_",
        "whsec_short",
        "whsec_not base64!" * 3,
        "whsk_" + SECRET.removeprefix("whsec_"),
        "whsec_" + "A" * 200,
    ],
)
def test_a_bad_secret_stops_the_start_and_is_not_repeated_in_the_message(secret: str) -> None:
    """P53: one pasted with "v1," in front among them."""
    with pytest.raises(Misconfigured, match="gateway") as refused:
        StandardWebhooks("gateway", [secret])
    assert SECRET.removeprefix("whsec_") not in str(refused.value)


def test_three_secrets_or_none_stop_the_start() -> None:
    for secrets in ([], [SECRET] * 3):
        with pytest.raises(Misconfigured):
            StandardWebhooks("gateway", secrets)


header = st.text(st.characters(codec=None, exclude_characters="\n\r\0"), max_size=60)


@given(
    message_id=header,
    timestamp=st.one_of(header, st.just(str(NOW_S)), st.just("²")),
    signature=header,
    body=st.binary(),
)
@example(message_id="\ud800", timestamp=str(NOW_S), signature="", body=b"")
def test_no_header_makes_it_raise(message_id: str, timestamp: str, signature: str, body: bytes) -> None:
    """P54"""
    headers = {"webhook-id": message_id, "webhook-timestamp": timestamp, "webhook-signature": "v1," + signature}
    assert not StandardWebhooks("gateway", [SECRET]).verify(headers, body, NOW_S)
