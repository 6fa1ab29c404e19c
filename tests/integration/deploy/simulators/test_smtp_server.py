"""The mail stand-in, spoken to by the standard library's own client."""

from __future__ import annotations

import asyncio
import smtplib
import socket
from collections.abc import AsyncIterator, Callable
from email.message import EmailMessage
from typing import Any, TypeVar

import pytest

from deploy.simulators import run
from deploy.simulators.faults import Faults
from deploy.simulators.smtp_server import MailOptions

T = TypeVar("T")


@pytest.fixture
async def simulator() -> AsyncIterator[run.Running]:
    mail = MailOptions(user="shop", password="secret")
    async with run.running(run.Options(http_port=0, smtp_port=0, mail=mail)) as running:
        yield running


def _letter(key: str, to: str = "anna@example.org") -> EmailMessage:
    letter = EmailMessage()
    letter["From"], letter["To"], letter["Subject"] = "news@example.org", to, "Ünïcode"
    letter["X-Tidings-Delivery-Key"] = key
    letter.set_content("hello\n.\n..dots\n")
    return letter


async def _session(simulator: run.Running, act: Callable[[smtplib.SMTP], T], login: bool = True) -> T:
    def whole() -> T:
        with smtplib.SMTP("127.0.0.1", simulator.smtp_port, timeout=10) as client:
            if login:
                client.login("shop", "secret")
            return act(client)

    return await asyncio.to_thread(whole)


async def test_letters_on_one_connection_are_taken_and_counted(simulator: run.Running) -> None:
    def act(client: smtplib.SMTP) -> None:
        for n in range(3):
            client.send_message(_letter(f"k{n}"))
        client.send_message(_letter("k0"))

    await _session(simulator, act)
    summary = simulator.ledger.summary()["services"]["smtp"]
    assert (summary["sends"], summary["repeats"], summary["distinct_recipients"]) == (4, 1, 1)
    content = simulator.ledger.service("smtp").messages[0].content["content"]
    assert "hello\r\n.\r\n..dots" in content


async def test_it_offers_what_fast_clients_use(simulator: run.Running) -> None:
    def act(client: smtplib.SMTP) -> dict[str, str]:
        client.ehlo()
        return dict(client.esmtp_features)

    offered = await _session(simulator, act)
    assert {"pipelining", "8bitmime", "smtputf8", "enhancedstatuscodes", "size", "auth"} <= set(offered)


async def test_without_the_password_nothing_is_taken(simulator: run.Running) -> None:
    with pytest.raises(smtplib.SMTPAuthenticationError):
        await _session(simulator, lambda client: client.login("shop", "wrong"), login=False)
    with pytest.raises(smtplib.SMTPSenderRefused):
        await _session(simulator, lambda client: client.send_message(_letter("k")), login=False)


async def test_recipients_and_letters_are_refused_as_ordered(simulator: run.Running) -> None:
    simulator.board.set("smtp", Faults(rcpt_errors={"550": 1}))
    with pytest.raises(smtplib.SMTPRecipientsRefused):
        await _session(simulator, lambda client: client.send_message(_letter("k")))
    simulator.board.set("smtp", Faults(errors={"451": 1}))
    with pytest.raises(smtplib.SMTPDataError, match=r"4\.3\.0"):
        await _session(simulator, lambda client: client.send_message(_letter("k")))
    assert simulator.ledger.summary()["sends"] == 0


@pytest.mark.parametrize("faults", [{"rcpt_errors": {"421": 1}}, {"errors": {"421": 1}}], ids=["rcpt", "content"])
async def test_a_421_is_the_last_word_of_a_connection(simulator: run.Running, faults: dict[str, Any]) -> None:
    simulator.board.set("smtp", Faults(**faults))
    whole = b"AUTH PLAIN AHNob3AAc2VjcmV0\r\nMAIL FROM:<a@x>\r\nRCPT TO:<b@x>\r\nDATA\r\nhi\r\n.\r\nNOOP\r\n"

    def talk() -> bytes:
        with socket.create_connection(("127.0.0.1", simulator.smtp_port), timeout=2) as raw:
            raw.sendall(whole)
            return b"".join(iter(lambda: raw.recv(65536), b""))

    assert (await asyncio.to_thread(talk)).splitlines()[-1].startswith(b"421")


async def test_a_dropped_reply_was_sent(simulator: run.Running) -> None:
    simulator.board.set("smtp", Faults(drop_reply=1))
    with pytest.raises((smtplib.SMTPServerDisconnected, ConnectionError)):
        await _session(simulator, lambda client: client.send_message(_letter("k")))
    assert simulator.ledger.summary()["services"]["smtp"]["answers"] == {"dropped": 1}
    assert simulator.ledger.summary()["sends"] == 1


async def test_a_pipelined_session_in_one_write_is_answered_line_by_line(simulator: run.Running) -> None:
    simulator.board.set("smtp", Faults(answer_ms=5))
    login = b"AUTH PLAIN AHNob3AAc2VjcmV0\r\n"
    letter = b"MAIL FROM:<a@x> SIZE=9\r\nRCPT TO:<b@x>\r\nDATA\r\nSubject: x\r\n\r\nhi\r\n.\r\n"
    whole = b"EHLO me\r\n" + login + letter * 2 + b"NONSENSE\r\nQUIT\r\n"

    def talk() -> bytes:
        with socket.create_connection(("127.0.0.1", simulator.smtp_port), timeout=10) as raw:
            raw.sendall(whole)
            return b"".join(iter(lambda: raw.recv(65536), b""))

    answers = [line[:3] for line in (await asyncio.to_thread(talk)).splitlines() if line[3:4] == b" "]
    one_letter = [b"250", b"250", b"354", b"250"]
    assert answers == [b"220", b"250", b"235", *one_letter, *one_letter, b"502", b"221"]
