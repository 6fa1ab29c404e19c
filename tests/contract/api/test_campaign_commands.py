"""`tidings campaigns ...` as an operator types it, against the API itself."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from typer.testing import CliRunner

from deploy import cli
from producers.api.app import build_app
from producers.auth import Scope
from schemas.errors import Misconfigured
from tests.doubles.api import Api, api_key

Said = Callable[..., Awaitable[str]]
NEWS: dict[str, Any] = {"campaign_id": "spring", "template": "news", "recipients": [{"user_id": n} for n in range(3)]}


@pytest.fixture
async def said(api: Api) -> AsyncIterator[Said]:
    """What a command prints; its exception when it fails. The API holds the campaign "spring"."""
    api.with_keys(api_key("secret", "default", *Scope), *(api_key(scope, "default", scope) for scope in Scope))
    await api.parts.campaigns.open(api.log)
    key = {"Authorization": "Bearer secret"}
    async with TestClient(TestServer(build_app(api.parts)), headers=key) as client:
        assert (await client.post("/v1/campaigns", json=NEWS)).status == 202

        async def say(*words: str, key: str = "secret") -> str:
            options = ["--url", str(client.make_url("/")), "--key", key]
            result = await asyncio.to_thread(CliRunner().invoke, cli.app, ["campaigns", *words, *options])
            print(result.stderr, file=sys.stderr, end="")
            if result.exception is not None:
                raise result.exception
            return result.stdout

        yield say


async def test_each_verb_shows_the_campaign_as_it_is_after_it(said: Said) -> None:
    verbs = ("pause", "resume", "cancel")
    seen = [json.loads(await said(verb, "spring", "--json"))["status"] for verb in verbs]
    assert seen == ["paused", "running", "cancelled"]


async def test_pace_and_weight_are_changed_and_the_pace_is_lifted_again(said: Said) -> None:
    seen = []
    for words in (["pace", "spring", "20"], ["weight", "spring", "5"], ["pace", "spring", "none"]):
        told = json.loads(await said(*words, "--json"))
        seen.append((told["pace_per_s"], told["weight"]))
    assert seen == [(20, 1), (20, 5), (None, 5)]


async def test_people_get_a_list_and_a_sheet(said: Said) -> None:
    await said("pause", "spring")
    listed, shown = await said("list"), await said("show", "spring")
    assert "spring" in listed and "paused" in listed
    assert "paused" in shown and "resume" in shown and "accepted" in shown
    assert json.loads(await said("list", "--json"))["campaigns"][0]["campaign_id"] == "spring"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["pause", "nobody"], "no such campaign: 'nobody', or it ended too long ago"),
        (["pace", "spring", "0"], "greater than or equal to 1"),
        (["pace", "spring", "fast"], "'fast' is no pace"),
    ],
)
async def test_a_refusal_is_told_in_words(said: Said, words: list[str], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        await said(*words)


async def test_a_resume_after_a_cancel_and_a_wrong_key_are_refused(said: Said) -> None:
    await said("cancel", "spring")
    with pytest.raises(Misconfigured, match="spring was cancelled, which cannot be undone"):
        await said("resume", "spring")
    for key, why in (("wrong", "knows no such API key"), ("", "wants an API key")):
        with pytest.raises(Misconfigured, match=f"{why}: give one with --key or in TIDINGS_API_KEY"):
            await said("list", key=key)


VERBS = {
    "list": ["list"],
    "show": ["show", "spring"],
    "pause": ["pause", "spring"],
    "resume": ["resume", "spring"],
    "cancel": ["cancel", "spring"],
    "pace": ["pace", "spring", "20"],
    "weight": ["weight", "spring", "5"],
}


@pytest.mark.parametrize("verb", VERBS)
async def test_the_help_of_each_verb_names_the_scopes_that_it_wants_and_no_other(said: Said, verb: str) -> None:
    printed = CliRunner().invoke(cli.app, ["campaigns", verb, "--help"], env={"COLUMNS": "200"}).stdout
    named = re.findall(r"[a-z]+", printed.partition("An API key with the scope ")[2].partition(".")[0])
    scopes = [scope for scope in Scope if scope in named]
    assert scopes
    for scope in Scope:
        if scope in scopes:
            assert "spring" in await said(*VERBS[verb], key=scope)
        else:
            with pytest.raises(Misconfigured, match=r"^this key lacks the scope '.*; give one with --key"):
                await said(*VERBS[verb], key=scope)


async def test_an_order_is_given_again_while_the_api_has_no_log_and_who_gave_it_hears_so(
    api: Api, said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    api.log.fail = True
    asyncio.get_running_loop().call_later(0.5, setattr, api.log, "fail", False)
    assert json.loads(await said("pause", "spring", "--json"))["status"] == "paused"
    assert "is not available; asking again" in capsys.readouterr().err
