"""Other queues and loops, run by their own harness where there is one; their figures stand beside ours of that run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench

SCRIPT = "run.sh"
WITHIN_S = 300


async def measured(bench: Bench, case: str) -> dict[str, Any]:
    """What the harness found in one round of its case; {"absent": why} when it could not be run."""
    if bench.peers is None:
        return {"absent": "no folder of peers was named"}
    script = bench.peers / SCRIPT
    if not script.exists():
        return {"absent": f"there is no {SCRIPT}"}
    bench.say(f"reference {case}")
    out = bench.folder / f"peer-{case.replace('/', '-')}.jsonl"
    kafka = bench.servers()["kafka"]
    environment = {**os.environ, "KAFKA_BOOTSTRAP": bench.stack.kafka_bootstrap, "KAFKA_PID": str(kafka or "")}
    return await asyncio.to_thread(_run, script, case, environment, out)


def _run(script: Path, case: str, environment: dict[str, str], out: Path) -> dict[str, Any]:
    out.unlink(missing_ok=True)
    words = ("bash", str(script), "--only", case, "--rounds", "1", "--out", str(out))
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        try:
            said, _ = child.communicate(timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)  # for it to end what it has started
            return {"absent": f"not done within {WITHIN_S} s"}
    if not out.exists():
        last = said.decode(errors="replace").strip().replace(str(script.parent), "its folder")[-120:]
        return {"absent": f"its harness did not run: {last}"}
    found: dict[str, Any] = json.loads(out.read_text().splitlines()[-1])
    return found if "error" not in found else {"absent": str(found["error"])[:120]}
