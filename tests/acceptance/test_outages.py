"""Kafka or Redis away for a minute, emptied, or set back by some seconds, while a campaign and singles run.

Nothing is lost, nobody who opted out is reached, everything goes on by itself, and every process says what it waits
for. On a Kafka and a Redis of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from deploy import surroundings
from schemas.messages import Channel, Priority
from tests.acceptance import deployment as deployments
from tests.acceptance import own_stack, people
from tests.acceptance.broker import ToWrite
from tests.acceptance.conftest import TEMPLATES
from tests.acceptance.deployment import Deployment
from tests.acceptance.own_stack import OwnStack
from tests.acceptance.world import PUSH, SMS, Answer, World

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SIZE, PACE_PER_S = 2_500, 100
OPTED_OUT = 50
AWAY_S = 60.0
BROKER_AWAY_S = 90.0
BACK_WITHIN_S = 60.0
CODE_WITHIN_S = 15.0
"""What a person waits for a login code, on a machine that does much else; Redis must be away for 2 s of it first."""
NOT_NOW = "Nothing is sent while Redis cannot be used"
NO_LOG = "The log could not be read: it does not answer."
REDIS, LOG = surroundings.REDIS_TRUSTED, surroundings.LOG_ANSWERS
NEEDS_REDIS = (
    "route-requests",
    "route-recipients",
    "work-push.bulk",
    "dispatch",
    "streams-fan_out",
    "streams-status",
    "reconcile",
)
NEEDS_LOG = (*NEEDS_REDIS, "route-callbacks", "forward")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStack]:
    with own_stack.started(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="module")
def own_deployment(stack: OwnStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("outages")
    with deployments.running(folder, stack.bootstrap, stack.redis_url, TEMPLATES) as running:
        yield running


@pytest.fixture
async def world(own_deployment: Deployment, stack: OwnStack) -> AsyncIterator[World]:
    stack.mend()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client:
        made = World(own_deployment, client)
        await made.all_is_well()
        await made.new_ledger()
        yield made
        await made.all_is_well()


async def test_a_minute_without_redis_delays_and_loses_nothing(world: World, stack: OwnStack) -> None:
    async with traffic(world) as sent:
        stack.kill_redis()
        gone_s = time.monotonic()
        for role in NEEDS_REDIS:
            await until_it_waits_for(world, role, REDIS)
            assert (await world.numbers(role))["tidings_redis_down"] == 1
        asked = await sent.more_singles(1)
        before = (await world.ledger(PUSH))["calls"]
        await asyncio.sleep(max(0.0, gone_s + AWAY_S - time.monotonic()))
        assert (await world.ledger(PUSH))["calls"] == before, "somebody was called without a look at their wishes"
        assert asked[0].status == 202 and asked[0].headers["Idempotency-Checked"] == "false"
        assert NOT_NOW in await world.explained(asked[0].body["notification_id"])
        await world.until_told(sent.campaign, lambda told: told["waits_for"] == "redis", "says that it waits for Redis")
        stack.start_redis()
        await until_all_work(world)
    await sent.all_arrived()


async def test_a_minute_without_redis_holds_up_no_login_code_whose_template_says_so_and_everything_else(
    world: World, stack: OwnStack
) -> None:
    """Anna was written to a moment before, Bob as well, and has opted out; strangers bring their numbers."""
    codes = Codes(world)
    anna, bob = await codes.people()
    stack.kill_redis()
    gone_s = time.monotonic()
    waiting = [await codes.ask("code", codes.word("waits")) for _ in range(5)]
    barred = await codes.ask("login", codes.word("barred"), user=bob, to=people.to_phone(bob))
    arrived = [asyncio.create_task(codes.arrives(await codes.ask("login", codes.word("known"), user=anna)))]
    while time.monotonic() < gone_s + AWAY_S - CODE_WITHIN_S:
        arrived.append(asyncio.create_task(codes.arrives(await codes.ask("login", codes.word("stranger")))))
        await asyncio.sleep(1)
    await asyncio.gather(*arrived)
    await asyncio.sleep(max(0.0, gone_s + AWAY_S - time.monotonic()))
    assert set((await codes.calls([*waiting, barred])).values()) == {(0, 0)}, "somebody was called without a look"
    stack.start_redis()
    await until_all_work(world)
    await codes.all_told(waiting, barred)
    await codes.replayed()


async def test_a_broker_away_for_longer_than_a_write_may_take_delays_and_loses_nothing(
    world: World, stack: OwnStack
) -> None:
    """K08, K28."""
    async with traffic(world) as sent:
        [known] = [answer.body["notification_id"] for answer in await sent.more_singles(1)]
        stack.kill_kafka()
        gone_s = time.monotonic()
        for role in NEEDS_LOG:
            await until_it_waits_for(world, role, LOG)
            assert (await world.numbers(role))["tidings_log_down"] == 1
        refused = await sent.more_singles(1)
        assert [answer.status for answer in refused] == [503], "only what is in the log is accepted"
        await world.until_told(sent.campaign, lambda told: told["waits_for"] == "log", "says that it waits for the log")
        assert NO_LOG in await world.explained(known)
        await asyncio.sleep(max(0.0, gone_s + BROKER_AWAY_S - time.monotonic()))
        stack.start_kafka()
        await until_all_work(world)
    await sent.all_arrived()


async def test_an_emptied_redis_is_filled_again_before_anybody_is_called(world: World, stack: OwnStack) -> None:
    async with traffic(world) as sent:
        late = await sent.somebody_opts_out()
        stack.empty_redis()
        await until_all_work(world)
    await sent.all_arrived(besides=late)


async def test_a_redis_set_back_by_some_seconds_learns_again_what_it_forgot(world: World, stack: OwnStack) -> None:
    stack.keep_redis()
    async with traffic(world) as sent:
        late = await sent.somebody_opts_out()
        cancelled, waiting = await sent.one_is_cancelled()
        stack.roll_back_redis()
        await world.all_is_well()
        await until_all_work(world)
    await sent.all_arrived(besides=late)
    assert (await world.status(cancelled))["status"] == "cancelled"
    await world.until_read("forward")
    await world.until_read("work sms.transactional")
    assert await world.calls(SMS, [waiting]) == {waiting: (1, 0)}, "the refused first call only"


@dataclass
class Codes:
    """Singles by SMS, by their Idempotency-Keys."""

    world: World
    ids: dict[str, str] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def word(self, what: str) -> str:
        return self.world.name(f"{what}{next(self.numbers)}")

    async def people(self) -> tuple[str, str]:
        """Two who were read a moment ago; the second does not want to be written to."""
        world, (anna, bob) = self.world, (self.world.name(name) for name in ("anna", "bob"))
        for user, wishes in ((anna, []), (bob, [{"channel": "sms", "kind": "*"}])):
            await world.user(user, phone=people.phone(user), opt_outs=wishes)
            told = self.ids[await self.ask("login", self.word("before"), user=user)]
            await world.until_status(told, "suppressed" if wishes else "delivered")
        self.ids.clear()
        return anna, bob

    async def ask(self, template: str, key: str, user: str = "", **to: Any) -> str:
        """Asks for one, by a stranger who brings their number where no user is named; its key."""
        brought = to.get("to") if user else people.to_phone(key)
        body = {"user_id": user or key, "template": template, "params": {"code": "1"}}
        body |= {"to": brought} if brought else {}
        answer = await self.world.ask("POST", "/v1/notifications", json=body, headers={"Idempotency-Key": key})
        assert answer.status == 202, answer
        self.ids[key] = answer.body["notification_id"]
        return key

    async def arrives(self, key: str) -> None:
        """Within seconds of the answer."""

        async def look() -> int:
            return (await self.calls([key]))[people.sms_key(key)][1]

        await self.world.until(look, lambda sends: sends == 1, f"{key} arrives", CODE_WITHIN_S)

    async def calls(self, keys: Iterable[str]) -> dict[str, tuple[int, int]]:
        return await self.world.calls(SMS, map(people.sms_key, keys))

    async def all_told(self, waited: list[str], barred: str) -> None:
        """Everything arrived once and says so; what went out without a look says that it may have gone twice."""
        for key, one in self.ids.items():
            [told] = (await self.world.until_status(one, "suppressed", "sent", "delivered"))["deliveries"]
            assert (told["state"] == "suppressed") == (key == barred), (key, told)
            assert bool(told.get("possible_duplicate")) == (key not in (*waited, barred)), (key, told)
        sends = await self.calls(self.ids)
        assert {key: sent for key, (_, sent) in sends.items() if sent != 1} == {people.sms_key(barred): 0}

    async def replayed(self) -> None:
        """Claims that were written afterwards keep a copy from being sent, as any other."""
        world, lane = self.world, self.world.topics.lane(Channel.SMS, Priority.TRANSACTIONAL)
        before = await self.calls(self.ids)
        written = await world.records(lane)
        await world.write(lane, *(ToWrite(one.value, one.key, one.headers) for one in written))
        await world.until_read("work sms.transactional")
        assert await self.calls(self.ids) == before


@dataclass
class Traffic:
    """A campaign that takes its time, and singles that come all the while; the first of its people opted out."""

    world: World
    campaign: str
    users: list[str]
    answers: dict[str, Answer] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def more_singles(self, count: int) -> list[Answer]:
        """Asks for so many; whatever is answered."""
        return [await self._ask() for _ in range(count)]

    async def keep_asking(self) -> None:
        """A single twice a second, until it is cancelled."""
        while True:
            await self._ask()
            await asyncio.sleep(0.5)

    async def somebody_opts_out(self) -> str:
        """The last of the campaign's people, whom nobody has come to yet."""
        last = self.users[-1]
        await opt_out(self.world, last)
        assert set((await self.world.calls(PUSH, people.reader_keys(self.campaign, [last]))).values()) == {(0, 0)}
        return last

    async def one_is_cancelled(self) -> tuple[str, str]:
        """Of a message that waits for its next try; its id and its delivery key."""
        world, user = self.world, self.world.name("cancelled")
        await world.faults(SMS, errors={"503": 1}, retry_after_s=20)
        sent = await world.notify(user, "code", key=user, params={"code": "1"}, to=people.to_phone(user))
        await world.until_status(sent, "retrying")
        await world.must("DELETE", f"/v1/notifications/{sent}")
        return sent, people.sms_key(user)

    async def all_arrived(self, besides: str = "") -> None:
        """Everybody once, repeats only where they are counted; those who opted out never."""
        world = self.world
        told = await world.until_finished(self.campaign, 240)
        silent = {*self.users[:OPTED_OUT], *filter(None, [besides])}
        assert sum(told["outcomes"].values()) == SIZE
        assert told["reasons"] == {"opted_out": len(silent)}
        calls = await world.calls(PUSH, people.reader_keys(self.campaign, self.users))
        sends = {user: sent for user, (_, sent) in zip(self.users, calls.values(), strict=True)}
        assert not any(sends[user] for user in silent), "somebody was reached who had opted out"
        reached = [sends[user] for user in self.users if user not in silent]
        assert min(reached) == 1, "somebody got nothing"
        await world.until_repeats_are_told(self.campaign, sum(reached) - len(reached))
        await self._singles_arrived()

    async def _singles_arrived(self) -> None:
        accepted = {key: answer.body["notification_id"] for key, answer in self.answers.items() if answer.status == 202}
        assert len(accepted) >= 5, "before, while and after"
        doubtful = 0
        for one in accepted.values():
            told = await self.world.until_status(one, "sent", "delivered")
            doubtful += any(delivery.get("possible_duplicate") for delivery in told["deliveries"])
        calls = await self.world.calls(PUSH, map(people.push_key, accepted))
        sends = [sent for _, sent in calls.values()]
        assert min(sends) == 1 and sum(sends) - len(sends) <= doubtful

    async def _ask(self) -> Answer:
        key = self.world.name(f"single{next(self.numbers)}")
        body = {"user_id": key, "template": "alert", "params": {"text": "x"}, "to": people.to_device(key)}
        headers = {"Idempotency-Key": key}
        self.answers[key] = answer = await self.world.ask("POST", "/v1/notifications", json=body, headers=headers)
        return answer


@asynccontextmanager
async def traffic(world: World) -> AsyncIterator[Traffic]:
    """Under way as it is entered: some are sent, most are not."""
    users = [world.name(f"reader{number}") for number in range(SIZE)]
    await asyncio.gather(*(opt_out(world, user) for user in users[:OPTED_OUT]))
    campaign = await world.campaign("news", mixed(people.readers(users)), pace_per_s=PACE_PER_S)
    sent = Traffic(world, campaign, users)
    asking = asyncio.create_task(sent.keep_asking())
    await world.until_told(campaign, lambda told: told["progress"]["sent"] >= 2 * PACE_PER_S, "is under way")
    try:
        yield sent
        await sent.more_singles(5)
    finally:
        asking.cancel()
        await asyncio.wait({asking})


def mixed(lines: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Those who opted out, the first of them, spread over the whole audience; the last stays the last."""
    opted_out, others = lines[:OPTED_OUT], lines[OPTED_OUT:]
    every = len(others) // OPTED_OUT
    for number, line in enumerate(others):
        if number % every == 0 and number // every < OPTED_OUT:
            yield opted_out[number // every]
        yield line


async def opt_out(world: World, user: str) -> None:
    await world.must("PUT", f"/v1/users/{user}/preferences", json={"opt_outs": [{"channel": "push", "kind": "*"}]})


async def until_it_waits_for(world: World, role: str, what: str) -> None:
    """An engine names its brokers in its own words."""

    def named(seen: tuple[int, Any]) -> bool:
        return seen[0] == 503 and any(what in one or (what == LOG and "brokers" in one) for one in seen[1]["waits_for"])

    await looked_at(world, role, named, f"{role} says that it waits for {what}")


async def until_all_work(world: World) -> None:
    """Every process, by itself."""
    roles = [*json.loads((world.deployment.logs / "processes.json").read_text())]
    async with asyncio.timeout(BACK_WITHIN_S):
        for role in roles:
            await looked_at(world, role, lambda seen: seen[0] == 200, f"{role} is ready again")


async def looked_at(world: World, role: str, holds: Callable[[tuple[int, Any]], bool], what: str) -> None:
    async def look() -> tuple[int, Any]:
        if (url := world.metrics_url(role)) is None:
            return 0, "it is being started"
        answer = await world.ask("GET", url.removesuffix("/metrics") + "/readyz")
        return answer.status, answer.body

    await world.until(look, holds, what)
