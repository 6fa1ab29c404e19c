"""The `tidings` command with a role that looks for traps in each of its gaps: tests.kills.role WORDS --config FILE."""

from __future__ import annotations

import sys
from pathlib import Path

from deploy import cli
from tests.kills.traps import Watcher

FOLDER = "traps"
"""Beside the file of settings."""


def main() -> None:
    """Also what `deploy.fork_server` runs in a fork."""
    words = sys.argv[1 : sys.argv.index("--config")]
    config = Path(sys.argv[sys.argv.index("--config") + 1])
    cli.main(Watcher(config.parent / FOLDER, "-".join(words)))


if __name__ == "__main__":
    main()
