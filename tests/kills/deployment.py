"""A deployment whose roles look for traps, with leases, tiers and sessions as short as can be."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.acceptance import deployment as deployments
from tests.acceptance.deployment import Deployment, program
from tests.kills.role import FOLDER
from tests.kills.traps import Traps

LEASE_S, SESSION_S = 3, 6
"""6 s is the least that a broker lets a group have."""
PUSH_PER_S = 400
UP = (sys.executable, "-m", "tests.kills.up")
ROLE = (sys.executable, "-m", "tests.kills.role")
SETTINGS = """
topic_prefix = "{prefix}"
[kafka]
bootstrap = "{kafka}"
[redis]
url = "{redis}"
[api]
listen = "127.0.0.1:{api}"
[callbacks]
listen = "127.0.0.1:{callbacks}"
[streams]
folder = "tables"
heartbeat_s = 1
session_s = {session_s}
[engine]
heartbeat_s = 1
session_s = {session_s}
[dispatch]
session_s = {session_s}
[sending]
lease_s = {lease_s}
deadline_s = 1
margin_s = 1
retry_base_s = 0.5
retry_cap_s = 1
[tiers]
"10s" = 1
"1m" = 2
"10m" = 3
[up]
logs = "logs"
ready_within_s = 200
workers = {{ "push.bulk" = 2, "inapp.transactional" = 0, "inapp.bulk" = 0 }}
[templates]
path = "{templates}"
[channels.push]
providers = ["gateway"]
[providers.gateway]
kind = "http"
url = "http://127.0.0.1:{http}/send"
rate_per_s = {push_per_s}
burst = 40
timeout_s = 1
callback_secret = "{secret}"
[providers.mail]
kind = "smtp"
url = "smtp://127.0.0.1:{smtp}"
from = "Corner Shop <news@example.org>"
rate_per_s = 100
burst = 10
timeout_s = 1
"""


@contextlib.contextmanager
def running(folder: Path, kafka: str, redis_url: str, templates: Path) -> Iterator[Deployment]:
    """Ready to work; removed on the way out."""
    numbers = {"lease_s": LEASE_S, "session_s": SESSION_S, "push_per_s": PUSH_PER_S}
    traps_of(folder)
    with deployments.outside(folder, kafka, redis_url, templates, SETTINGS, **numbers) as found, up(found):
        yield found


def up(deployment: Deployment) -> contextlib.AbstractContextManager[None]:
    """Every role, looking for traps."""
    return program(deployment.folder, ("up", "--config", str(deployment.folder / deployments.SETTINGS)), command=UP)


def traps_of(folder: Path) -> Traps:
    return Traps(folder / FOLDER)
