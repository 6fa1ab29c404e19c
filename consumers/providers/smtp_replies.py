"""What an SMTP reply means (RFC 5321, RFC 3463; the habits of Gmail and Outlook)."""

from __future__ import annotations

import re

from consumers.providers.contract import ALONE_MS
from consumers.providers.smtp_connection import Reply, Stage
from schemas.outcomes import Kind, Outcome, Scope

ENHANCED = re.compile(r"^([245])\.(\d{1,3})\.(\d{1,3})\b")
UNKNOWN_MAILBOX = re.compile(r"user|mailbox|recipient|address", re.IGNORECASE)
NEGATION = re.compile(r"unknown|not exist|no such|not found|invalid|unavailable|does ?n.t", re.IGNORECASE)
GREYLIST_WAIT_MS = 300_000
"""Greylisting wants minutes, not seconds, and the same sender and recipient."""
MAILBOX_FULL_WAIT_MS = 300_000
HARD_BOUNCES = {"1.1", "1.2", "1.3", "1.6", "1.10"}
SOFT_BOUNCES = {"2.1", "4.1", "4.4"}
"""A mailbox that is switched off, a recipient refused as Outlook does it, no route: often only for a while."""
MAILBOX_FULL = "2.2"
AUTH_CODES = {530, 534, 535, 538}


def outcome(reply: Reply) -> Outcome:
    """The outcome behind the reply that decided a delivery."""
    found = ENHANCED.match(reply.text)
    detail = ".".join(found.group(2, 3)) if found and int(found[1]) == reply.code // 100 else ""
    kind, wait_ms = _kind(reply, detail)
    scope = Scope.LANE
    if kind is Kind.THROTTLE and detail.startswith("7.") and reply.stage in (Stage.RECIPIENT, Stage.CONTENT):
        scope, wait_ms = Scope.DOMAIN, ALONE_MS  # rate or reputation at the recipient's side, as Gmail and Outlook say
    shown = f"{reply.stage}: {reply.code}" + (f" {reply.code // 100}.{detail}" if detail else "")
    return Outcome(kind, detail=shown, retry_after_ms=wait_ms, scope=scope)


def _kind(reply: Reply, detail: str) -> tuple[Kind, int | None]:
    if 200 <= reply.code < 300:
        return (Kind.DONE if reply.stage is Stage.CONTENT else Kind.NOT_PROCESSED), None
    if 400 <= reply.code < 500:
        return _temporary(reply, detail)
    return _permanent(reply, detail), None


def _temporary(reply: Reply, detail: str) -> tuple[Kind, int | None]:
    if reply.stage in (Stage.CONNECT, Stage.LOGIN):
        return Kind.NOT_PROCESSED, None
    if reply.code == 454 and "hrottling" in reply.text:
        return Kind.THROTTLE, None
    if detail.startswith("7.") and (reply.code == 421 or detail != "7.1"):
        return Kind.THROTTLE, None
    if reply.code == 421 and reply.stage in (Stage.SENDER, Stage.RECIPIENT):
        return Kind.NOT_PROCESSED, None  # the server closes, and has not seen the message
    if detail in ("2.0", "7.1"):
        return Kind.RETRY, GREYLIST_WAIT_MS
    if detail == MAILBOX_FULL:
        return Kind.RETRY, MAILBOX_FULL_WAIT_MS
    return Kind.RETRY, None


def _permanent(reply: Reply, detail: str) -> Kind:
    if reply.code in AUTH_CODES or reply.stage in (Stage.CONNECT, Stage.LOGIN, Stage.SENDER):
        return Kind.AUTH_CONFIG
    if reply.code in (521, 556) or detail in HARD_BOUNCES:
        return Kind.SUPPRESS
    if detail in SOFT_BOUNCES:
        return Kind.SOFT_BOUNCE
    if detail == MAILBOX_FULL:
        return Kind.DEAD_ADDRESS  # for this message: it is nobody's mistake, and the address stays in use
    if detail.startswith("7."):
        return Kind.BLOCKED
    if detail or 500 <= reply.code <= 504 or reply.code == 552:
        return Kind.DROP
    return _without_detail(reply)


def _without_detail(reply: Reply) -> Kind:
    """550, 551, 553, 554 without an enhanced code: hard only when the text says that nobody lives there."""
    names_a_mailbox = UNKNOWN_MAILBOX.search(reply.text) and NEGATION.search(reply.text)
    return Kind.SUPPRESS if reply.stage is Stage.RECIPIENT and names_a_mailbox else Kind.BLOCKED
