"""One deployment for all acceptance tests, and a `world` for each: its faults end with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.acceptance import deployment as deployments
from tests.acceptance.deployment import Deployment
from tests.acceptance.world import World

TEMPLATES = Path(__file__).with_name("templates")
DATABASE = 15
TEST_TIMEOUT_S = 300
"""Far more than a test needs on an idle machine: each wait has a deadline of its own that says what was missing."""
RUNNING = pytest.StashKey[Deployment]()
"""Whose complaints are added to a failure: that of the newest tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.fixture(scope="session")
def deployment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, redis_url: str
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    with deployments.running(folder, kafka_bootstrap, _own_database(redis_url), TEMPLATES) as running:
        request.config.stash[RUNNING] = running
        yield running


def _own_database(redis_url: str) -> str:
    """One that this run may empty: the one that was named, or on a server of our own one that no other test uses."""
    is_named = urlsplit(redis_url).path not in ("", "/", "/0")
    return redis_url if is_named else deployments.database(redis_url, DATABASE)


@pytest.fixture
async def world(deployment: Deployment) -> AsyncIterator[World]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client:
        made = World(deployment, client)
        await made.all_is_well()
        yield made
        await made.all_is_well()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what the roles complained of to a failure."""
    report = yield
    if report.failed and RUNNING in item.config.stash:
        report.sections.extend(item.config.stash[RUNNING].complaints())
    return report
