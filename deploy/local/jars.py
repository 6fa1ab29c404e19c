"""Kafka's jars: fetched once by Maven from the pinned pom, then kept."""

from __future__ import annotations

import hashlib
import logging
import shutil
import subprocess
from pathlib import Path

from deploy.local import places
from schemas.errors import Misconfigured

log = logging.getLogger(__name__)

FETCH_TIMEOUT_S = 900


def cached() -> Path | None:
    """The folder of jars for the pom as it is now; None when they were never fetched."""
    folder = _folder()
    return folder if folder.is_dir() else None


def fetch() -> Path:
    """The folder of jars; asks Maven the first time. Raises Misconfigured with Maven's own words."""
    with places.only_one(places.home() / "jars.lock"):
        if (folder := cached()) is not None:
            return folder
        folder = _folder()
        log.info("local.fetching_kafka", extra={"pom": str(places.kafka_pom())})
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        _ask_maven(unfinished)
        unfinished.rename(folder)  # so that a half-filled folder is never taken for a whole one
        return folder


def _folder() -> Path:
    pinned = hashlib.sha256(places.kafka_pom().read_bytes()).hexdigest()[:12]
    return places.home() / f"kafka-jars-{pinned}"


def _ask_maven(folder: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(places.kafka_pom()), "dependency:copy-dependencies"]
    command.append(f"-DoutputDirectory={folder}")
    answer = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    if answer.returncode != 0:
        raise Misconfigured(f"Maven could not fetch Kafka's jars:\n{(answer.stdout + answer.stderr)[-2000:]}")
