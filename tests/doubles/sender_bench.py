"""A lane worker on memory stores, a scripted provider and a clock that moves only when told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from consumers.breaker import CLOSED, Breaker, BreakerOptions, State
from consumers.caps import CapRules
from consumers.judging import OutcomeJudge
from consumers.lane_worker import LaneWorker, Rules
from consumers.limits import Token
from consumers.local_rate import LocalTokens
from consumers.render import Renderer
from consumers.sending import Seat, Stores, WorkerOptions
from consumers.settling import SettleOptions
from consumers.spend import Spend
from consumers.throttles import Paused, Throttle
from retry_topics.budget import RetryBudget
from retry_topics.dead_letters import DeadLetters
from schemas import codec, keys, stores
from schemas.messages import CampaignOrder, Channel, Delivery, StatusEvent
from schemas.outcomes import Outcome
from schemas.policies import ContentCheck, MessageClass, TemplatePolicy
from schemas.quiet_hours import QuietHours
from schemas.records import Answer, Defer, Done, Outgoing, Record
from schemas.topics import Topics
from schemas.trips import Epoch, Trip
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_claims import MemoryClaims
from tests.doubles.memory_fallbacks import MemoryFallbacks
from tests.doubles.memory_guards import MemoryCaps, MemoryLookalikes
from tests.doubles.memory_trips import RUN_ID, MemoryTrips
from tests.doubles.scripted_provider import ScriptedProvider

TOPICS = Topics()
IDS = keys.Ids(b"secret")


class MemoryPeople:
    """Profiles and suppressions in dictionaries; a profile's version is what the claim compares."""

    def __init__(self, claims: MemoryClaims) -> None:
        self.profiles: dict[str, stores.Profile] = {}
        self.causes: dict[tuple[str, str], str] = {}
        self._claims = claims

    def write(self, user_id: str, profile: stores.Profile) -> None:
        self.profiles[user_id] = profile
        self._claims.versions[keys.redis_profile("default", user_id)] = profile.version


class MemoryProfiles:
    def __init__(self, people: MemoryPeople) -> None:
        self._people = people

    def ask(self, trip: Trip, tenant: str, user_id: str) -> None:
        trip.execute_command(lambda: self._people.profiles.get(user_id, stores.Profile()))

    def read(self, reply: Any) -> stores.Profile:
        assert isinstance(reply, stores.Profile)
        return reply


class MemorySuppressions:
    def __init__(self, people: MemoryPeople) -> None:
        self._people = people

    def ask(self, trip: Trip, tenant: str, channel: str, address: str) -> None:
        trip.execute_command(lambda: self._people.causes.get((channel, address), ""))

    def read(self, reply: Any) -> str:
        return str(reply)


class FreeTokens:
    """As many tokens as asked for; counts what came back. dead: the next ones die before their call."""

    def __init__(self) -> None:
        self.none_left = False
        self.dead = 0
        self.given_back = 0
        self.spent = 0

    async def take(self, wanted: int, wait_s: float, rank: int = 0) -> list[Token]:
        return [] if self.none_left else [Token(0.0, 1) for _ in range(wanted)]

    def spend(self, token: Token) -> bool:
        if self.dead:
            self.dead -= 1
            return False
        self.spent += 1
        return True

    def give_back(self, token: Token) -> None:
        self.given_back += 1


class StillBreaker(Breaker):
    """Stands as told; gathers what it is told."""

    def __init__(self, provider: str = "gateway") -> None:
        super().__init__(provider, BreakerOptions())
        self.state = CLOSED
        self.probes = 0
        self.noted: list[tuple[str, bool]] = []

    def ask(self, trip: Any) -> None:
        trip.execute_command(lambda: self.state)

    def read(self, reply: Any, now_ms: int) -> State:
        assert isinstance(reply, State)
        return reply

    def ask_probe(self, trip: Any) -> None:
        trip.execute_command(lambda: self.probes)

    def note(self, kind: Any, is_probe: bool) -> None:
        self.noted.append((str(kind), is_probe))


class StillThrottle(Throttle):
    """Paused as told; gathers what it is told."""

    def __init__(self, provider: str = "gateway") -> None:
        super().__init__(provider)
        self.paused: dict[str, int] = {}
        self.noted: list[tuple[str, str]] = []

    def ask(self, trip: Any) -> None:
        trip.execute_command(lambda: self.paused)

    def read(self, reply: Any, now_ms: int) -> Paused:
        return dict(reply)

    def note(self, outcome: Outcome, channel: Channel, address: str) -> None:
        self.noted.append((str(outcome.kind), str(outcome.scope)))


class SecondProvider(Seat):
    """A seat behind the first one."""

    def __init__(self, name: str = "second") -> None:
        self.scripted, self.still, self.quiet = ScriptedProvider(name), StillBreaker(name), StillThrottle(name)
        self.tokens = FreeTokens()
        super().__init__(self.scripted, self.still, self.quiet, self.tokens, 256)


class SenderBench:
    """Everything around one worker, within reach of a test. others: seats behind the first one. alone: what it may send
    while Redis is away.
    """

    def __init__(self, folder: Path, **changes: Any) -> None:
        (folder / "welcome").mkdir(exist_ok=True)
        for channel in Channel:
            (folder / "welcome" / f"{channel}.de.j2").write_text("{% block text %}Hallo {{ name }}{% endblock %}")
        self.folder = folder
        self.clock = ManualClock()
        self.trips = MemoryTrips()
        self.claims = MemoryClaims(self.clock)
        self.fallbacks = MemoryFallbacks(self.claims, self.clock)
        self.caps = MemoryCaps(self.claims, self.clock)
        self.marks = MemoryLookalikes(self.claims, self.clock)
        self.cap_rules = CapRules({}, {})
        self.people = MemoryPeople(self.claims)
        self.people.write("42", stores.Profile(1, email="ada@example.org", phone="+4930123456"))
        self.provider = ScriptedProvider()
        self.tokens = FreeTokens()
        self.breaker = StillBreaker()
        self.throttle = StillThrottle()
        self.others: list[Seat] = []
        self.orders: dict[tuple[str, str], CampaignOrder] = {}
        self.policy = TemplatePolicy(
            "welcome", MessageClass.TRANSACTIONAL, (Channel.SMS,), content_check=ContentCheck.OFF
        )
        self.quiet = QuietHours({}, {})
        self.served = frozenset(Channel)
        self.spend: Spend | None = None
        self.alone: list[LocalTokens] = []
        self.gap: Callable[[str], Any] | None = None
        self.options = WorkerOptions(**changes)
        self._offsets = iter(range(100_000))

    def worker(self) -> LaneWorker:
        epoch = Epoch()
        epoch.run_id = RUN_ID
        people = self.people
        profiles, barred = MemoryProfiles(people), MemorySuppressions(people)
        known = Stores(self.trips, epoch, self.claims, profiles, barred, self.fallbacks, self.caps, self.marks)
        has_standby = bool(self.others)
        judge = OutcomeJudge(self.clock, random.Random(1), RetryBudget(), self.options.ladder, has_standby=has_standby)
        renderer = Renderer(self.folder, {"default": "de"})
        policies, served = {"welcome": self.policy}, self.served
        rules = Rules(policies, renderer, self._order, judge.judge, self.quiet, self.cap_rules, served, self.spend)
        return LaneWorker(
            [Seat(self.provider, self.breaker, self.throttle, self.tokens, 256), *self.others],
            known,
            rules,
            IDS,
            TOPICS,
            DeadLetters(TOPICS, self.clock),
            self.clock,
            self.options,
            SettleOptions(every_s=0),
            self.gap,
            self.alone,
        )

    def record(self, delivery: Delivery, **headers: bytes) -> Record:
        topic = TOPICS.lane(delivery.channel, delivery.priority)
        key = keys.user_key(delivery.tenant, delivery.user_id).encode()
        return self.raw(codec.encode(delivery), topic, key, **headers)

    def raw(self, value: bytes, topic: str = "sms.transactional", key: bytes = b"k", **headers: bytes) -> Record:
        named = tuple((name.replace("_", "-"), content) for name, content in headers.items())
        return Record(topic, 0, next(self._offsets), key, value, named, self.clock.now_ms())

    async def send(self, *deliveries: Delivery | Record) -> list[Answer]:
        """Hands the deliveries to one worker together; their answers in order, acked as the engine does."""
        return await self.hand(self.worker(), *deliveries)

    async def hand(self, worker: LaneWorker, *deliveries: Delivery | Record) -> list[Answer]:
        records = [one if isinstance(one, Record) else self.record(one) for one in deliveries]
        answers: dict[int, Answer] = {}

        def answer(record: Record, given: Answer) -> None:
            assert record.offset not in answers, "answered twice"
            answers[record.offset] = given
            if isinstance(given, Done) and given.acked is not None:
                given.acked()

        await worker.handle(records, answer)
        async with asyncio.timeout(5):
            await worker.close()
        return [answers[record.offset] for record in records]

    async def die(self, delivery: Delivery, where: str) -> None:
        """A worker dies with it in this gap; the leases of its claims run out."""
        died = asyncio.Event()

        async def gap(name: str) -> None:
            if name == where:
                died.set()
                await asyncio.Event().wait()

        self.gap = gap
        worker = self.worker()
        await worker.handle([self.record(delivery)], lambda record, answer: None)
        async with asyncio.timeout(5):
            await died.wait()
        await worker.close(within_s=0)
        self.gap = None
        self.clock.advance(30_001)

    def _order(self, tenant: str, campaign_id: str) -> CampaignOrder:
        return self.orders.get((tenant, campaign_id), CampaignOrder.RUNNING)


def done(answer: Answer) -> Done:
    assert isinstance(answer, Done), answer
    return answer


def events(answer: Answer) -> list[StatusEvent]:
    return [row_event.event for row_event in done(answer).events]


def shown(answer: Answer) -> list[tuple[str, str]]:
    """(kind, reason) of each event."""
    return [(str(event.kind), event.reason) for event in events(answer)]


def published(answer: Answer) -> list[str]:
    """The topics written to."""
    return [outgoing.topic for outgoing in done(answer).publish]


def next_delivery(outgoing: Outgoing) -> Delivery:
    return codec.decode(outgoing.value, Delivery)


def deferred_ms(answer: Answer, clock: ManualClock) -> int:
    assert isinstance(answer, Defer), answer
    return answer.until_ms - clock.now_ms()


def all_of(answers: Iterable[Answer]) -> list[tuple[str, str]]:
    return [pair for answer in answers for pair in shown(answer)]
