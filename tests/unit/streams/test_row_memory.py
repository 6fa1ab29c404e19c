"""What the status process holds in memory of the rows on its disk."""

from __future__ import annotations

import os
from pathlib import Path

from schemas import metrics
from schemas.topics import STATUS_TABLE, Topics
from streams import agents
from streams.row_store import MEMORY_BYTES
from tests.doubles.status_road import StatusRoad

PARTITIONS, ROWS, ROW_BYTES = 12, 250, 40_000
BEING_WRITTEN_BYTES = 12 << 20
"""A database that is told to put its rows into a file holds them until it has."""


def test_the_rows_of_twelve_partitions_hold_no_more_memory_than_the_budget_of_one_process(tmp_path: Path) -> None:
    flow = StatusRoad(tmp_path).flow
    options = agents.FaustOptions({"bootstrap.servers": "127.0.0.1:1"}, tmp_path / "faust")
    table = agents.merging(Topics(), options, flow).app.tables[STATUS_TABLE].data
    for number in range(PARTITIONS):
        table._db_for_partition(number)
        for row in range(ROWS):
            flow.store.write(number, {f"default/c.spring.{row}".encode(): os.urandom(ROW_BYTES)}, row)
    for number in range(PARTITIONS):
        assert sum(len(row) for _, row in flow.store.campaign_rows(number)) == ROWS * ROW_BYTES
    held = metrics.REGISTRY.get_sample_value("tidings_status_rows_memory_bytes")
    assert held is not None and MEMORY_BYTES / 2 < held < MEMORY_BYTES + BEING_WRITTEN_BYTES
