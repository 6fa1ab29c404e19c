"""What the mail stand-in reads out of a message."""

from __future__ import annotations

from deploy.simulators.smtp_server import delivery_key, unstuff


def test_dots_that_were_stuffed_are_taken_away() -> None:
    assert unstuff(b"..one\r\ntwo.\r\n..\r\n...three\r\n") == b".one\r\ntwo.\r\n.\r\n..three\r\n"


def test_the_delivery_key_header_wins_over_the_message_id() -> None:
    mail = b"Message-ID: <m@x>\r\nx-tidings-delivery-key: default/42:abc\r\n\r\nX-Tidings-Delivery-Key: no\r\n"
    assert delivery_key(mail) == "default/42:abc"


def test_without_it_the_message_id_counts_also_when_folded() -> None:
    assert delivery_key(b"Subject: x\r\nMessage-ID:\r\n <m@x>\r\n\r\nhi\r\n") == "<m@x>"


def test_a_bare_message_is_known_by_its_content() -> None:
    assert delivery_key(b"Subject: a\r\n\r\n") == delivery_key(b"Subject: a\r\n\r\n") != delivery_key(b"\r\nb\r\n")
