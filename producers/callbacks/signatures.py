"""Standard Webhooks: who may post callbacks. Verifies over the raw body, before anything is read from it.

Any malformed input is simply not verified: the caller answers every failure with the same words, so that
nobody learns which check failed.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence

from schemas.errors import Misconfigured

TOLERANCE_S = 300
"""A signature is valid this long before and after its time: a captured one cannot be posted for ever."""
SECRET_BYTES = range(16, 65)
SIGNATURES_MAX = 20
ID_HEADER = "webhook-id"
TIME_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
_PREFIX = "whsec_"


class StandardWebhooks:
    """One endpoint's secrets: the active one, and during a rotation the next one too."""

    def __init__(self, provider: str, secrets: Sequence[str]) -> None:
        """Raises Misconfigured, naming the provider and never the secret."""
        if not 1 <= len(secrets) <= 2:
            raise Misconfigured(f"[providers.{provider}] callback_secret: give one secret, or two during a rotation")
        try:
            self._secrets = [key_of(secret) for secret in secrets]
        except ValueError as error:
            raise Misconfigured(f"[providers.{provider}] callback_secret {error}") from None

    def verify(self, headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
        """Whether one of our secrets signed exactly this body, lately. Never raises."""
        message_id, timestamp = headers.get(ID_HEADER, ""), headers.get(TIME_HEADER, "")
        if not message_id or not _is_recent(timestamp, now_s):
            return False
        try:
            expected = [_signature(secret, message_id, timestamp, body) for secret in self._secrets]
        except UnicodeEncodeError:
            return False  # half a character: no bytes of a request are read as such an id
        given = headers.get(SIGNATURE_HEADER, "").split(" ")[:SIGNATURES_MAX]
        codes = [one.removeprefix("v1,").encode(errors="replace") for one in given if one.startswith("v1,")]
        return any(hmac.compare_digest(code, wanted) for code in codes for wanted in expected)

    def sign(self, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
        """The headers under which this body may be posted now; signed with every active secret."""
        signatures = [_signature(secret, message_id, str(at_s), body).decode() for secret in self._secrets]
        return {
            ID_HEADER: message_id,
            TIME_HEADER: str(at_s),
            SIGNATURE_HEADER: " ".join(f"v1,{signature}" for signature in signatures),
        }


def _signature(secret: bytes, message_id: str, timestamp: str, body: bytes) -> bytes:
    signed = b".".join((message_id.encode(errors="surrogateescape"), timestamp.encode(), body))
    return base64.b64encode(hmac.digest(secret, signed, "sha256"))


def _is_recent(timestamp: str, now_s: float) -> bool:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    return abs(now_s - int(timestamp)) <= TOLERANCE_S


def key_of(secret: str) -> bytes:
    """The bytes of a secret "whsec_<base64>", padding optional.

    Raises ValueError saying what is wrong, without the secret.
    """
    if not secret.startswith(_PREFIX):
        hint = "; it was pasted with something in front" if _PREFIX in secret else ""
        raise ValueError(f"must begin with {_PREFIX}{hint}")
    text = secret.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"is not base64 after {_PREFIX}") from None
    if len(key) not in SECRET_BYTES:
        raise ValueError(f"has {len(key)} bytes; it must have {SECRET_BYTES[0]} to {SECRET_BYTES[-1]}")
    return key
