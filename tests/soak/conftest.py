"""A deployment of its own, at the default lease and sessions, under a steady load of pushes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from deploy.sections import Sending
from tests.acceptance import deployment as deployments
from tests.acceptance.conftest import TEMPLATES
from tests.acceptance.world import World

STEADY_PER_S = 1_350
"""Half of what two cores carry with Kafka, Redis and the simulators on them (row `campaign` of docs/benchmarks.md)."""
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
[up]
logs = "logs"
ready_within_s = 200
[templates]
path = "{templates}"
[channels.push]
providers = ["gateway"]
[channels.email]
providers = ["mail"]
[channels.sms]
providers = []
[providers.gateway]
kind = "http"
url = "http://127.0.0.1:{http}/send"
rate_per_s = {push_per_s}
burst = 100
callback_secret = "{secret}"
[providers.mail]
kind = "smtp"
url = "smtp://127.0.0.1:{smtp}"
from = "Corner Shop <news@example.org>"
rate_per_s = 100
burst = 10
"""


@pytest.fixture
def push_per_s() -> int:
    """The provider's rate, of which bulk has its part."""
    return round(STEADY_PER_S / Sending().bulk_share)


@pytest.fixture
async def world(tmp_path: Path, kafka_bootstrap: str, redis_url: str, push_per_s: int) -> AsyncIterator[World]:
    where = (tmp_path, kafka_bootstrap, deployments.database(redis_url, 14), TEMPLATES)
    with deployments.outside(*where, SETTINGS, push_per_s=push_per_s) as found, deployments.up(found):
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as client:
            yield World(found, client)
