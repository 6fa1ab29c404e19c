"""A deployment whose roles look for traps. Leases, tiers and sessions are as short as can be, or the default ones."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
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
_PLACES = """
topic_prefix = "{prefix}"
[kafka]
bootstrap = "{kafka}"
[redis]
url = "{redis}"
[api]
listen = "127.0.0.1:{api}"
[callbacks]
listen = "127.0.0.1:{callbacks}"
[up]
logs = "logs"
ready_within_s = 200
workers = {{ "push.bulk" = 2, "inapp.transactional" = 0, "inapp.bulk" = 0 }}
[templates]
path = "{templates}"
[channels.push]
providers = ["gateway"]
[providers.mail]
kind = "smtp"
url = "smtp://127.0.0.1:{smtp}"
from = "Corner Shop <news@example.org>"
rate_per_s = 100
burst = 10
timeout_s = 1
[providers.gateway]
kind = "http"
url = "http://127.0.0.1:{http}/send"
callback_secret = "{secret}"
"""
SHORT = f"""{_PLACES}
rate_per_s = {PUSH_PER_S}
burst = 40
timeout_s = 1
[streams]
folder = "tables"
heartbeat_s = 1
session_s = {SESSION_S}
[engine]
heartbeat_s = 1
session_s = {SESSION_S}
urgent_session_s = {SESSION_S}
[dispatch]
session_s = {SESSION_S}
[sending]
lease_s = {LEASE_S}
deadline_s = 1
margin_s = 1
tries = 20
retry_base_s = 0.5
retry_cap_s = 1
[tiers]
"10s" = 1
"1m" = 2
"10m" = 3
"""
DEFAULTS = f"""{_PLACES}
rate_per_s = 2000
burst = 200
[streams]
folder = "tables"
"""


@contextlib.contextmanager
def running(
    folder: Path, kafka: str, redis_url: str, templates: Path, settings: str = SHORT, command: Sequence[str] = UP
) -> Iterator[Deployment]:
    """Ready to work; removed on the way out."""
    traps_of(folder)
    with deployments.outside(folder, kafka, redis_url, templates, settings) as found, up(found, command):
        yield found


def up(deployment: Deployment, command: Sequence[str] = UP) -> contextlib.AbstractContextManager[None]:
    """Every role, looking for traps."""
    return program(
        deployment.folder, ("up", "--config", str(deployment.folder / deployments.SETTINGS)), command=command
    )


def traps_of(folder: Path) -> Traps:
    return Traps(folder / FOLDER)
