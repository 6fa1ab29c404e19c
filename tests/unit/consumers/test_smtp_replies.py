"""What a mail server's reply means to the sender."""

from __future__ import annotations

import pytest

from consumers.providers import smtp_replies
from consumers.providers.smtp_connection import Reply, Stage
from schemas.outcomes import Kind, Scope


@pytest.mark.parametrize(
    ("stage", "code", "text", "kind"),
    [
        (Stage.CONTENT, 250, "2.0.0 queued as 4B", Kind.DONE),
        (Stage.RECIPIENT, 550, "5.1.1 no such user", Kind.SUPPRESS),
        (Stage.RECIPIENT, 553, "5.1.3 bad syntax", Kind.SUPPRESS),
        (Stage.RECIPIENT, 556, "5.1.10 null MX", Kind.SUPPRESS),
        (Stage.RECIPIENT, 550, "User unknown in local recipient table", Kind.SUPPRESS),
        (Stage.RECIPIENT, 550, "Denied by policy", Kind.BLOCKED),
        (Stage.CONTENT, 554, "5.7.1 looks like spam", Kind.BLOCKED),
        (Stage.CONTENT, 550, "message to unknown user looks bad", Kind.BLOCKED),
        (Stage.RECIPIENT, 550, "5.7.26 unauthenticated", Kind.BLOCKED),
        (Stage.RECIPIENT, 552, "5.2.2 mailbox full", Kind.DEAD_ADDRESS),
        (Stage.CONTENT, 550, "5.2.2 over quota", Kind.DEAD_ADDRESS),
        (Stage.RECIPIENT, 550, "5.2.1 mailbox disabled", Kind.SOFT_BOUNCE),
        (Stage.CONTENT, 550, "5.2.1 mailbox disabled", Kind.SOFT_BOUNCE),
        (Stage.RECIPIENT, 550, "5.4.4 no route", Kind.SOFT_BOUNCE),
        (Stage.CONTENT, 552, "5.3.4 too large", Kind.DROP),
        (Stage.RECIPIENT, 550, "5.4.1 recipient address rejected", Kind.SOFT_BOUNCE),
        (Stage.SENDER, 501, "5.5.4 bad parameter", Kind.AUTH_CONFIG),
        (Stage.SENDER, 530, "5.7.0 authentication required", Kind.AUTH_CONFIG),
        (Stage.LOGIN, 535, "5.7.8 bad credentials", Kind.AUTH_CONFIG),
        (Stage.CONNECT, 554, "no service for you", Kind.AUTH_CONFIG),
        (Stage.CONNECT, 421, "4.3.2 too busy", Kind.NOT_PROCESSED),
        (Stage.LOGIN, 454, "4.7.0 temporary authentication failure", Kind.NOT_PROCESSED),
        (Stage.RECIPIENT, 451, "4.3.0 try later", Kind.RETRY),
        (Stage.RECIPIENT, 450, "4.2.0 greylisted", Kind.RETRY),
        (Stage.CONTENT, 452, "4.2.2 mailbox full", Kind.RETRY),
        (Stage.SENDER, 421, "4.7.28 rate limited", Kind.THROTTLE),
        (Stage.CONTENT, 454, "Throttling failure: maximum sending rate exceeded", Kind.THROTTLE),
        (Stage.CONTENT, 421, "closing", Kind.RETRY),
        (Stage.RECIPIENT, 421, "4.3.2 closing", Kind.NOT_PROCESSED),
        (Stage.RECIPIENT, 451, "4.7.0 too much mail", Kind.THROTTLE),
        (Stage.CONTENT, 550, "4.2.2 contradicts itself: unknown mailbox", Kind.BLOCKED),
        (Stage.CONTENT, 502, "command not implemented", Kind.DROP),
    ],
)
def test_each_reply_has_one_meaning(stage: Stage, code: int, text: str, kind: Kind) -> None:
    assert smtp_replies.outcome(Reply(code, text, stage)).kind is kind


@pytest.mark.parametrize(
    ("stage", "code", "text", "scope"),
    [
        (Stage.RECIPIENT, 451, "4.7.0 too much mail for this domain", Scope.DOMAIN),
        (Stage.CONTENT, 421, "4.7.28 unusual rate of mail", Scope.DOMAIN),
        (Stage.SENDER, 421, "4.7.28 too much from this account", Scope.LANE),
        (Stage.CONTENT, 454, "Throttling failure: maximum sending rate exceeded", Scope.LANE),
    ],
)
def test_too_much_for_a_domain_is_told_from_too_much_for_the_account(
    stage: Stage, code: int, text: str, scope: Scope
) -> None:
    found = smtp_replies.outcome(Reply(code, text, stage))
    assert (found.kind, found.scope) == (Kind.THROTTLE, scope)
    assert (found.retry_after_ms == 60_000) is (scope is Scope.DOMAIN)


def test_greylisting_waits_for_minutes() -> None:
    assert smtp_replies.outcome(Reply(451, "4.7.1 greylisted", Stage.RECIPIENT)).retry_after_ms == 300_000


def test_the_detail_names_stage_and_code_and_never_the_servers_text() -> None:
    reply = Reply(550, "5.1.1 <mia@example.com> unknown", Stage.RECIPIENT)
    assert smtp_replies.outcome(reply).detail == "rcpt to: 550 5.1.1"
