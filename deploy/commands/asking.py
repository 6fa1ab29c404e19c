"""The errors of the HTTP client as ours, for the commands that go through the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
