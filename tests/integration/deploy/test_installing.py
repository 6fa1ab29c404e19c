"""A machine that lacks programs: installed where the user may, else told what to do. apt is a stand-in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from deploy.local import tools
from schemas.errors import Misconfigured

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="installs as root only here")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a shell, `env` and a pretended apt whose `install` puts programs there."""
    for program in ("sh", "env"):
        (tmp_path / program).symlink_to(shutil.which(program) or "")
    _program(
        tmp_path,
        "apt-get",
        f'echo "$@" >> {tmp_path}/asked\n[ -x {tmp_path}/on-install ] && {tmp_path}/on-install "$@"',
    )
    _program(tmp_path, "apt-cache", '[ "$2" != openjdk-21-jre-headless ]')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def _program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_what_is_missing_and_only_that_is_installed(bare: Path) -> None:
    _program(bare, "java", "echo 'openjdk version \"17.0.1\"' >&2")
    _program(
        bare, "on-install", f'case "$1" in install) : > {bare}/redis-server; {_chmod()} 755 {bare}/redis-server;; esac'
    )
    tools.ensure(tools.Need(java=True, redis=True))
    asked = (bare / "asked").read_text().splitlines()
    assert asked == ["update -q", "install -y -q --no-install-recommends redis-server"]


def test_a_java_too_old_for_kafka_counts_as_missing_and_a_newer_one_is_chosen(bare: Path) -> None:
    _program(bare, "java", "echo 'openjdk version \"11.0.2\"' >&2")
    with pytest.raises(Misconfigured, match="Java runtime \\(version 17 or newer\\)"):
        tools.ensure(tools.Need(java=True))
    assert "openjdk-17-jre-headless" in (bare / "asked").read_text()


def test_when_the_installation_fails_the_commands_are_told(bare: Path) -> None:
    with pytest.raises(Misconfigured, match="Maven and Redis") as refused:
        tools.ensure(tools.Need(maven=True, redis=True))
    assert "sudo apt-get install" in str(refused.value) and "brew install" in str(refused.value)


def _chmod() -> str:
    return shutil.which("chmod", path="/bin:/usr/bin") or "chmod"
