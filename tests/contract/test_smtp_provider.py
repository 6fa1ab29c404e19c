"""The SMTP provider against a foreign mail server (aiosmtpd) and against scripted ones."""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from email.message import EmailMessage

import pytest
import trustme
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from consumers.providers.contract import Call
from consumers.providers.smtp import SmtpOptions, SmtpProvider
from schemas.clock import SystemClock
from schemas.content import Content
from schemas.messages import Channel
from schemas.outcomes import Kind, Outcome, Scope
from tests.doubles.one_call import OneCall

HELLO = ("250-me", "250-PIPELINING", "250 ENHANCEDSTATUSCODES")
PLAIN_HELLO = ("250 me",)


def call(to: str = "mia@example.com", key: str = "default/e/1:email") -> Call:
    content = Content(text="Hi\n.\nMia", subject="Grüße", html="<p>Hi</p>")
    return Call("default", "mia", key, "nabc", "refabc", Channel.EMAIL, "order", to, content, 0)


@asynccontextmanager
async def provider(url: str, **options: object) -> AsyncIterator[OneCall]:
    given = SmtpOptions(url, "Shop <news@example.org>", **options)  # type: ignore[arg-type]
    made = OneCall(SmtpProvider("mail", given, SystemClock()))
    try:
        yield made
    finally:
        await made.close()


# A foreign server


class Box:
    """What aiosmtpd took; refuses `unknown@`."""

    def __init__(self) -> None:
        self.taken: list[Envelope] = []

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address.startswith("unknown@"):
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.taken.append(envelope)
        return "250 2.0.0 taken"


class SlowBox(Box):
    """Answers nobody before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.has_one, self.may_answer = asyncio.Event(), asyncio.Event()

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        answer = await super().handle_DATA(server, session, envelope)
        self.has_one.set()
        await self.may_answer.wait()
        return answer


@asynccontextmanager
async def foreign_server(box: Box, **options: object) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(
        lambda: SMTP(box, enable_SMTPUTF8=True, **options), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_a_foreign_server_takes_the_mail_as_written() -> None:
    box = Box()
    async with foreign_server(box) as port, provider(f"smtp://127.0.0.1:{port}") as mail:
        outcomes = [(await mail.send(call(key=f"k{turn}"))).kind for turn in range(3)]
    assert outcomes == [Kind.DONE] * 3
    first = box.taken[0]
    assert (first.mail_from, first.rcpt_tos) == ("news@example.org", ["mia@example.com"])
    assert isinstance(first.content, bytes)
    assert b"\r\nX-Tidings-Delivery-Key: k0\r\n" in first.content
    message = email.message_from_bytes(first.content, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    text = message.get_body(("plain",))
    assert text is not None
    assert text.get_content().split() == ["Hi", ".", "Mia"]


async def test_an_unknown_mailbox_is_suppressed_and_the_next_mail_still_goes_out() -> None:
    box = Box()
    async with foreign_server(box) as port, provider(f"smtp://127.0.0.1:{port}", max_connections=1) as mail:
        assert (await mail.send(call(to="unknown@example.com"))).kind is Kind.SUPPRESS
        assert (await mail.send(call())).kind is Kind.DONE
    assert len(box.taken) == 1


async def test_many_mails_at_once_share_a_few_connections() -> None:
    box = Box()
    async with foreign_server(box) as port, provider(f"smtp://127.0.0.1:{port}", max_connections=4) as mail:
        outcomes = await asyncio.gather(*(mail.send(call(key=f"k{turn}")) for turn in range(60)))
    assert {outcome.kind for outcome in outcomes} == {Kind.DONE}
    assert len(box.taken) == 60


async def test_starttls_is_used_with_a_login_when_offered() -> None:
    authority = trustme.CA()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    def check(server: SMTP, session: Session, envelope: Envelope, mechanism: str, given: LoginPassword) -> AuthResult:
        right = (given.login, given.password) == (b"u@x", b"p w")
        return AuthResult(success=right, handled=False)

    box = Box()
    secured = {"tls_context": server_side, "require_starttls": True, "authenticator": check, "auth_required": True}
    async with foreign_server(box, **secured) as port:
        async with provider(f"smtp://u%40x:p%20w@127.0.0.1:{port}", tls=trusting) as mail:
            assert (await mail.send(call())).kind is Kind.DONE
        async with provider(f"smtp://u%40x:wrong@127.0.0.1:{port}", tls=trusting) as mail:
            assert (await mail.send(call())).kind is Kind.AUTH_CONFIG
        async with provider(f"smtp://u%40x:p%20w@127.0.0.1:{port}") as mail:
            assert (await mail.send(call())).kind is Kind.NOT_PROCESSED
    assert len(box.taken) == 1


# Scripted servers

Talk = Callable[[str], str | None]
CLOSE = " (closing)"


class Script:
    """Answers each command line by `talk`; None closes, an answer that ends in CLOSE is its last one.

    The content after a 354 is one command, ".", to it. writers: of its connections so far.
    """

    def __init__(self, talk: Talk, banner: str = "220 me", hello: Sequence[str] = HELLO) -> None:
        self._talk, self._banner, self._hello = talk, banner, hello
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(ConnectionError, asyncio.CancelledError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{self._banner}\r\n".encode())
        in_data = False
        while raw := await reader.readline():
            line = raw.decode().rstrip("\r\n")
            if in_data and line != ".":
                continue
            answer = "\r\n".join(self._hello) if line.startswith("EHLO") else self._talk(line)
            if answer is None:
                break
            in_data = answer.startswith("354")
            if answer:
                writer.write(f"{answer.removesuffix(CLOSE)}\r\n".encode())
            if answer.endswith(CLOSE):
                break


@asynccontextmanager
async def scripted_server(script: Script | Talk) -> AsyncIterator[int]:
    script = script if isinstance(script, Script) else Script(script)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def replying(**by_command: str | None) -> Talk:
    """The scripted answer of a command word; 250 (354 for DATA) where none is given."""

    def talk(line: str) -> str | None:
        word = "DOT" if line == "." else line.split(" ")[0].upper()
        return by_command.get(word, "354 go on" if word == "DATA" else "250 2.0.0 ok")

    return talk


async def outcome_of(script: Script | Talk, timeout_s: float = 5.0) -> Outcome:
    async with scripted_server(script) as port, provider(f"smtp://127.0.0.1:{port}", timeout_s=timeout_s) as mail:
        return await mail.send(call())


async def sent_to(script: Script | Talk, timeout_s: float = 5.0) -> Kind:
    return (await outcome_of(script, timeout_s)).kind


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({"RCPT": "550 5.1.1 no such user", "DATA": "503 5.5.1 no recipients"}, Kind.SUPPRESS),
        ({"RCPT": "451 4.3.0 later"}, Kind.RETRY),
        ({"MAIL": "550 5.7.1 not your domain", "RCPT": "503 5.5.1 MAIL first"}, Kind.AUTH_CONFIG),
        ({"DATA": "451 4.3.0 disk full"}, Kind.RETRY),
        ({"DOT": "554 5.7.1 spam"}, Kind.BLOCKED),
        ({"DOT": None}, Kind.UNKNOWN),
        ({"DATA": None}, Kind.NOT_PROCESSED),
        ({"MAIL": None}, Kind.NOT_PROCESSED),
        ({"MAIL": "gibberish"}, Kind.NOT_PROCESSED),
    ],
)
async def test_the_stage_of_a_refusal_decides_what_it_means(answers: dict[str, str | None], kind: Kind) -> None:
    assert await sent_to(replying(**answers)) is kind


@pytest.mark.parametrize("hello", [HELLO, PLAIN_HELLO], ids=["pipelined", "one by one"])
@pytest.mark.parametrize(
    ("answers", "kind", "scope"),
    [
        ({"RCPT": "550 5.1.1 no such user" + CLOSE}, Kind.SUPPRESS, Scope.LANE),
        ({"RCPT": "550 5.1.1 no such user", "DATA": "503 5.5.1 RCPT first", "RSET": None}, Kind.SUPPRESS, Scope.LANE),
        ({"RCPT": "550 5.1.1 no such user", "DOT": None, "RSET": None}, Kind.SUPPRESS, Scope.LANE),
        ({"RCPT": "421 4.7.28 too much mail for that domain" + CLOSE}, Kind.THROTTLE, Scope.DOMAIN),
        ({"RCPT": "421 4.7.28 too much mail for that domain", "DATA": ""}, Kind.THROTTLE, Scope.DOMAIN),
        ({"MAIL": "421 4.7.0 try again later" + CLOSE}, Kind.THROTTLE, Scope.LANE),
        ({"DATA": "451 4.3.0 disk full" + CLOSE}, Kind.RETRY, Scope.LANE),
        ({"DOT": "554 5.7.1 spam" + CLOSE}, Kind.BLOCKED, Scope.LANE),
    ],
)
async def test_a_refusal_counts_although_the_server_closes_after_it(
    answers: dict[str, str | None], kind: Kind, scope: Scope, hello: tuple[str, ...]
) -> None:
    outcome = await outcome_of(Script(replying(**answers), hello=hello), timeout_s=1)
    assert (outcome.kind, outcome.scope) == (kind, scope)


async def test_a_refusal_counts_although_nothing_is_heard_after_it() -> None:
    assert await sent_to(replying(RCPT="550 5.1.1 no such user", DATA=""), timeout_s=0.1) is Kind.SUPPRESS


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({"DATA": "250 2.0.0 ok"}, Kind.NOT_PROCESSED),
        ({"DATA": "354 go on\r\n250 2.0.0 ok", "DOT": None}, Kind.NOT_PROCESSED),
        ({"RCPT": "220 me"}, Kind.NOT_PROCESSED),
        ({"MAIL": "220 me"}, Kind.NOT_PROCESSED),
        ({"DOT": "354 go on"}, Kind.UNKNOWN),
    ],
)
async def test_only_a_yes_to_the_content_means_that_the_mail_was_taken(
    answers: dict[str, str | None], kind: Kind
) -> None:
    assert await sent_to(replying(**answers)) is kind


async def test_a_greeting_that_is_none_does_not_mean_that_the_mail_was_taken() -> None:
    assert await sent_to(Script(replying(), banner="250 me")) is Kind.NOT_PROCESSED


async def test_the_answer_to_a_mail_given_up_is_not_taken_for_that_of_the_next_one() -> None:
    box = SlowBox()
    async with foreign_server(box) as port, provider(f"smtp://127.0.0.1:{port}", max_connections=1) as mail:
        given_up = asyncio.create_task(mail.send(call(key="k1")))
        async with asyncio.timeout(5):
            await box.has_one.wait()
        given_up.cancel()
        await asyncio.wait([given_up])
        box.may_answer.set()
        assert (await mail.send(call(key="k2"))).kind is Kind.DONE
    assert [b"Delivery-Key: k2" in (taken.content or b"") for taken in box.taken] == [False, True]


async def test_a_farewell_after_the_yes_is_not_taken_for_the_answer_to_the_next_mail() -> None:
    script = Script(replying(DOT="250 2.0.0 taken\r\n421 4.4.2 that was the last one"))
    async with scripted_server(script) as port, provider(f"smtp://127.0.0.1:{port}") as mail:
        assert [(await mail.send(call(key=key))).kind for key in ("k1", "k2")] == [Kind.DONE] * 2
    assert len(script.writers) == 2


async def test_a_connection_that_the_server_says_goodbye_to_while_it_is_idle_is_given_up() -> None:
    script = Script(replying())
    async with scripted_server(script) as port, provider(f"smtp://127.0.0.1:{port}") as mail:
        assert (await mail.send(call(key="k1"))).kind is Kind.DONE
        script.writers[0].write(b"421 4.4.2 idle for too long\r\n")
        async with asyncio.timeout(2):
            await script.writers[0].wait_closed()
        assert (await mail.send(call(key="k2"))).kind is Kind.DONE
    assert len(script.writers) == 2


async def test_silence_after_the_content_is_unknown_and_before_it_was_never_sent() -> None:
    assert await sent_to(replying(DOT=""), timeout_s=0.1) is Kind.UNKNOWN
    assert await sent_to(replying(RCPT=""), timeout_s=0.1) is Kind.NOT_PROCESSED


async def test_a_server_that_is_too_busy_to_greet_got_nothing() -> None:
    assert await sent_to(Script(replying(), banner="421 4.3.2 too busy")) is Kind.NOT_PROCESSED
    assert await sent_to(Script(replying(), banner="554 go away")) is Kind.AUTH_CONFIG


async def test_a_connection_is_usable_again_after_a_refused_recipient() -> None:
    seen: list[str] = []

    def talk(line: str) -> str | None:
        seen.append(line)
        refused = line.startswith("RCPT") and "unknown" in line
        return "550 5.1.1 no" if refused else replying()(line)

    async with scripted_server(talk) as port, provider(f"smtp://127.0.0.1:{port}", max_connections=1) as mail:
        assert (await mail.send(call(to="unknown@example.com"))).kind is Kind.SUPPRESS
        assert (await mail.send(call())).kind is Kind.DONE
    assert seen[3:5] == [".", "RSET"]


async def test_a_user_name_and_password_go_out_as_plain_login() -> None:
    seen: list[str] = []

    def talk(line: str) -> str | None:
        seen.append(line)
        return "235 2.7.0 welcome" if line.startswith("AUTH") else replying()(line)

    async with scripted_server(talk) as port, provider(f"smtp://me:secret@127.0.0.1:{port}") as mail:
        assert (await mail.send(call())).kind is Kind.DONE
    assert seen[0] == "AUTH PLAIN " + base64.b64encode(b"\0me\0secret").decode()
