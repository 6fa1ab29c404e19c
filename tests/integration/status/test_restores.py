"""Processes that begin with nothing but the log, in the middle of everything: every row and every count is there."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from rocksdict import AccessType, Options, Rdict

from deploy.local import jars, tools
from schemas import codec, keys, partitions
from schemas.messages import DeliveryState, EventKind
from schemas.records import Outgoing
from schemas.topics import Topics
from tests.doubles.status_events import event, planned
from tests.doubles.status_road import TOPICS, StatusRoad
from tests.integration.engine.test_broker_outage import OwnBroker
from tests.integration.status.bench import Bench, batch, opened, specs
from tests.integration.status.test_status import PAGE, campaign, check, outcomes, owners, some_states

WAITING = ("accepted", "scheduled", "queued", "held", "retrying")
FORWARD = dict.fromkeys(WAITING, 0) | {"sent": 1, "failed": 2, "suppressed": 2, "delivered": 2, "bounced": 3}
"""No state is followed by one of a lower number."""
SINGLES = 500_000
WRITTEN_TOGETHER = 5_000
RESTORED_WITHIN_S = 400.0
"""Far more than an idle machine needs for them."""
STANDS_STILL_S = 1.0
"""Long enough for a merge to be published, and its rows to wait for their acknowledgement."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnBroker]:
    if tools.java() is None or jars.cached() is None:
        pytest.skip("needs a broker of its own, so Java and Kafka's jars")
    own = OwnBroker(tmp_path / "kafka")
    yield own
    own.stop()


@pytest.fixture
async def own_bench(broker: OwnBroker, redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    topics = Topics("own.")
    wanted = [NewTopic(spec.name, 2, 1, config=dict(spec.config)) for spec in specs(topics)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # lives until all are made
    for made in admin.create_topics(wanted).values():
        made.result(20)
    async with opened(broker.bootstrap, redis_url, topics, 2, tmp_path / "tables") as bench:
        yield bench


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_rows_that_the_broker_never_acknowledged_are_what_a_replay_makes_of_them(
    own_bench: Bench, broker: OwnBroker
) -> None:
    """K49: the broker's acknowledgements stop in the middle of table writes; then the process and its disk are gone."""
    pages = 24
    batches = campaign("spring", pages, Random(5))
    await own_bench.write(batches[: len(batches) // 2])
    process = await own_bench.start(instance="a")
    await own_bench.until(lambda: some_states(own_bench, 500), "the first states")
    process.send_signal(signal.SIGSTOP)  # so that half of its work is still before it when the broker stands still
    await own_bench.write(batches[len(batches) // 2 :])
    process.send_signal(signal.SIGCONT)
    broker.stand_still()
    await asyncio.sleep(STANDS_STILL_S)
    await own_bench.kill(process)
    shutil.rmtree(own_bench.folder / "one")
    broker.go_on()
    assert len(await own_bench.public()) < pages * PAGE, "it was done before it could be killed"
    await own_bench.start(instance="a")
    await check(own_bench, "spring", pages)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("partitions", [3])
async def test_three_processes_are_replaced_one_by_one_while_events_come_in_and_no_status_goes_back(
    bench: Bench,
) -> None:
    """K06"""
    names = ("one", "two", "three")
    running = {name: await bench.start(name, name) for name in names}
    await bench.until(lambda: owners(bench, 3), "an owner for each partition")
    batches = campaign("spring", 12, Random(6))
    parts = [batches[at :: 2 * len(names)] for at in range(2 * len(names))]
    for name in names:
        await bench.write(parts.pop())
        await bench.stop(running[name])
        assert running[name].returncode == 0
        bench.processes.remove(running[name])
        await bench.write(parts.pop())
        running[name] = await bench.start(name, name)
        await bench.until(lambda: owners(bench, 3), "an owner for each partition")
    await check(bench, "spring", 12)
    told = defaultdict(list)
    for record in await bench.records(bench.topics.state):
        state = codec.decode(record.value, DeliveryState)
        told[state.delivery_id].append((state.version, state.state))
    for states in told.values():
        steps = [FORWARD[state] for _, state in sorted(states)]
        assert steps == sorted(steps), f"a status went back: {sorted(states)}"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("partitions", [3])
async def test_three_processes_that_start_cold_and_one_after_the_other_have_every_row(
    bench: Bench, tmp_path: Path
) -> None:
    """K43: half a million rows in the changelog; partitions change hands while they are being restored."""
    road = StatusRoad(tmp_path / "road", 3)
    await road.restart()
    sent = batch("n.0a1b2c3d.0.0", [planned("email"), event(EventKind.SENT)])
    await road.write(*campaign("spring", 8, Random(7)), sent)
    await road.read()
    made = {record.key or b"": record.value or b"" for record in road.log.records(TOPICS.status_changelog)}
    single = made.pop(keys.row_key("default", "n.0a1b2c3d.0.0").encode())
    await restored_from(bench, {**made, **{single_key(number): single for number in range(SINGLES)}})
    for name in ("one", "two", "three"):
        await bench.start(name, name)
        await asyncio.sleep(STANDS_STILL_S)
    await bench.until(lambda: owners(bench, 3), "an owner for each partition", RESTORED_WITHIN_S)

    counts = await bench.until_finished("spring", 8 * PAGE)
    assert counts.outcomes == outcomes(8)
    for number in Random(8).sample(range(SINGLES), 300):
        view = await bench.reads.slot("default", keys.single_address("0a1b2c3d", 0, 16 * number))
        assert view is not None and view.status == "sent", number
    for process in bench.processes:
        await bench.stop(process)
    for partition in range(3):
        own = {key for key in map(single_key, range(SINGLES)) if partitions.murmur2_partition(key, 3) == partition}
        assert any(own <= rows.keys() and {rows[key] for key in own} == {single} for rows in on_disk(bench, partition))


def single_key(number: int) -> bytes:
    return keys.row_key("default", keys.single_address("0a1b2c3d", 0, 16 * number).row).encode()


def on_disk(bench: Bench, partition: int) -> Iterator[dict[bytes, bytes]]:
    """What each process that ever held the partition kept of it."""
    for path in bench.folder.glob(f"**/*-{partition}.db"):
        database = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())
        yield dict(database.items())
        database.close()


async def restored_from(bench: Bench, rows: dict[bytes, bytes]) -> None:
    """The changelog holds these rows."""
    topic, count = bench.topics.status_changelog, bench.partitions
    outgoing = [
        Outgoing(topic, key, row, partition=partitions.murmur2_partition(key, count)) for key, row in rows.items()
    ]
    for start in range(0, len(outgoing), WRITTEN_TOGETHER):
        await bench.publisher.publish(outgoing[start : start + WRITTEN_TOGETHER])
