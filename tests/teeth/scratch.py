"""Scratch copies of the tree: only they are broken, never the checkout."""

from __future__ import annotations

import compileall
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.executable).with_name("tidings")
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".tidings", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache"
)
_PROOF = 73
"""An exit code that nothing else ends with."""


@contextlib.contextmanager
def first_copy() -> Iterator[Path]:
    """The checkout as it is now, copied once: whatever is edited meanwhile changes nothing of the run.

    Compiled once too, so that its copies need not be.
    """
    with tempfile.TemporaryDirectory(prefix="tidings-teeth-") as folder:
        copied = Path(folder) / "whole"
        shutil.copytree(ROOT, copied, ignore=_LEFT_OUT)
        compileall.compile_dir(copied, quiet=2)
        yield copied


@contextlib.contextmanager
def copy_of(tree: Path) -> Iterator[Path]:
    """Another copy, to be broken and thrown away."""
    copied = Path(tempfile.mkdtemp(prefix="broken-", dir=tree.parent))
    try:
        shutil.copytree(tree, copied, dirs_exist_ok=True)
        yield copied
    finally:
        shutil.rmtree(copied, ignore_errors=True)


def environment(tree: Path, servers: Mapping[str, str]) -> dict[str, str]:
    """Variables under which Python finds this tree's packages before those of the checkout."""
    return {**os.environ, **servers, "PYTHONPATH": str(tree)}


def check_that_copies_are_run(tree: Path) -> None:
    """Breaks the command in a copy and sees it broken, in Python and as the program that tests start.

    Raises RuntimeError when the checkout is run instead: then no patch could ever be noticed.
    """
    with copy_of(tree) as broken:
        (broken / "deploy" / "cli.py").write_text(f"raise SystemExit({_PROOF})\n")
        for words in ((sys.executable, "-m", "deploy.cli"), (str(COMMAND), "--help")):
            ended = subprocess.run(
                words, cwd=broken.parent, env=environment(broken, {}), capture_output=True, check=False
            )
            if ended.returncode != _PROOF:
                raise RuntimeError(f"{' '.join(words)} does not run the scratch copy but another tree")
