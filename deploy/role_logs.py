"""Keeps what the roles of `tidings up` write from filling the disk: each has its log, and what it wrote before that."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

MOST_BYTES = 32 << 20


async def keep_short(logs: Sequence[Path], every_s: float) -> None:
    """Looks at all of them so often, for ever."""
    while True:
        for one in logs:
            await asyncio.to_thread(shorten, one)
        await asyncio.sleep(every_s)


def shorten(file: Path, most_bytes: int = MOST_BYTES) -> None:
    """A log that is longer begins anew; what it held becomes `.log.1`, instead of what that held before.

    Who writes has the file open to append, and goes on at its new beginning. A line written between the copy and the
    cut is lost. Where no copy can be made it is cut all the same: the disk may be full.
    """
    with contextlib.suppress(FileNotFoundError):
        if file.stat().st_size <= most_bytes:
            return
        try:
            shutil.copyfile(file, file.with_suffix(".log.1"))
        except OSError as error:
            log.warning("up.log_not_kept", extra={"log": str(file), "error": str(error)})
        os.truncate(file, 0)
