"""What takes a minute at default settings: a provider's outage, one that hangs, a low rate shared by many workers."""

from __future__ import annotations

import asyncio
import subprocess
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from schemas import keys
from schemas.messages import Channel, Priority
from tests.acceptance import deployment as deployments
from tests.acceptance import people
from tests.acceptance.conftest import RUNNING, TEMPLATES
from tests.acceptance.deployment import Deployment
from tests.acceptance.watch import Watch
from tests.acceptance.world import MAIL, PUSH, SMS, World

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200)]

LOW_PER_S, LOW_BURST, WORKERS = 10, 5, 10
USED_SHARE = 0.9
"""All but a burst on an idle machine; on a busy one tokens die with processes that stand still for 0.2 s."""
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
workers = {{ "sms.transactional" = {workers} }}
[templates]
path = "{templates}"
[channels.push]
providers = ["gateway"]
[channels.email]
providers = ["mail"]
[channels.sms]
providers = ["texter"]
[providers.gateway]
kind = "http"
url = "http://127.0.0.1:{http}/send"
rate_per_s = 600
burst = 60
callback_secret = "{secret}"
[providers.texter]
kind = "http"
url = "http://127.0.0.1:{http}/sms"
rate_per_s = {per_s}
burst = {burst}
callback_secret = "{secret}"
[providers.mail]
kind = "smtp"
url = "smtp://127.0.0.1:{smtp}"
from = "Corner Shop <news@example.org>"
rate_per_s = 500
burst = 50
"""


@pytest.fixture(scope="module")
def deployment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, redis_url: str
) -> Iterator[Deployment]:
    """As many partitions of one lane as it has workers: each of them has something to send."""
    where = (tmp_path_factory.mktemp("long"), kafka_bootstrap)
    database = deployments.database(redis_url, deployments.OTHER_DATABASES[1])
    with deployments.outside(
        *where, database, TEMPLATES, SETTINGS, workers=WORKERS, per_s=LOW_PER_S, burst=LOW_BURST
    ) as found:
        _provision(found)
        _widen(found, found.topics.lane(Channel.SMS, Priority.TRANSACTIONAL))
        with deployments.up(found):
            request.config.stash[RUNNING] = found
            yield found


def _provision(found: Deployment) -> None:
    words = ["provision", "--apply", "--config", str(found.folder / deployments.SETTINGS)]
    subprocess.run([str(deployments.COMMAND), *words], check=True, capture_output=True, timeout=120)


def _widen(found: Deployment, lane: str) -> None:
    admin = AdminClient({"bootstrap.servers": found.kafka, "log_level": 0})
    admin.create_partitions([NewPartitions(lane, WORKERS)])[lane].result(timeout=deployments.BROKER_TIMEOUT_S)
    give_up_s = time.monotonic() + deployments.BROKER_TIMEOUT_S
    while len(admin.list_topics(lane, timeout=deployments.BROKER_TIMEOUT_S).topics[lane].partitions) < WORKERS:
        assert time.monotonic() < give_up_s, f"{lane} did not grow"


async def test_an_outage_of_a_minute_amid_a_campaign_leaves_nobody_unsent(world: World) -> None:
    """N12: nobody touches anything until all are reached."""
    size, outage_s = 2_000, 60
    await world.new_ledger()
    users = [world.name(f"reader{number}") for number in range(size)]
    campaign = await world.campaign("news", people.readers(users))
    watch = Watch(world, campaign, size)
    await watch.until_sent(size * 0.25)
    await world.faults(PUSH, errors={"503": 1})
    await asyncio.sleep(outage_s)
    assert (await watch.look())["progress"]["sent"] < size
    await world.all_is_well()
    await watch.until_finished(within_s=600)
    told = await watch.until_reported(size)
    assert (told["status"], told["outcomes"], told["possible_duplicates"]) == ("processed", {"delivered": size}, 0)
    sends = {sends for _, sends in (await world.calls(PUSH, people.reader_keys(campaign, users))).values()}
    assert sends == {1}


async def test_a_provider_of_bulk_that_hangs_delays_no_transactional_message(world: World) -> None:
    """N09: 50 a second for 30 s; both sides reach everyone in the end."""
    size, per_s, hang_s = 2_000, 50, 30
    await world.new_ledger()
    await world.faults(PUSH, hang=1)
    users = [world.name(f"reader{number}") for number in range(size)]
    campaign = await world.campaign("news", people.readers(users))
    await world.until(lambda: world.ledger(PUSH), lambda seen: seen["calls"] > 0, "calls hang")

    arrivals = Arrivals(world, MAIL)
    buyers = [world.name(f"buyer{number}") for number in range(per_s * hang_s)]
    asked_s: dict[str, float] = {}

    async def ask(buyer: str) -> None:
        asked_s[buyer] = time.time()
        to = {"email": f"{buyer}@example.org"}
        await world.notify(buyer, "order", key=buyer, params={"order": "1"}, channels=["email"], to=to)

    async with asyncio.TaskGroup() as asking:
        for number, buyer in enumerate(buyers):
            asking.create_task(ask(buyer))
            await asyncio.sleep(1 / per_s)
            if number % per_s == 0:
                await arrivals.look()
    assert (await world.told(campaign))["progress"]["sent"] == 0, "the provider of bulk hangs all the while"
    await world.all_is_well()
    await arrivals.until(len(buyers))
    waits_s = sorted(arrivals.at_s[_mail_key(buyer)] - asked_s[buyer] for buyer in buyers)
    assert waits_s[int(len(waits_s) * 0.99)] < 5
    assert set((await world.calls(MAIL, map(_mail_key, buyers))).values()) == {(1, 1)}
    told = await world.until_finished(campaign, within_s=600)
    assert told["status"] == "processed" and sum(told["outcomes"].values()) == size
    sends = [sends for _, sends in (await world.calls(PUSH, people.reader_keys(campaign, users))).values()]
    assert min(sends) == 1, "somebody got nothing"


def _mail_key(buyer: str) -> str:
    return keys.delivery_key(keys.single_intent(people.TENANT, buyer), Channel.EMAIL)


async def test_ten_workers_together_keep_to_a_rate_of_ten_a_second(world: World) -> None:
    """N24: the rate is the provider's, not each worker's; and it is used."""
    run_s = 60
    await world.new_ledger()
    arrivals = Arrivals(world, SMS)
    guests = [world.name(f"guest{number}") for number in range(LOW_PER_S * (run_s + 10))]
    for some in range(0, len(guests), 50):
        await asyncio.gather(*(_send_code(world, guest) for guest in guests[some : some + 50]))
        await arrivals.look()
    await arrivals.until(len(guests), within_s=2 * run_s)
    assert (await world.ledger(SMS))["calls"] == len(guests), "a call for each is all there is to count"

    at_s = sorted(arrivals.at_s.values())
    for length_s in range(1, run_s + 1):
        most = max(bisect_left(at_s, moment + length_s) - first for first, moment in enumerate(at_s))
        assert most <= length_s * LOW_PER_S + LOW_BURST, f"{most} in {length_s} s"
    within = bisect_left(at_s, at_s[0] + run_s)
    assert within >= run_s * LOW_PER_S * USED_SHARE, f"only {within} in {run_s} s"


async def _send_code(world: World, guest: str) -> str:
    return await world.notify(guest, "code", params={"code": "1"}, to=people.to_phone(guest))


class Arrivals:
    """When each call of a service came in. The ledger keeps the newest 200 in full, so look before it forgets one."""

    def __init__(self, world: World, service: str) -> None:
        self._world = world
        self._service = service
        self.at_s: dict[str, float] = {}

    async def look(self) -> int:
        newest: list[dict[str, Any]] = await self._world.must(
            "GET", f"{self._world.deployment.outside}/messages?service={self._service}"
        )
        for call in newest:
            self.at_s.setdefault(call["key"], call["at"])
        return len(self.at_s)

    async def until(self, count: int, within_s: float = 60) -> None:
        look: Callable[[], Awaitable[int]] = self.look
        await self._world.until(look, lambda seen: seen == count, f"{count} calls have come in", within_s)
