"""`streams status` on real Kafka and Redis: exact rows, public states and counts, whatever befalls its processes."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from schemas import codec, keys
from schemas.errors import Transient
from schemas.messages import EventKind, StatusBatch, StatusEvent
from schemas.reasons import Reason
from schemas.records import Outgoing
from tests.doubles.status_events import event, planned
from tests.integration.status.bench import Bench, batch
from tests.integration.status.status_main import SECRET

pytestmark = pytest.mark.timeout(240)
E = EventKind
PAGE = 250
GOES_ON_WITHIN_S = 5.0
"""Behind a record that cannot be read. On an idle machine it takes a tenth of that."""


def story(slot: int) -> list[StatusEvent]:
    """What happens to the recipient at this position: delivered, sent, failed or suppressed, by fifths."""
    plan = planned("email", slot=slot, user_id=f"user-{slot}")
    ends = [
        [event(E.SENT, slot=slot), event(E.DELIVERED, "", slot=slot, index=0)],
        [event(E.SENT, slot=slot), event(E.DELIVERED, slot=slot), event(E.BOUNCED, slot=slot, at_ms=plan.at_ms + 9000)],
        [event(E.RETRYING, slot=slot, hop=1), event(E.SENT, slot=slot, call=2)],
        [event(E.FAILED, slot=slot, reason=Reason.TRIES_USED_UP)],
        [event(E.SUPPRESSED, slot=slot, reason=Reason.OPTED_OUT)],
    ]
    return [plan, *ends[slot % 5]]


def campaign(campaign_id: str, pages: int, random: Random) -> list[StatusBatch]:
    """All that happens to its recipients, in batches of one row, in any order, a tenth of it twice."""
    batches = []
    for page in range(pages):
        events = [news for slot in range(PAGE) for news in story(slot)]
        random.shuffle(events)
        row = keys.recipient_address(campaign_id, page, 0).row
        batches += [batch(row, events[at : at + 100]) for at in range(0, len(events), 100)]
    batches += random.sample(batches, len(batches) // 10)
    random.shuffle(batches)
    return batches


def outcomes(pages: int) -> dict[str, int]:
    fifth = pages * PAGE // 5
    return {"delivered": fifth, "bounced": fifth, "sent": fifth, "failed": fifth, "suppressed": fifth}


async def check(bench: Bench, campaign_id: str, pages: int) -> None:
    """Counts, rows and public states tell the same and the whole truth."""
    counts = await bench.until_finished(campaign_id, pages * PAGE)
    assert counts.outcomes == outcomes(pages)
    assert counts.reasons == {"tries_used_up": pages * PAGE // 5, "opted_out": pages * PAGE // 5}
    assert (counts.planned, counts.finished, counts.delivered) == (pages * PAGE, pages * PAGE, pages * PAGE // 5)
    public = await bench.public()
    assert len(public) == pages * PAGE
    for page in range(pages):
        views = await bench.reads.row("default", keys.recipient_address(campaign_id, page, 0).row)
        assert [view and view.status for view in views] == [
            ("delivered", "bounced", "sent", "failed", "suppressed")[slot % 5] for slot in range(PAGE)
        ]
        for slot, view in enumerate(views):
            assert view is not None
            address = keys.recipient_address(campaign_id, page, slot)
            state = public[keys.delivery_id(keys.Ids(SECRET).notification_id("default", address), "email")]
            assert (state.state, state.user_id, state.campaign_id) == (view.status, view.user_id, campaign_id)


async def test_events_in_any_order_end_in_exact_rows_states_and_counts(bench: Bench) -> None:
    await bench.write(campaign("spring", 4, Random(1)))
    process = await bench.start()
    await check(bench, "spring", 4)
    assert await bench.stop(process) == ""
    assert process.returncode == 0


@pytest.mark.parametrize("disk", ["kept", "empty"])
async def test_a_process_killed_in_the_middle_loses_nothing_with_or_without_its_disk(bench: Bench, disk: str) -> None:
    """It is frozen at work and then killed: what is written in between it cannot have seen, however fast it is."""
    pages = 24
    batches = campaign("spring", pages, Random(2))
    await bench.write(batches[: len(batches) // 2])
    process = await bench.start(instance="a")
    await bench.until(lambda: some_states(bench, 500), "the first states")
    process.send_signal(signal.SIGSTOP)
    await bench.write(batches[len(batches) // 2 :])
    await bench.kill(process)
    if disk == "empty":
        shutil.rmtree(bench.folder / "one")
    await bench.start(instance="a")
    await check(bench, "spring", pages)


async def some_states(bench: Bench, number: int) -> bool:
    return await bench.written(bench.topics.state) >= number


@pytest.mark.long
async def test_everything_is_there_again_from_the_log_alone(bench: Bench) -> None:
    await bench.write(campaign("spring", 4, Random(3)))
    process = await bench.start()
    await check(bench, "spring", 4)
    assert await bench.stop(process) == ""
    shutil.rmtree(bench.folder / "one")
    await bench.start("two")
    await bench.until(lambda: readable(bench, keys.recipient_address("spring", 0, 0)), "an owner of the rows")
    await check(bench, "spring", 4)


async def readable(bench: Bench, address: keys.Address) -> bool:
    try:
        return await bench.reads.slot("default", address) is not None
    except Transient:
        return False


@pytest.mark.long
async def test_processes_that_come_and_go_share_the_work_and_the_totals_stay_exact(bench: Bench) -> None:
    batches = campaign("spring", 8, Random(4))
    third = len(batches) // 3
    await bench.write(batches[:third])
    first = await bench.start("one")
    await bench.until(lambda: some_states(bench, 200), "the first states")
    await bench.start("two")
    await bench.write(batches[third : 2 * third])
    await bench.until(lambda: owners(bench, 2), "an owner for each partition")
    await bench.kill(first)
    await bench.write(batches[2 * third :])
    await check(bench, "spring", 8)


async def owners(bench: Bench, different: int) -> bool:
    group = bench.topics.group("status")
    found = [await bench.redis.get(keys.redis_owner(group, partition)) for partition in range(bench.partitions)]
    return None not in found and len(set(found)) == different


async def test_garbage_among_good_records_is_parked_byte_for_byte_and_the_rest_goes_on(bench: Bench) -> None:
    """K03."""
    row = keys.recipient_address("spring", 0, 0)
    good = batch(row.row, [planned("email"), event(E.SENT)])
    garbage = [b"", b"\x00", b"\x00\x00\x00\xff\xffxyz", codec.encode(good) + b"\x00", codec.encode(good)[:-3]]
    await bench.write([batch(row.row, [planned("email")])])
    await bench.publisher.publish([Outgoing(bench.topics.status, b"k\xff", value, (("a", b"1"),)) for value in garbage])
    await bench.publisher.publish([Outgoing(bench.topics.status, None, None)])
    await bench.write([good])
    process = await bench.start()
    await bench.until(lambda: all_parked(bench, len(garbage) + 1), "the dead letters")
    letters = await bench.records(bench.topics.internal_dlq)
    assert Counter(letter.value for letter in letters) == Counter([*garbage, None])
    assert all(letter.header("tid-error-class") for letter in letters)
    assert all(letter.header("a") == b"1" and letter.key == b"k\xff" for letter in letters if letter.value is not None)
    await bench.until(lambda: readable(bench, row), "the good row")
    assert (await bench.reads.row("default", row.row))[0].status == "sent"  # type: ignore[union-attr]

    row = keys.recipient_address("spring", 1, 0)
    await bench.publisher.publish([Outgoing(bench.topics.status, b"k", garbage[1])])
    written_s = asyncio.get_running_loop().time()
    await bench.write([batch(row.row, [planned("email")])])
    await bench.until(lambda: readable(bench, row), "the good row behind garbage")
    assert asyncio.get_running_loop().time() - written_s <= GOES_ON_WITHIN_S
    assert await bench.stop(process) == ""


async def all_parked(bench: Bench, number: int) -> bool:
    return len(await bench.records(bench.topics.internal_dlq)) >= number


async def test_a_second_process_on_the_same_folder_refuses_to_start(bench: Bench) -> None:
    """K44"""
    await bench.start("one")
    await bench.until(lambda: owners(bench, 1), "the first process")
    second = await bench.start("one")
    _, errors = await second.communicate()
    bench.processes.remove(second)
    assert second.returncode != 0
    assert "needs a folder of its own" in errors.decode()


async def test_records_that_expired_unread_stop_the_process_instead_of_being_jumped_over(bench: Bench) -> None:
    """K26."""
    row = keys.recipient_address("spring", 0, 0)
    await bench.write([batch(row.row, [planned("email")])])
    process = await bench.start()
    await bench.until(lambda: readable(bench, row), "the row")
    assert await bench.stop(process) == ""
    await bench.write([batch(row.row, [event(E.SENT)])] * 3)
    expire(bench)
    late = await bench.start()
    _, errors = await late.communicate()
    bench.processes.remove(late)
    assert late.returncode != 0
    assert "but only what lies before 1 was done" in errors.decode()


def expire(bench: Bench) -> None:
    admin = AdminClient({"bootstrap.servers": bench.bootstrap})
    ends = [TopicPartition(bench.topics.status, partition, -1) for partition in range(bench.partitions)]
    for done in admin.delete_records(ends).values():
        done.result()


async def test_no_owner_means_try_again_later_and_an_unknown_row_means_nothing_yet(bench: Bench) -> None:
    address = keys.recipient_address("spring", 0, 0)
    with pytest.raises(Transient, match="no owner"):
        await bench.reads.slot("default", address)
    await bench.start()
    await bench.until(lambda: owners(bench, 1), "an owner")
    assert await bench.reads.slot("default", address) is None
    assert await bench.reads.row("default", address.row) == []
    sent = replace(event(E.SENT, slot=3), provider="gateway", provider_id="m-1")
    single = keys.single_address("0a1b2c3d", 0, 35)
    await bench.write([batch(single.row, [planned("email", slot=3), sent])])
    await bench.until(lambda: readable(bench, single), "the single")
    view = await bench.reads.slot("default", single)
    assert view is not None
    assert (view.status, view.template, view.deliveries[0].provider) == ("sent", "welcome", "gateway")
