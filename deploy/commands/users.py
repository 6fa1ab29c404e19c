"""`tidings users import FILE`: profiles from NDJSON or CSV, put through the HTTP API so that every check applies."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from schemas.errors import Misconfigured, Transient

AT_ONCE = 32
TRIES = 8
SHOWN = 20
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

    Raises Transient when the API stays away: the same import can simply be run again.
    """
    report = Report()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    lines = _numbered(file)
    async with aiohttp.ClientSession(headers=headers) as client, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(_work(client, api, lines, report))
    return report


async def _work(
    client: aiohttp.ClientSession, api: str, lines: Iterator[tuple[int, dict[str, Any] | str]], report: Report
) -> None:
    for number, user in lines:
        if isinstance(user, str):
            report.refuse(number, user)
        elif "user_id" not in user:
            report.refuse(number, "user_id: missing")
        elif why := await _put(client, api, user):
            report.refuse(number, why)
        else:
            report.stored += 1


async def _put(client: aiohttp.ClientSession, api: str, user: dict[str, Any]) -> str:
    """ "" when stored, else why not. Waits and tries again while the API is unavailable."""
    profile = {name: value for name, value in user.items() if name != "user_id"}
    url = f"{api}/v1/users/{quote(str(user['user_id']), safe='')}"
    for attempt in range(TRIES):
        try:
            async with client.put(url, json=profile) as answer:
                if answer.status < 300:
                    return ""
                if answer.status not in (429, 503):
                    return await _why(answer)
        except (aiohttp.ClientConnectionError, TimeoutError):
            pass
        await asyncio.sleep(min(0.25 * 2**attempt, 5))
    raise Transient(f"{api} did not answer; run the same import again, users already stored stay as they are")


async def _why(answer: aiohttp.ClientResponse) -> str:
    try:
        problem = await answer.json(content_type=None)
        return str(problem.get("detail") or problem.get("title") or answer.status)
    except (ValueError, AttributeError):
        return str(answer.status)


def _numbered(file: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """(line, user) of the file, or (line, what is wrong with it); the file is never held in memory."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            yield from _csv(text) if file.suffix.lower() == ".csv" else _ndjson(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{file} cannot be read: {error}") from None


def _ndjson(text: Iterator[str]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            user = json.loads(line)
        except ValueError as error:
            user = f"not JSON: {error}"
        yield number, user if isinstance(user, dict | str) else "not a JSON object"


def _csv(text: Iterator[str]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Columns: user_id, locale, time_zone, email, phone, and device.token, device.platform, ... for one device."""
    rows = csv.DictReader(text)
    known = {"user_id", *_PROFILE, *(f"device.{name}" for name in _DEVICE)}
    unknown = [name for name in rows.fieldnames or () if name not in known]
    if unknown or "user_id" not in (rows.fieldnames or ()):
        raise Misconfigured(f"the first line must name columns among {', '.join(sorted(known))}; not {unknown}")
    for row in rows:
        user: dict[str, Any] = {name: row[name] for name in ("user_id", *_PROFILE) if row.get(name)}
        device = {name: row[f"device.{name}"] for name in _DEVICE if row.get(f"device.{name}")}
        yield rows.line_num, {**user, "devices": [device]} if device else user
