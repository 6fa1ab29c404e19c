"""What each class of answer leads to, through the real adapters and the stand-ins of their providers.

For every one: what it means, what becomes of the delivery, whether a try is counted, and whether the breaker takes it
as a failure of the provider.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple

import pytest

from consumers.breaker import FAILURES
from consumers.providers.contract import Call, Provider
from consumers.providers.http import HttpOptions, HttpProvider
from consumers.providers.smtp import SmtpOptions, SmtpProvider
from deploy.local.places import free_port
from deploy.simulators import run
from deploy.simulators.faults import Faults
from deploy.simulators.smtp_server import MailOptions
from retry_topics import ladder
from schemas.clock import SystemClock
from schemas.content import Content
from schemas.messages import Channel, EventKind
from schemas.outcomes import Kind, Outcome, Scope
from schemas.policies import OnUnknown
from schemas.reasons import Reason
from tests.doubles.one_call import OneCall

TIMEOUT_S = 0.5
CONTENT = Content(text="Hallo", subject="Hallo")
DAY_MS = 86_400_000
REFUSED_PORT = "nobody listens"
WRONG_LOGIN = "wrong login"
SENT, RETRYING, FAILED = EventKind.SENT, EventKind.RETRYING, EventKind.FAILED


class Row(NamedTuple):
    """faults: of the stand-in, or what is wrong with the way to it. tries: counted by this call."""

    faults: Mapping[str, Any] | str
    kind: Kind
    verdict: EventKind
    reason: Reason
    tries: int = 0
    fails: bool = False
    scope: Scope = Scope.LANE


def only(fault: str, **more: Any) -> dict[str, Any]:
    return {"errors": {fault: 1}, **more}


UNKNOWN = (Kind.UNKNOWN, RETRYING, Reason.UNKNOWN_OUTCOME, 1, True)
HTTP = [
    Row({}, Kind.DONE, SENT, Reason.NONE),
    Row(only("503"), Kind.RETRY, RETRYING, Reason.PROVIDER_ERROR, 1, True),
    Row(only("408"), Kind.RETRY, RETRYING, Reason.PROVIDER_ERROR, 1, True),
    Row(REFUSED_PORT, Kind.NOT_PROCESSED, RETRYING, Reason.PROVIDER_DOWN, 0, True),
    Row(only("429"), Kind.THROTTLE, RETRYING, Reason.PROVIDER_THROTTLED),
    Row(only("429", scope="sender"), Kind.THROTTLE, RETRYING, Reason.PROVIDER_THROTTLED, scope=Scope.SENDER),
    Row(only("429", scope="recipient"), Kind.THROTTLE, RETRYING, Reason.PROVIDER_THROTTLED, scope=Scope.RECIPIENT),
    Row(only("400"), Kind.DROP, FAILED, Reason.REFUSED_BY_PROVIDER),
    Row({"refusals": {"dead_address": 1}}, Kind.DEAD_ADDRESS, FAILED, Reason.DEAD_DEVICE),
    Row({"refusals": {"suppress": 1}}, Kind.SUPPRESS, FAILED, Reason.ADDRESS_REFUSED),
    Row({"refusals": {"blocked": 1}}, Kind.BLOCKED, FAILED, Reason.BLOCKED_BY_PROVIDER),
    Row(only("401"), Kind.AUTH_CONFIG, RETRYING, Reason.PROVIDER_CONFIG),
    Row(only("403"), Kind.AUTH_CONFIG, RETRYING, Reason.PROVIDER_CONFIG),
    Row({"hang": 1}, *UNKNOWN),
    Row({"drop_reply": 1}, *UNKNOWN),
]
SMTP = [
    Row({}, Kind.DONE, SENT, Reason.NONE),
    Row(only("451"), Kind.RETRY, RETRYING, Reason.PROVIDER_ERROR, 1, True),
    Row({"rcpt_errors": {"451 4.3.0": 1}}, Kind.RETRY, RETRYING, Reason.PROVIDER_ERROR, 1, True),
    Row({"rcpt_errors": {"450 4.2.0": 1}}, Kind.RETRY, RETRYING, Reason.PROVIDER_ERROR, 1, True),
    Row(REFUSED_PORT, Kind.NOT_PROCESSED, RETRYING, Reason.PROVIDER_DOWN, 0, True),
    Row({"rcpt_errors": {"421 4.3.2": 1}}, Kind.NOT_PROCESSED, RETRYING, Reason.PROVIDER_DOWN, 0, True),
    Row(only("454 Throttling failure"), Kind.THROTTLE, RETRYING, Reason.PROVIDER_THROTTLED),
    Row(only("421 4.7.28"), Kind.THROTTLE, RETRYING, Reason.PROVIDER_THROTTLED, scope=Scope.DOMAIN),
    Row({"rcpt_errors": {"421 4.7.28": 1}}, Kind.THROTTLE, RETRYING, Reason.PROVIDER_THROTTLED, scope=Scope.DOMAIN),
    Row({"rcpt_errors": {"451 4.7.0": 1}}, Kind.THROTTLE, RETRYING, Reason.PROVIDER_THROTTLED, scope=Scope.DOMAIN),
    Row(only("552 5.3.4"), Kind.DROP, FAILED, Reason.REFUSED_BY_PROVIDER),
    Row({"rcpt_errors": {"552 5.2.2": 1}}, Kind.DEAD_ADDRESS, FAILED, Reason.ADDRESS_REFUSED),
    Row({"rcpt_errors": {"550 5.4.1": 1}}, Kind.SOFT_BOUNCE, FAILED, Reason.ADDRESS_REFUSED),
    Row(only("550 5.2.1"), Kind.SOFT_BOUNCE, FAILED, Reason.ADDRESS_REFUSED),
    Row({"rcpt_errors": {"550": 1}}, Kind.SUPPRESS, FAILED, Reason.ADDRESS_REFUSED),
    Row(only("554 5.7.1"), Kind.BLOCKED, FAILED, Reason.BLOCKED_BY_PROVIDER),
    Row(WRONG_LOGIN, Kind.AUTH_CONFIG, RETRYING, Reason.PROVIDER_CONFIG),
    Row({"hang": 1}, *UNKNOWN),
    Row({"drop_reply": 1}, *UNKNOWN),
]


@asynccontextmanager
async def http(faults: Mapping[str, Any] | str) -> AsyncIterator[tuple[OneCall, Channel, run.Running]]:
    given = Faults() if isinstance(faults, str) else Faults(**faults)
    async with run.running(run.Options(http_port=0, smtp_port=0, faults=given)) as outside:
        port = free_port() if faults == REFUSED_PORT else outside.http_port
        made = HttpProvider("gateway", HttpOptions(f"http://127.0.0.1:{port}/send", TIMEOUT_S), SystemClock())
        async with aclosing(Closing(made)):
            yield OneCall(made), Channel.PUSH, outside


@asynccontextmanager
async def smtp(faults: Mapping[str, Any] | str) -> AsyncIterator[tuple[OneCall, Channel, run.Running]]:
    """451 at RCPT, 550 5.1.1 there and 554 after the content are told apart (P42)."""
    given = Faults() if isinstance(faults, str) else Faults(**faults)
    mail = MailOptions(user="shop", password="right")
    async with run.running(run.Options(http_port=0, smtp_port=0, faults=given, mail=mail)) as outside:
        port = free_port() if faults == REFUSED_PORT else outside.smtp_port
        word = "wrong" if faults == WRONG_LOGIN else "right"
        options = SmtpOptions(f"smtp://shop:{word}@127.0.0.1:{port}", "Shop <news@example.org>", TIMEOUT_S)
        made = SmtpProvider("mail", options, SystemClock())
        async with aclosing(Closing(made)):
            yield OneCall(made), Channel.EMAIL, outside


class Closing:
    """The provider, for `aclosing`."""

    def __init__(self, provider: Provider) -> None:
        self.aclose = provider.close


def call(channel: Channel) -> Call:
    to = "mia@example.com" if channel is Channel.EMAIL else "token-1"
    return Call("default", "mia", "default/e/1", "nabc", "ref", channel, "order", to, CONTENT, 0)


def judged(outcome: Outcome, channel: Channel, on_unknown: OnUnknown = OnUnknown.RISK_REPEAT) -> ladder.Verdict:
    attempt = ladder.Attempt(channel, call=3, tries=2, expires_at_ms=DAY_MS, on_unknown=on_unknown)
    return ladder.judge(outcome, attempt, 0, Random(1))


@pytest.mark.parametrize(
    ("kind", "row"), [*((http, row) for row in HTTP), *((smtp, row) for row in SMTP)], ids=lambda one: _name(one)
)
async def test_each_class_of_answers_has_its_decision(kind: Any, row: Row) -> None:
    async with kind(row.faults) as (provider, channel, _):
        outcome = await provider.send(call(channel))
    found = judged(outcome, channel)
    assert (outcome.kind, outcome.scope) == (row.kind, row.scope), outcome
    assert (found.kind, found.reason) == (row.verdict, row.reason)
    assert found.tries - 2 == row.tries
    assert (outcome.kind in FAILURES) is row.fails
    assert found.suppress is (row.kind is Kind.SUPPRESS)
    assert found.is_unknown is (row.kind is Kind.UNKNOWN)


@pytest.mark.parametrize("kind", [http, smtp])
async def test_where_a_loss_is_better_than_a_repeat_a_call_without_an_answer_is_the_last(kind: Any) -> None:
    async with kind({"drop_reply": 1}) as (provider, channel, _):
        found = judged(await provider.send(call(channel)), channel, OnUnknown.RISK_LOSS)
    assert (found.kind, found.reason) == (EventKind.UNCONFIRMED, Reason.UNKNOWN_OUTCOME)


@pytest.mark.parametrize("status", ["429", "503"])
@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_provider_is_left_alone_for_as_long_as_it_asks(status: str, form: str) -> None:
    async with http(only(status, retry_after_s=90, retry_after_form=form)) as (provider, channel, _):
        asked = datetime.now(UTC)
        outcome = await provider.send(call(channel))
    found = judged(outcome, channel)
    late_ms = (datetime.now(UTC) - asked).total_seconds() * 1000 + 1_000  # a date has no parts of a second
    assert 90_000 - late_ms <= found.until_ms <= 90_000 and found.tier == "10m"


@pytest.mark.parametrize("kind", [http, smtp])
async def test_the_delivery_key_goes_along_with_every_repeat(kind: Any) -> None:
    """Softens what cannot be ruled out: who can, drops the second by it."""
    async with kind({"drop_reply": 1}) as (provider, channel, outside):
        for _ in range(2):
            await provider.send(call(channel))
        (service,) = outside.ledger.services.values()
        assert {message.key for message in service.messages} == {"default/e/1"}
        assert (service.sends, service.repeats) == (2, 1)


async def test_a_gateway_that_knows_the_key_sends_once() -> None:
    async with http({"drop_reply": 1, "idempotent": True}) as (provider, channel, outside):
        outcomes = [await provider.send(call(channel)) for _ in range(2)]
        assert {outcome.kind for outcome in outcomes} == {Kind.UNKNOWN}
        assert outside.ledger.service("/send").sends == 1


def _name(one: Any) -> str:
    return one.kind.value if isinstance(one, Row) else getattr(one, "__name__", str(one))
