"""The supervisor keeps its children running, says when all of them work, and leaves none behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from deploy import roles
from deploy.up import Supervisor, Waits
from schemas.errors import Misconfigured

# Stands for `tidings`: the first word says how it behaves.
PROGRAM = """
import os, pathlib, signal, sys, time
from deploy import ready
how, folder = sys.argv[1], pathlib.Path(sys.argv[2])
if how == "refuses":
    print("tidings: set [kafka] bootstrap"); sys.exit(78)
if how == "dies-once" and not (folder / "died").exists():
    (folder / "died").touch(); sys.exit(1)
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how != "never-ready":
    ready.tell()
time.sleep(600)
"""


def _supervisor(tmp_path: Path, *words: str) -> Supervisor:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    wanted = [roles.Role((word,), word) for word in words]
    return Supervisor(wanted, [str(tmp_path)], tmp_path / "logs", [sys.executable, str(program)], Waits(0.02, 2))


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())


async def _ready(supervisor: Supervisor) -> asyncio.Task[None]:
    running = asyncio.create_task(supervisor.run(20))
    for event in supervisor.is_ready.values():
        await asyncio.wait_for(event.wait(), 20)
    return running


def _pids(tmp_path: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((tmp_path / "logs" / "processes.json").read_text())
    return found


async def test_a_child_that_dies_is_started_again_and_all_end_with_the_supervisor(tmp_path: Path) -> None:
    running = await _ready(_supervisor(tmp_path, "good", "dies-once"))
    pids = _pids(tmp_path)
    assert set(pids) == {"good", "dies-once"}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert _pids(tmp_path) == {}
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_killed_worker_is_replaced_by_another_process(tmp_path: Path) -> None:
    supervisor = _supervisor(tmp_path, "good")
    running = await _ready(supervisor)
    first = _pids(tmp_path)["good"]
    supervisor.is_ready["good"].clear()
    os.kill(first, signal.SIGKILL)
    await asyncio.wait_for(supervisor.is_ready["good"].wait(), 20)
    assert _pids(tmp_path)["good"] != first
    running.cancel()
    await asyncio.wait([running])


async def test_a_role_that_refuses_to_start_stops_the_rest_and_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"(?s)refuses refused to start.*set \[kafka\] bootstrap"):
        await _supervisor(tmp_path, "good", "refuses").run(20)
    assert _pids(tmp_path) == {}


async def test_a_role_that_is_never_ready_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="not ready within 1 s: never-ready"):
        await _supervisor(tmp_path, "good", "never-ready").run(1)


async def test_a_child_that_ignores_the_request_to_stop_is_made_to(tmp_path: Path) -> None:
    running = await _ready(_supervisor(tmp_path, "stubborn"))
    pid = _pids(tmp_path)["stubborn"]
    running.cancel()
    await asyncio.wait([running])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
