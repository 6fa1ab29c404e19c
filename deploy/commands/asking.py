"""The errors of the HTTP client, and the API's refusals, as ours: for the commands that go through the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp

from schemas.errors import Misconfigured, Transient


@contextmanager
def answered_by(api: str) -> Iterator[None]:
    """Around one request and the reading of its answer, as JSON.

    Raises Transient where asking again may help, Misconfigured where no Tidings can be behind this address.
    """
    try:
        yield
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise Misconfigured(f"{api!r} is no address of an API; write --url like http://127.0.0.1:8080") from None
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError) as error:
        raise Transient(f"{api} did not answer: {error}") from None
    except (aiohttp.ClientError, ValueError):
        raise Misconfigured(f"{api} does not answer as Tidings does") from None


def refusal(status: int, told: Any, api: str, key: str) -> str:
    """Why the API refused, from its answer's JSON; of a key it is said where a command takes it from."""
    if status == UNAUTHORIZED:
        return f"{api} knows no such API key: {KEYS}" if key else f"{api} wants an API key: {KEYS}"
    why = told.get("detail") or told.get("title") if isinstance(told, dict) else None
    if status == FORBIDDEN and isinstance(told, dict) and told.get("field") == "Authorization":
        return f"{str(why).removeprefix('Authorization: ')}; {KEYS}"
    return str(why or f"the API answered {status}")


UNAUTHORIZED, FORBIDDEN = 401, 403
KEYS = "give one with --key or in TIDINGS_API_KEY (`tidings keys create` makes them)"
