"""`tidings campaigns ...`: how campaigns are, and orders to them, through the HTTP API like anybody else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
from rich.table import Table

from deploy.commands import asking
from schemas.errors import Misconfigured, Transient

PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0)
ANSWER_WITHIN_S = 20
NO_LIMIT = "none"


@dataclass(frozen=True, slots=True)
class Door:
    """Where the API is, and with which key one enters. say: tells who waits that they wait."""

    api: str
    key: str
    say: Callable[[str], None]

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer's JSON. Every call here may be repeated: waits and asks again while the API is unavailable.

        Raises Misconfigured with the reason of a refusal, Transient when the API stays away.
        """
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN_S)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as client:
            for attempt, pause_s in enumerate(PAUSES_S):
                answer = await self._once(client, method, path, body)
                if answer is not None:
                    return answer
                if not attempt:
                    self.say(f"{self.api} is not available; asking again for {sum(PAUSES_S):.0f} s")
                await asyncio.sleep(pause_s)
        where = "look whether it runs there, else name it with --url"
        raise Transient(f"{self.api} did not answer; {where}; the same order may be given again")

    async def _once(
        self, client: aiohttp.ClientSession, method: str, path: str, body: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        with contextlib.suppress(Transient), asking.answered_by(self.api):
            async with client.request(method, self.api + path, json=body) as answer:
                if answer.status in (429, 503):
                    return None
                told = await answer.json(content_type=None)
                if answer.status < 400 and isinstance(told, dict):
                    return told
                raise Misconfigured(asking.refusal(answer.status, told, self.api, self.key))
        return None


async def newest(door: Door, most: int) -> list[dict[str, Any]]:
    """The newest campaigns first."""
    found: list[dict[str, Any]] = (await door.ask("GET", f"/v1/campaigns?limit={most}"))["campaigns"]
    return found


async def one(door: Door, campaign_id: str) -> dict[str, Any]:
    return await door.ask("GET", _path(campaign_id))


async def order(door: Door, campaign_id: str, word: str) -> dict[str, Any]:
    """word: pause, resume or cancel. The campaign as it is then."""
    return await door.ask("POST", f"{_path(campaign_id)}/{word}")


async def change(door: Door, campaign_id: str, **change: int | None) -> dict[str, Any]:
    """Another pace_per_s (None lifts the limit) or weight. The campaign as it is then."""
    return await door.ask("PATCH", _path(campaign_id), change)


def pace(text: str) -> int | None:
    """A pace as a person writes it. Raises Misconfigured."""
    if text == NO_LIMIT:
        return None
    if not text.isascii() or not text.isdigit():
        raise Misconfigured(f"{text!r} is no pace: write recipients a second, or {NO_LIMIT!r} to lift the limit")
    return int(text)


def table(campaigns: list[dict[str, Any]]) -> Table:
    """Many, a line each."""
    made = Table("campaign", "status", "finished", "of", "sent", "pace", "ends about", "waits for", box=None)
    for told in campaigns:
        made.add_row(
            told["campaign_id"],
            _status(told),
            str(sum(told["outcomes"].values())),
            str(told["expected"]),
            str(told["progress"]["sent"]),
            f"{told['pace']:g}/s",
            told["ends_about"] or "",
            told["waits_for"] or "",
        )
    return made


def sheet(told: Mapping[str, Any]) -> Table:
    """One, with everything that is known."""
    made = Table(box=None, show_header=False)
    for name, value in _lines(told):
        made.add_row(name, value)
    return made


def _lines(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "campaign", told["campaign_id"]
    yield "status", _status(told)
    for stage, count in told["progress"].items():
        yield stage, str(count)
    for outcome, count in told["outcomes"].items():
        yield f"outcome {outcome}", str(count)
    for reason, count in told["reasons"].items():
        yield f"reason {reason}", str(count)
    limit = f", at most {told['pace_per_s']}/s" if told["pace_per_s"] else ""
    yield "pace", f"{told['pace']:g}/s{limit}, weight {told['weight']}"
    for name in ("possible_duplicates", "waits_for", "ends_about", "finished_at"):
        if told[name]:
            yield name.replace("_", " "), str(told[name])


def _status(told: Mapping[str, Any]) -> str:
    return f"{told['status']}, stalled since {told['stalled_since']}" if told["stalled_since"] else str(told["status"])


def _path(campaign_id: str) -> str:
    return f"/v1/campaigns/{quote(campaign_id, safe='')}"
