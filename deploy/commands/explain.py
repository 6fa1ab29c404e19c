"""`tidings explain`: the story of one message, asked of the API like anybody else would, set for people to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from deploy.commands.campaigns import Door
from schemas.errors import Misconfigured

_GOOD, _BAD, _OPEN = "bold green", "bold red", "bold yellow"
_STYLES = {
    "delivered": _GOOD,
    "sent": _GOOD,
    "bounced": _BAD,
    "complained": _BAD,
    "failed": _BAD,
    "undelivered": _BAD,
    "unconfirmed": _BAD,
}


def path(notification: str, campaign: str, user: str) -> str:
    """Where the API tells it. Raises Misconfigured unless it is one notification, or one user of a campaign."""
    if bool(notification) == bool(campaign or user) or bool(campaign) != bool(user):
        raise Misconfigured("name a notification (or a delivery), or else --campaign and --user together")
    if notification:
        return f"/v1/notifications/{quote(notification, safe='')}/explain"
    return f"/v1/campaigns/{quote(campaign, safe='')}/recipients/{quote(user, safe='')}/explain"


async def told(door: Door, where: str) -> dict[str, Any]:
    return await door.ask("GET", where)


def show(answer: dict[str, Any], out: Console) -> None:
    """Colours on a terminal; piped, the same words without them and without breaks in lines."""
    is_terminal = out.is_terminal
    for line in _lines(answer):
        out.print(line, soft_wrap=not is_terminal, highlight=False)


def _lines(answer: dict[str, Any]) -> Iterator[Text]:
    yield Text(answer["notification_id"], "bold")
    yield Text(answer["in_short"], _STYLES.get(answer["status"], _OPEN))
    for section in answer["story"]:
        yield Text("")
        yield Text(section["title"], "bold")
        for line in section["lines"]:
            yield Text(f"  {line}", "bold" if line.startswith(("Next:", "What you can do:")) else "")
    if answer["missing"]:
        yield Text("")
        yield Text("What could not be read", "bold")
        yield from (Text(f"  {line}", _OPEN) for line in answer["missing"])
