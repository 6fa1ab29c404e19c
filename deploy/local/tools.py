"""The programs the local stack needs: found, installed where this user may, or asked for with the exact commands."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import Misconfigured

log = logging.getLogger(__name__)

OLDEST_JAVA = 17
JAVA_PACKAGES = ("openjdk-21-jre-headless", "openjdk-17-jre-headless", "default-jre-headless")
INSTALL_TIMEOUT_S = 900

COMMANDS = """\
  Debian, Ubuntu:  sudo apt-get update && sudo apt-get install -y default-jre-headless maven redis-server
  Fedora:          sudo dnf install -y java-21-openjdk-headless maven valkey   (before Fedora 41: redis)
  macOS:           brew install openjdk maven redis
Or name running services: KAFKA_BOOTSTRAP=host:9092 REDIS_URL=redis://host:6379/0"""


@dataclass(frozen=True, slots=True)
class Need:
    """What this run needs; jars that are cached already need no Maven."""

    java: bool = False
    maven: bool = False
    redis: bool = False


def ensure(need: Need) -> None:
    """Returns when everything needed is there. Raises Misconfigured with the commands when it cannot be."""
    missing = lacking(need)
    if not missing:
        return
    if _may_install():
        log.info("local.installing", extra={"packages": ", ".join(missing)})
        _install(missing)
        missing = lacking(need)
    if missing:
        raise Misconfigured(f"The local stack needs {' and '.join(missing)}. Install it:\n{COMMANDS}")


def lacking(need: Need) -> list[str]:
    """The missing parts, as words for a person."""
    missing = []
    if need.java and java() is None:
        missing.append(f"a Java runtime (version {OLDEST_JAVA} or newer)")
    if need.maven and shutil.which("mvn") is None:
        missing.append("Maven")
    if need.redis and redis_server() is None:
        missing.append("Redis")
    return missing


def java() -> str | None:
    """A Java that can run Kafka 4; None when there is none."""
    candidates = (
        str(Path(os.environ.get("JAVA_HOME", "")) / "bin" / "java") if os.environ.get("JAVA_HOME") else None,
        shutil.which("java"),
        "/opt/homebrew/opt/openjdk/bin/java",
        "/usr/local/opt/openjdk/bin/java",
    )
    return next((path for path in candidates if path and _java_version(path) >= OLDEST_JAVA), None)


def redis_server() -> str | None:
    """Redis, or Valkey where a distribution ships that instead."""
    return shutil.which("redis-server") or shutil.which("valkey-server")


def _java_version(path: str) -> int:
    if not Path(path).exists():
        return 0
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else 0


def _may_install() -> bool:
    return shutil.which("apt-get") is not None and _as_root() is not None


def _as_root() -> list[str] | None:
    """What to put before a command that needs root; None when this user may not."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    if sys.stdin.isatty():
        return ["sudo"]
    asked = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    return ["sudo", "-n"] if asked.returncode == 0 else None


def _install(missing: list[str]) -> None:
    """Installs by apt; what fails is shown on the terminal and found missing afterwards."""
    _apt("update", "-q")
    packages = []
    if any("Java" in what for what in missing):
        packages.append(_java_package())
    if "Maven" in missing:
        packages.append("maven")
    if "Redis" in missing:
        packages.append("redis-server")
    _apt("install", "-y", "-q", "--no-install-recommends", *packages)


def _java_package() -> str:
    """The newest runtime this release offers: the default one of older releases is too old for Kafka 4."""
    for package in JAVA_PACKAGES:
        shown = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
        if shown.returncode == 0:
            return package
    return JAVA_PACKAGES[-1]


def _apt(*arguments: str) -> None:
    command = [*(_as_root() or []), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *arguments]
    subprocess.run(command, stdout=sys.stderr, timeout=INSTALL_TIMEOUT_S, check=False)
