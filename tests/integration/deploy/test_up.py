"""The supervisor keeps its children running, says when all of them work, and leaves none behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deploy import children, role_logs, roles
from deploy.fork_client import ForkClient
from deploy.up import Supervisor, Waits
from schemas.errors import Misconfigured

# Stands for the `tidings` program: the first word says how it behaves.
PROGRAM = """
import os, pathlib, signal, sys, time
from deploy import ready

def main():
    how, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    print(f"this is {how}", flush=True)
    if how == "refuses":
        print("tidings: set [kafka] bootstrap"); sys.exit(78)
    if how == "dies-once" and not (folder / "died").exists():
        (folder / "died").touch(); sys.exit(1)
    if how == "meets-poison" and not (folder / "met").exists():
        (folder / "met").touch()
        from deploy import cli
        from schemas.errors import TooManyParked
        def broken(): raise TooManyParked("20 of the last 20 records were parked")
        cli.app = broken
        cli.main()
    if how == "talks":
        print("x" * (33 << 20), flush=True)
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "counts":
        ready.tell("http://" + os.environ["SERVES_AT"] + "/metrics")
    elif how != "never-ready":
        ready.tell()
    time.sleep(600)
"""


class Started:
    """A supervisor of stand-ins, running until the test ends."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.logs = folder / "logs"
        (folder / "stand_in.py").write_text(PROGRAM)
        self._forks = ForkClient("stand_in", (), self.logs / "fork-server.log")
        wanted = [
            roles.Role((word,), word, {"SERVES_AT": f"{word}:1"}, roles.STEPS_BACK if word == "patient" else 0)
            for word in words
        ]
        self.supervisor = Supervisor(
            wanted, [str(folder)], self.logs, self._forks, Waits(0.02, 2, stop_within_s=3, logs_every_s=0.02)
        )

    async def run(self, ready_within_s: float = 20) -> None:
        async with self._forks:
            await self.supervisor.run(ready_within_s)

    def pids(self) -> dict[str, int]:
        found: dict[str, int] = json.loads((self.logs / "processes.json").read_text())
        return found

    def metrics(self) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = json.loads((self.logs / "metrics.json").read_text())
        return found

    async def ready(self, name: str) -> None:
        await asyncio.wait_for(self.supervisor.is_ready[name].wait(), 20)

    def log(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text()


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{os.getcwd()}{os.pathsep}{tmp_path}")


@asynccontextmanager
async def started(folder: Path, *words: str) -> AsyncIterator[Started]:
    """All of them are ready; afterwards all of them are stopped."""
    this = Started(folder, *words)
    running = asyncio.create_task(this.run())
    for word in words:
        await this.ready(word)
    yield this
    running.cancel()
    await asyncio.wait([running])
    assert (this.pids(), this.metrics()) == ({}, {})


def is_running(pid: int) -> bool:
    """A process that ended and was not waited for yet has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


async def soon(what: Callable[[], bool]) -> None:
    """Of other processes one can only ask again and again."""
    async with asyncio.timeout(20):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def shown(pid: int) -> bytes:
    """What `ps` says of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def nice_of_the_group(pid: int) -> int | None:
    """None where the system does not group by sessions."""
    file = Path(f"/proc/{pid}/autogroup")
    return int(file.read_text().rpartition(" ")[2]) if file.exists() else None


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


async def test_a_role_that_dies_is_started_again_and_all_end_with_the_supervisor(tmp_path: Path) -> None:
    async with started(tmp_path, "good", "dies-once") as this:
        pids = this.pids()
        assert set(pids) == {"good", "dies-once"}
        assert all(is_running(pid) for pid in pids.values())
    assert not any(is_running(pid) for pid in pids.values())


async def test_a_killed_role_is_replaced_by_another_process(tmp_path: Path) -> None:
    async with started(tmp_path, "good", "other") as this:
        before = this.pids()
        this.supervisor.is_ready["good"].clear()
        os.kill(before["good"], signal.SIGKILL)
        await this.ready("good")
        assert this.pids()["good"] != before["good"]
        assert this.pids()["other"] == before["other"]


async def test_a_role_that_met_too_much_poison_is_started_again_while_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(tmp_path, "good", "meets-poison") as this:
        assert all(map(is_running, this.pids().values())) and len(this.pids()) == 2
    ended = next(record.__dict__ for record in caplog.records if record.getMessage() == "up.process_ended")
    assert (ended["child"], ended["code"]) == ("meets-poison", 75)
    assert ended["said"].strip() == "tidings: 20 of the last 20 records were parked"


async def test_each_role_writes_into_a_log_of_its_own_and_is_named_where_processes_are_listed(tmp_path: Path) -> None:
    async with started(tmp_path, "good", "other") as this:
        assert this.log("good") == "this is good\n"
        assert this.log("other") == "this is other\n"
        assert shown(this.pids()["good"]).startswith(b"tidings\0good\0")


async def test_the_log_of_a_role_that_talks_much_is_kept_short_while_it_runs(tmp_path: Path) -> None:
    async with started(tmp_path, "talks") as this:
        await soon(lambda: (this.logs / "talks.log").stat().st_size <= role_logs.MOST_BYTES)
        assert is_running(this.pids()["talks"])
        assert (this.logs / "talks.log.1").stat().st_size > role_logs.MOST_BYTES


async def test_who_nobody_waits_for_steps_back_where_the_cores_are_full(tmp_path: Path) -> None:
    async with started(tmp_path, "good", "patient") as this:
        own, found = os.getpriority(os.PRIO_PROCESS, 0), this.pids()
        assert os.getpriority(os.PRIO_PROCESS, found["good"]) == own
        assert os.getpriority(os.PRIO_PROCESS, found["patient"]) == min(own + roles.STEPS_BACK, 19)
        assert nice_of_the_group(found["patient"]) in (min(own + roles.STEPS_BACK, 19), None)


async def test_who_gathers_numbers_finds_where_each_role_shows_them_also_after_a_restart(tmp_path: Path) -> None:
    async with started(tmp_path, "good", "counts") as this:
        before = this.pids()["counts"]
        assert this.metrics() == {"counts": {"pid": before, "metrics": "http://counts:1/metrics"}}
        this.supervisor.is_ready["counts"].clear()
        os.kill(before, signal.SIGKILL)
        await this.ready("counts")
        assert this.metrics()["counts"]["pid"] == this.pids()["counts"] != before


async def test_roles_share_neither_chance_nor_a_session(tmp_path: Path) -> None:
    (tmp_path / "dice.py").write_text(
        "import random, uuid, os, sys, time, asyncio\n"
        "from deploy import ready\n"
        "def main():\n"
        "    print(random.random(), random.Random().random(), uuid.uuid4(), os.getsid(0) == os.getpid())\n"
        "    sys.stdout.flush(); ready.tell(); time.sleep(600)\n"
    )
    async with ForkClient("dice", (), tmp_path / "fork-server.log") as forks:
        outputs = []
        for number in range(2):
            reading, writing = os.pipe()
            with (tmp_path / f"{number}.log").open("wb") as output:
                await forks.start(["dice"], output.fileno(), writing)
            os.close(writing)
            with os.fdopen(reading, "rb") as told:
                assert await asyncio.to_thread(told.read, 1) == b"1"
            outputs.append((tmp_path / f"{number}.log").read_text().split())
    first, second = outputs
    assert first[3] == second[3] == "True"
    assert not set(first[:3]) & set(second[:3])


async def test_roles_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    this = Started(tmp_path, "good", "stubborn")
    program = (
        "import asyncio, pathlib, sys\n"
        "from tests.integration.deploy.test_up import Started\n"
        "asyncio.run(Started(pathlib.Path(sys.argv[1]), 'good', 'stubborn').run())\n"
    )
    supervisor = await children.begin(sys.executable, "-c", program, str(tmp_path))
    try:
        await soon(lambda: (this.logs / "processes.json").exists() and len(this.pids()) == 2)
        pids = this.pids().values()
    finally:
        supervisor.kill()
        await supervisor.wait()
    await soon(lambda: not any(map(is_running, pids)))


async def test_roles_and_the_process_they_are_forked_from_come_back_when_that_one_is_killed(tmp_path: Path) -> None:
    async with started(tmp_path, "good", "other") as this:
        before = this.pids()
        for event in this.supervisor.is_ready.values():
            event.clear()
        os.kill(parent(before["good"]), signal.SIGKILL)
        await this.ready("good")
        await this.ready("other")
        assert not set(before.values()) & set(this.pids().values())
        await soon(lambda: not any(map(is_running, before.values())))


async def test_a_request_to_stop_for_the_whole_group_leaves_roles_time_to_stop(tmp_path: Path) -> None:
    async with started(tmp_path, "good", "stubborn") as this:
        pids = this.pids()
        os.kill(parent(pids["good"]), signal.SIGTERM)
        this.supervisor.is_ready["good"].clear()
        os.kill(pids["good"], signal.SIGTERM)
        await this.ready("good")
        assert this.pids()["stubborn"] == pids["stubborn"]


async def test_a_role_that_refuses_to_start_stops_the_rest_and_is_quoted(tmp_path: Path) -> None:
    this = Started(tmp_path, "good", "refuses")
    with pytest.raises(Misconfigured, match=r"refuses refused to start:\nset \[kafka\] bootstrap$"):
        await this.run()
    assert this.pids() == {}


async def test_a_role_that_is_never_ready_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="not ready within 3 s: never-ready\n--- never-ready\nthis is never-ready"):
        await Started(tmp_path, "good", "never-ready").run(3)


async def test_an_installation_that_cannot_be_imported_is_told_at_once(tmp_path: Path) -> None:
    this = Started(tmp_path, "good")
    (tmp_path / "stand_in.py").write_text("import no_such_library")
    with pytest.raises(Misconfigured, match="No module named 'no_such_library'"):
        await this.run()


async def test_a_role_that_ignores_the_request_to_stop_is_made_to(tmp_path: Path) -> None:
    async with started(tmp_path, "stubborn") as this:
        pid = this.pids()["stubborn"]
    assert not is_running(pid)
