"""Goal: names are safe to build dashboards on, and scraping shows them."""

from __future__ import annotations

import re

from prometheus_client import generate_latest

from schemas import metrics

IDS = {"user", "user_id", "campaign", "campaign_id", "notification_id", "delivery_id", "address", "device"}


def test_every_metric_is_named_and_explained_in_one_style() -> None:
    for metric in metrics.catalogue():
        assert re.fullmatch(r"tidings_[a-z][a-z0-9_]*", metric._name)
        assert len(metric._documentation) > 10


def test_no_label_grows_with_traffic() -> None:
    assert not {label for metric in metrics.catalogue() for label in metric._labelnames} & IDS


def test_a_scrape_shows_what_was_counted() -> None:
    metrics.SENT.labels("push", "bulk", "gateway").inc()
    shown = generate_latest(metrics.REGISTRY).decode()
    assert 'tidings_sent_total{channel="push",priority="bulk",provider="gateway"}' in shown


def test_a_scrape_shows_the_memory_of_the_process() -> None:
    assert b"process_resident_memory_bytes" in generate_latest(metrics.REGISTRY)
