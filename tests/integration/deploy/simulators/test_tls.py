"""The stand-ins over TLS: STARTTLS for mail, HTTPS for the gateway."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl

import aiohttp
import trustme

from deploy.simulators import run
from deploy.simulators.smtp_server import MailOptions


def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(the server's, the client's)."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client


async def test_mail_after_starttls_is_taken_and_what_was_said_before_is_forgotten() -> None:
    server, client = _contexts()
    async with run.running(run.Options(http_port=0, smtp_port=0, mail=MailOptions(tls=server))) as running:

        def session() -> tuple[int, bytes]:
            with smtplib.SMTP("localhost", running.smtp_port, timeout=10) as mail:
                mail.ehlo()
                assert mail.has_extn("starttls")
                mail.mail("early@example.org")
                mail.starttls(context=client)
                refused = mail.rcpt("b@example.org")
                mail.ehlo()
                assert not mail.has_extn("starttls")
                mail.sendmail("a@example.org", "b@example.org", "Subject: x\r\n\r\nhi")
                return refused

        assert (await asyncio.to_thread(session))[0] == 503
        assert running.ledger.summary()["sends"] == 1


async def test_what_is_slipped_in_behind_starttls_is_not_taken_for_encrypted() -> None:
    server, client = _contexts()
    async with run.running(run.Options(http_port=0, smtp_port=0, mail=MailOptions(tls=server))) as running:

        def session() -> bytes:
            with socket.create_connection(("localhost", running.smtp_port), timeout=10) as plain:
                plain.recv(1024)
                plain.sendall(b"STARTTLS\r\nMAIL FROM:<evil@example.org>\r\n")
                assert plain.recv(1024).startswith(b"220")
                with client.wrap_socket(plain, server_hostname="localhost") as secure:
                    secure.sendall(b"RCPT TO:<b@example.org>\r\n")
                    return secure.recv(1024)

        assert (await asyncio.to_thread(session)).startswith(b"503")


async def test_the_gateway_answers_over_https() -> None:
    server, client = _contexts()
    options = run.Options(host="localhost", http_port=0, smtp_port=0, tls=server)
    async with run.running(options) as running, aiohttp.ClientSession() as session:
        url = f"https://localhost:{running.http_port}/send"
        async with session.post(url, json={"delivery_key": "k", "to": "t"}, ssl=client) as answer:
            assert answer.status == 202
    await asyncio.sleep(0)  # let the closed transports go
