"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

import confluent_kafka
import redis
from confluent_kafka.admin import AdminClient

from deploy.local import jars
from deploy.local.stack import Stack

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 10
MEMORY = r"MemTotal:\s+(\d+)"


def described(stack: Stack) -> dict[str, str]:
    """Machine and software, by the words of the page."""
    with redis.Redis.from_url(stack.redis_url) as client:
        redis_version = str(client.info("server")["redis_version"])
    return {
        "cores": str(os.cpu_count()),
        "processor": _first(r"model name\s*: (.+)", "/proc/cpuinfo"),
        "memory": f"{int(_first(MEMORY, '/proc/meminfo') or 0) / 1_048_576:.1f} GB",
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "Kafka": _kafka_version(stack),
        "librdkafka": confluent_kafka.libversion()[0],
        "Redis": redis_version,
    }


def commit() -> str:
    """Of the checkout; ends in "+" when something in it differs from the commit."""
    short = _git("rev-parse", "--short", "HEAD")
    return f"{short}+" if short and _git("status", "--porcelain", "--untracked-files=no") else short


def load() -> float:
    """Processes that wanted a core in the last minute."""
    return os.getloadavg()[0]


def _git(*words: str) -> str:
    found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return found.stdout.strip()


def _first(pattern: str, file: str) -> str:
    path = Path(file)
    found = re.search(pattern, path.read_text()) if path.exists() else None
    return found[1].strip() if found else ""


def _kafka_version(stack: Stack) -> str:
    """As its jars say, where the bench started it; else by the level of features that it tells."""
    folder = jars.cached()
    names = sorted(path.name for path in folder.glob("kafka-clients-*.jar")) if folder else []
    if stack.logs and names:
        return names[-1].removeprefix("kafka-clients-").removesuffix(".jar")
    admin = AdminClient({"bootstrap.servers": stack.kafka_bootstrap, "log_level": 0})
    return f"a given one of {len(admin.list_topics(timeout=TIMEOUT_S).brokers)} broker(s)"
