"""An email's bytes, ready for DATA: headers that no user text can break, text before html, CRLF only, dot-stuffed.

Written by hand because the standard library folds long headers into encoded words, lets a crafted subject
inject one (python/cpython#121650), and costs more than the rest of a send (docs/decisions).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parseaddr

import idna

WORD_BYTES = 42
"""Bytes of UTF-8 in one encoded word: 56 characters of base64 and 12 of frame stay below 75 (RFC 2047)."""
PLAIN_HEADER_MAX = 900
"""Below the 998 bytes of RFC 5322 with room for the name."""
BIDI_OVERRIDES = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}


@dataclass(frozen=True, slots=True)
class Sender:
    """The From of a provider, read once. domain names the Message-IDs."""

    header: str
    address: str
    domain: str


def sender(text: str) -> Sender:
    """Reads `Shop <news@example.org>`; raises ValueError when there is no usable address in it."""
    name, address = parseaddr(text)
    local, _, domain = address.rpartition("@")
    if not local or not domain or not local.isascii():
        raise ValueError(f"from: {text!r} holds no address; write 'Shop <news@example.org>'")
    address = ascii_address(address)
    header = f"{_phrase(name)} <{address}>" if name else address
    return Sender(header, address, address.rpartition("@")[2])


def ascii_address(address: str) -> str:
    """The address with its domain in the DNS's own form; the local part stays as it is."""
    local, _, domain = address.rpartition("@")
    return f"{local}@{domain if domain.isascii() else idna.encode(domain, uts46=True).decode()}"


@dataclass(frozen=True, slots=True)
class Mail:
    """What becomes one email. headers: further ones, name -> value of ours (not of users)."""

    to: str
    subject: str
    text: str
    html: str
    message_key: str
    headers: tuple[tuple[str, str], ...]
    at_ms: int


def compose(mail: Mail, source: Sender) -> bytes:
    """The content of DATA with its final dot. The same message_key gives the same Message-ID."""
    stable = hashlib.sha256(mail.message_key.encode()).hexdigest()[:40]
    head = [
        f"From: {source.header}",
        f"To: {ascii_address(mail.to)}",
        f"Subject: {header_text(mail.subject)}",
        f"Date: {format_datetime(datetime.fromtimestamp(mail.at_ms / 1000, UTC))}",
        f"Message-ID: <{stable}@{source.domain}>",
        "MIME-Version: 1.0",
        "Auto-Submitted: auto-generated",
        *(f"{name}: {value}" for name, value in mail.headers),
    ]
    raw = "\r\n".join(head).encode() + b"\r\n" + _body(mail, stable)
    return raw.replace(b"\r\n.", b"\r\n..") + b".\r\n"


def header_text(text: str) -> str:
    """User text for a header: one line, encoded where it is not plain ASCII or could be read as encoded."""
    line = "".join(" " if _breaks(char) else char for char in text).strip()
    if line.isascii() and "=?" not in line and len(line) <= PLAIN_HEADER_MAX:
        return line
    return "\r\n ".join(f"=?utf-8?b?{base64.b64encode(chunk).decode()}?=" for chunk in _chunks(line))


def _breaks(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Zl", "Zp") or ord(char) in BIDI_OVERRIDES


def _chunks(line: str) -> list[bytes]:
    """The text in UTF-8 pieces of whole characters."""
    chunks, current = [], b""
    for char in line:
        encoded = char.encode()
        if len(current) + len(encoded) > WORD_BYTES:
            chunks.append(current)
            current = b""
        current += encoded
    return [*chunks, current]


def _phrase(name: str) -> str:
    encoded = header_text(name)
    if encoded.startswith("=?") or all(char.isalnum() or char in " !#$%&'*+-/=?^_`{|}~" for char in encoded):
        return encoded
    return '"' + encoded.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _body(mail: Mail, stable: str) -> bytes:
    if not mail.html:
        return _part("plain", mail.text)
    frame = f"=_{stable}".encode()
    parts = (_part("plain", mail.text), _part("html", mail.html))
    inside = b"".join(b"--" + frame + b"\r\n" + part for part in parts)
    return (
        b'Content-Type: multipart/alternative; boundary="' + frame + b'"\r\n\r\n' + inside + b"--" + frame + b"--\r\n"
    )


def _part(subtype: str, text: str) -> bytes:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").encode()
    encoded = binascii.b2a_qp(lines, istext=True).replace(b"\n", b"\r\n")
    head = f"Content-Type: text/{subtype}; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
    return head.encode() + encoded + b"\r\n"
