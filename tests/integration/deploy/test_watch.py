"""A role that serves nobody can be watched all the same."""

from __future__ import annotations

import aiohttp

from deploy import watch
from schemas import metrics


async def asked(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status, await answer.text()


async def test_its_numbers_are_served_where_it_says() -> None:
    health = watch.Health()
    metrics.FORWARDED.labels("watched.tier").inc()
    async with watch.door(health, "127.0.0.1:0"):
        status, text = await asked(health.metrics_url)
    assert status == 200 and 'tidings_forwarded_total{tier="watched.tier"} 1.0' in text


async def test_it_is_ready_only_while_everything_it_needs_is_there() -> None:
    health, begun, well = watch.Health(), False, True
    async with watch.door(health, "127.0.0.1:0"):
        base = health.metrics_url.removesuffix("/metrics")
        assert (await asked(f"{base}/readyz"))[0] == 503
        health.needs(lambda: begun, "its partitions")
        health.needs(lambda: well, "Redis")
        assert await asked(f"{base}/readyz") == (503, '{"status": "not at work", "waits_for": ["its partitions"]}')
        begun = True
        assert (await asked(f"{base}/readyz"))[0] == 200
        well = False
        assert await asked(f"{base}/readyz") == (503, '{"status": "not at work", "waits_for": ["Redis"]}')
        assert (await asked(f"{base}/healthz"))[0] == 200


async def test_without_an_address_nothing_is_opened() -> None:
    health = watch.Health()
    async with watch.door(health, ""):
        assert health.metrics_url == ""
