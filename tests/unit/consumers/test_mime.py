"""An email's bytes, read back by the standard library's parser."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.providers import mime

SHOP = mime.sender("Shop <news@example.org>")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def mail(**fields: object) -> mime.Mail:
    given = {
        "to": "mia@example.com",
        "subject": "Hello",
        "text": "Hi",
        "html": "",
        "message_key": "k",
        "headers": (),
        "at_ms": 1_793_000_000_000,
    }
    return mime.Mail(**{**given, **fields})  # type: ignore[arg-type]


def read_back(raw: bytes) -> EmailMessage:
    """As a server stores it: the final dot gone, dots unstuffed."""
    assert raw.endswith(b"\r\n.\r\n")
    stored = raw[:-3].replace(b"\r\n..", b"\r\n.")
    message = email.message_from_bytes(stored, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


def body(message: EmailMessage, kind: str = "plain") -> str:
    part = message.get_body((kind,))
    assert part is not None
    return str(part.get_content()).replace("\r\n", "\n").removesuffix("\n")


def test_text_comes_before_html_and_both_read_back() -> None:
    message = read_back(mime.compose(mail(text="Grüße\n.\n..dots", html="<p>Grüße</p>"), SHOP))
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "text/html"]
    assert body(message) == "Grüße\n.\n..dots"
    assert body(message, "html") == "<p>Grüße</p>"


@given(TEXTS)
def test_any_text_reads_back_line_for_line(text: str) -> None:
    message = read_back(mime.compose(mail(text=text), SHOP))
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    assert body(message).rstrip("\n") == lines.rstrip("\n")


@given(TEXTS, TEXTS, TEXTS)
def test_no_line_is_too_long_or_ends_in_a_bare_line_feed_and_nothing_ends_the_mail_early(
    subject: str, text: str, html: str
) -> None:
    raw = mime.compose(mail(subject=subject, text=text, html=html), SHOP)
    lines = raw.split(b"\r\n")
    assert all(b"\r" not in line and b"\n" not in line and len(line) <= 998 for line in lines)
    assert lines.index(b".") == len(lines) - 2


@given(TEXTS)
def test_no_subject_adds_a_header(subject: str) -> None:
    plain = read_back(mime.compose(mail(), SHOP))
    message = read_back(mime.compose(mail(subject=subject), SHOP))
    assert message.keys() == plain.keys()


@pytest.mark.parametrize("text", ["Hi\r\nBcc: x@example.com", "é=?UTF-8?Q?=0A?=Bcc: x@example.com", "Hi\u2028Bcc: x"])
def test_a_crafted_subject_reaches_nobody_else(text: str) -> None:
    message = read_back(mime.compose(mail(subject=text), SHOP))
    assert message["Bcc"] is None
    assert "Bcc" in message["Subject"]


@pytest.mark.parametrize("subject", ["Plain", "Grüße aus Köln", "👨‍👩‍👧 " * 40, "=?utf-8?q?literal?="])
def test_a_subject_reads_as_written(subject: str) -> None:
    assert read_back(mime.compose(mail(subject=subject), SHOP))["Subject"] == subject.strip()


def test_the_same_delivery_has_the_same_message_id() -> None:
    first, again = (read_back(mime.compose(mail(text=text), SHOP))["Message-ID"] for text in ("a", "b"))
    other = read_back(mime.compose(mail(message_key="other"), SHOP))["Message-ID"]
    assert first == again != other


def test_a_domain_goes_out_in_the_form_of_the_dns() -> None:
    assert read_back(mime.compose(mail(to="jo@müller.example"), SHOP))["To"] == "jo@xn--mller-kva.example"


@pytest.mark.parametrize("name", ["Pepé", 'Shop, "the" best', "a@b"])
def test_a_sender_name_reads_as_written(name: str) -> None:
    escaped = name.replace('"', '\\"')
    source = mime.sender(f'"{escaped}" <news@example.org>')
    address = read_back(mime.compose(mail(), source))["From"].addresses[0]
    assert (address.display_name, address.addr_spec) == (name, "news@example.org")


@pytest.mark.parametrize("text", ["", "Shop", "Shop <news>", "@example.org"])
def test_a_sender_without_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="holds no address"):
        mime.sender(text)
