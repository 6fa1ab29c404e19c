"""`tidings users import FILE`: profiles from NDJSON or CSV, put through the HTTP API so that every check applies."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from deploy.commands import asking
from schemas.errors import Misconfigured, Transient

AT_ONCE = 32
TRIES = 8
SHOWN = 20
Line = tuple[int, dict[str, Any] | str]
"""Its number, and the user in it or what is wrong with it."""
_PROFILE = ("locale", "time_zone", "email", "phone")
_DEVICE = ("token", "platform", "app", "environment", "registered_at")


@dataclass(slots=True)
class Report:
    """stored: users written; refused: (line, why) of the first ones; others are only counted."""

    stored: int = 0
    refused_count: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)

    def refuse(self, line: int, why: str) -> None:
        self.refused_count += 1
        if len(self.refused) < SHOWN:
            self.refused.append((line, why))


async def load(file: Path, api: str, key: str) -> Report:
    """Puts every user of the file; goes on after a refused one.

    Raises Transient when the API stays away: the same import can simply be run again. Misconfigured for a wrong key.
    """
    report = Report()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    lines = _numbered(file)
    async with aiohttp.ClientSession(headers=headers) as client, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(_work(client, api, key, lines, report))
    return report


async def _work(client: aiohttp.ClientSession, api: str, key: str, lines: Iterator[Line], report: Report) -> None:
    for number, user in lines:
        if isinstance(user, str):
            report.refuse(number, user)
        elif why := await _put(client, api, key, user):
            report.refuse(number, why)
        else:
            report.stored += 1


async def _put(client: aiohttp.ClientSession, api: str, key: str, user: dict[str, Any]) -> str:
    """ "" when stored, else why not. Waits and tries again while the API is unavailable.

    Raises Misconfigured where no user would be let in with this key.
    """
    profile = {name: value for name, value in user.items() if name != "user_id"}
    try:
        url = f"{api}/v1/users/{_quoted(user.get('user_id'))}"
    except ValueError as error:
        return f"user_id: {error}"
    for attempt in range(TRIES):
        with contextlib.suppress(Transient), asking.answered_by(api):
            async with client.put(url, json=profile) as answer:
                if answer.status < 300:
                    return ""
                if answer.status not in (429, 503):
                    return await _why(answer, api, key)
        await asyncio.sleep(min(0.25 * 2**attempt, 5))
    raise Transient(f"{api} did not answer; run the same import again, users already stored stay as they are")


def _quoted(user_id: object) -> str:
    """As a part of a path. Raises ValueError that says why no user can be called so."""
    if user_id is None:
        raise ValueError("missing")
    if isinstance(user_id, bool) or not isinstance(user_id, str | int):
        raise ValueError("must be text")
    try:
        return quote(str(user_id), safe="")
    except UnicodeEncodeError:
        raise ValueError("holds half a character, which no UTF-8 has") from None


async def _why(answer: aiohttp.ClientResponse, api: str, key: str) -> str:
    try:
        problem = await answer.json(content_type=None)
    except ValueError:
        problem = None
    why = asking.refusal(answer.status, problem, api, key)
    if answer.status in (asking.UNAUTHORIZED, asking.FORBIDDEN):
        raise Misconfigured(why)
    return why


def _numbered(file: Path) -> Iterator[Line]:
    """The lines of the file that are not blank; the file is never held in memory."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            yield from _csv(text) if file.suffix.lower() == ".csv" else _ndjson(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{file} cannot be read: {error}") from None


def _ndjson(text: Iterator[str]) -> Iterator[Line]:
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            user = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, f"not JSON: {error}"
        else:
            yield number, user if isinstance(user, dict) else "not a JSON object"


def _csv(text: Iterator[str]) -> Iterator[Line]:
    """Columns: user_id, locale, time_zone, email, phone, and device.token, device.platform, ... for one device."""
    columns = _columns(next(text, ""))
    for number, line in enumerate(text, 2):
        if not line.strip():
            continue
        cells = _cells(line)
        if isinstance(cells, str):
            yield number, cells
        elif len(cells) != len(columns):
            yield number, f"has {len(cells)} cells, the header row has {len(columns)}"
        else:
            yield number, _user({name: cell for name, cell in zip(columns, cells, strict=True) if cell})


def _columns(header: str) -> list[str]:
    """Raises Misconfigured when it does not say what each cell below is."""
    known = ("user_id", *_PROFILE, *(f"device.{name}" for name in _DEVICE))
    columns = _cells(header)
    named_once = len(set(columns)) == len(columns)
    if isinstance(columns, str) or not named_once or "user_id" not in columns or not set(columns) <= set(known):
        raise Misconfigured(f"the first line must name columns among {', '.join(known)}, each once, and user_id always")
    return columns


def _cells(line: str) -> list[str] | str:
    """Those of one line, or what is wrong with it. No cell here has a reason to hold a line break."""
    if line.count('"') % 2:
        return "not CSV: a quoted cell does not end in its line"
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        return f"not CSV: {error}"


def _user(row: dict[str, str]) -> dict[str, Any]:
    user: dict[str, Any] = {name: row[name] for name in ("user_id", *_PROFILE) if name in row}
    device = {name: row[f"device.{name}"] for name in _DEVICE if f"device.{name}" in row}
    return {**user, "devices": [device]} if device else user
