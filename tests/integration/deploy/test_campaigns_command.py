"""`tidings campaigns`, `tidings explain`: what somebody hears while the API is away, or where it never was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.commands import campaigns, users
from deploy.commands.campaigns import Door
from schemas.errors import Misconfigured, TidingsError, Transient

Command = Callable[[str, Path], Coroutine[Any, Any, object]]
CUT_OFF = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"


async def list_campaigns(url: str, _: Path) -> object:
    return await campaigns.newest(Door(url, "", lambda words: None), 1)


async def import_users(url: str, folder: Path) -> object:
    (folder / "users.ndjson").write_text('{"user_id": "1"}\n')
    return await users.load(folder / "users.ndjson", url, "")


@asynccontextmanager
async def saying(answer: bytes) -> AsyncIterator[str]:
    """A server that says this to whoever asks."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def complaint(command: Command, url: str, folder: Path) -> TidingsError:
    with pytest.raises((TidingsError, ExceptionGroup)) as told:
        await command(url, folder)
    first: BaseException = told.value
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, TidingsError)
    return first


async def test_who_asks_an_api_that_is_away_hears_at_once_that_it_is_asked_again_and_at_last_that_it_stayed_away(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setattr(campaigns, "PAUSES_S", (0.5, 0.5))
    said: list[str] = []
    away = f"http://127.0.0.1:{unused_tcp_port}"
    with pytest.raises(Transient, match=f"{away} did not answer; look whether it runs there"):
        await campaigns.one(Door(away, "", said.append), "spring")
    assert said == [f"{away} is not available; asking again for 1 s"]


@pytest.mark.parametrize("command", [list_campaigns, import_users])
@pytest.mark.parametrize("url", ["localhost:8080", "http://host:port", "ftp://localhost", "http://"])
async def test_who_names_no_address_of_an_api_hears_what_one_looks_like(
    command: Command, url: str, tmp_path: Path
) -> None:
    told = await complaint(command, url, tmp_path)
    assert isinstance(told, Misconfigured)
    assert str(told) == f"{url!r} is no address of an API; write --url like http://127.0.0.1:8080"


@pytest.mark.parametrize("command", [list_campaigns, import_users])
async def test_who_names_a_port_that_speaks_no_http_hears_that_it_is_not_tidings(
    command: Command, tmp_path: Path
) -> None:
    async with saying(b"220 mail.example ESMTP\r\n") as url:
        told = await complaint(command, url, tmp_path)
    assert isinstance(told, Misconfigured) and str(told) == f"{url} does not answer as Tidings does"


async def test_an_answer_that_is_cut_off_is_asked_for_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(campaigns, "PAUSES_S", (0.01, 0.01))
    async with saying(CUT_OFF) as url:
        told = await complaint(list_campaigns, url, tmp_path)
    assert isinstance(told, Transient) and str(told).startswith(f"{url} did not answer")


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (b"401 Unauthorized", "wants an API key: give one with --key or in TIDINGS_API_KEY"),
        (b"403 Forbidden", "this key lacks the scope 'users'; give one with --key or in TIDINGS_API_KEY"),
    ],
)
async def test_a_key_that_opens_nothing_is_told_once_and_not_for_each_line(
    tmp_path: Path, status: bytes, why: str
) -> None:
    told = b'{"field": "Authorization", "detail": "Authorization: this key lacks the scope \'users\'"}'
    answer = b"HTTP/1.1 %b\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n%b"
    async with saying(answer % (status, len(told), told)) as url:
        complained = await complaint(import_users, url, tmp_path)
    assert isinstance(complained, Misconfigured) and why in str(complained)
