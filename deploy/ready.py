"""How a role tells its supervisor that it works: it writes a file, once, with its process id.

`tidings up` names the file in TIDINGS_READY_FILE; a role that runs alone has none and says so in its log only.
Other orchestrators ask `/readyz` of the roles that serve HTTP.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)

VARIABLE = "TIDINGS_READY_FILE"


def tell(environ: Mapping[str, str] = os.environ) -> None:
    """Called by each role when it can do its work: partitions assigned, tables recovered, ports open."""
    log.info("process.ready")
    if environ.get(VARIABLE):
        unfinished = Path(environ[VARIABLE] + ".part")
        unfinished.write_text(str(os.getpid()))
        unfinished.rename(environ[VARIABLE])


def told_by(file: Path, pid: int) -> bool:
    """Whether this very process has said so; a predecessor's word does not count."""
    try:
        return file.read_text() == str(pid)
    except OSError:
        return False
