"""The folder of templates as a whole, settings and texts: looked at before a process promises anything."""

from __future__ import annotations

from pathlib import Path

from consumers import render
from schemas import policies


def check(folder: Path) -> None:
    """Raises Misconfigured, with file and line, for what those who plan or those who send would refuse later."""
    policies.read_policies(folder)
    render.check_texts(folder)
