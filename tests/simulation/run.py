"""One seed: a world, its processes, what happens in it, what goes wrong, and what the checkers say in the end."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from consumers.limits import Rate
from schemas.messages import Channel
from schemas.records import Record
from tests.simulation import chats, checkers, faults, nights, set_back, too_much, workload
from tests.simulation.deployment import Deployment
from tests.simulation.faults import Trouble, Window
from tests.simulation.happened import Happened, places
from tests.simulation.loop import VirtualLoop
from tests.simulation.site import TOPICS, Site
from tests.simulation.truth import Truth

PATIENCE_S = 240.0
"""Nothing may take longer once all faults are over: leases, sessions and tiers are seconds."""
QUIET_S = 3.0
"""For the last counts to be told."""
REPLAYED = 0.25
"""Share of the runs at whose end everything is read again."""
REPLAY_S = 12.0


@dataclass
class Result:
    """trace: a hash over everything that was written to the log and asked of providers, when and in which order."""

    seed: int
    recipients: int = 0
    faults: list[Window] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    took_s: float = 0.0
    calls: int = 0
    trace: str = ""

    def told(self) -> dict[str, Any]:
        """For a machine."""
        return {**asdict(self), "faults": [[w.began_s, w.ended_s, w.struck.text] for w in self.faults]}


def run(seed: int) -> Result:
    """Runs it. The same seed gives the same result."""
    return _Run(seed).run()


class _Run:
    def __init__(self, seed: int) -> None:
        self.result = Result(seed)
        self._rng = random.Random(seed)
        self._loop = VirtualLoop(random.Random(self._rng.random()))  # type: ignore[abstract]
        self._trace = hashlib.blake2b(digest_size=8)

    def run(self) -> Result:
        self._loop.run(self._happen())
        self.result.trace = self._trace.hexdigest()
        return self.result

    async def _happen(self) -> None:
        rng, loop = self._rng, self._loop
        seed, rates, story = rng.random(), _rates(rng), workload.drawn(rng)
        # Drawn apart: a seed without a night, or a disk that forgets, is the run that it was before there were any.
        quiet = nights.fall(random.Random(f"the nights of {self.result.seed}"), story)
        chats.begin(random.Random(f"the chats of {self.result.seed}"), story)
        caps = too_much.begin(random.Random(f"the caps of {self.result.seed}"), story)
        site = Site(loop, random.Random(seed), rates, quiet, caps)
        expected = {one.id: [address for address, _ in places(one)] for one in story.campaigns}
        deployment = Deployment(site)
        trouble = Trouble(site, story, deployment, random.Random(rng.random()))
        truth = Truth(site.log, expected)
        told, disk = self.result.faults, random.Random(f"the disk of {self.result.seed}")
        set_back_s = set_back.draw(disk)
        happened = Happened(site, story, truth, deployment, told, trouble.poison, bool(set_back_s))
        self._watch(site)
        disks = [set_back.strike(site, disk, at_s, told) for at_s in set_back_s]
        deployment.start_all()
        await asyncio.gather(workload.tell(site, story), faults.all_of_them(trouble, told), *disks)
        await self._until_all_is_done(happened)
        await asyncio.sleep(QUIET_S)
        if rng.random() < REPLAYED and not happened.was_set_back:
            await self._replay(happened)
        self._judge(happened)

    async def _replay(self, happened: Happened) -> None:
        """Everything is read a second time, and nobody is called, also who had no address then and has one now."""
        groups = happened.site.groups
        before = [asked.call.delivery_key for asked in happened.asked()]
        happened.deployment.kill_all()
        for name in groups.names():
            groups.rewind(name)
        await asyncio.sleep(REPLAY_S)
        await self._until_all_is_done(happened)
        await asyncio.sleep(QUIET_S)
        again = Counter(asked.call.delivery_key for asked in happened.asked())
        again.subtract(before)
        called = sorted(key for key, times in again.items() if times > 0)
        self.result.broken += [f"replay: {key} was called" for key in called]

    async def _until_all_is_done(self, happened: Happened) -> None:
        end_s = self._loop.time() + PATIENCE_S
        while self._loop.time() < end_s and not _is_done(happened):  # noqa: ASYNC110 - virtual seconds cost nothing
            await asyncio.sleep(1.0)

    def _judge(self, happened: Happened) -> None:
        result = self.result
        result.broken += checkers.broken(happened)
        result.recipients = happened.story.recipients
        result.took_s = self._loop.time()
        result.calls = sum(1 for _ in happened.asked())

    def _watch(self, site: Site) -> None:
        for spec in TOPICS.specs():
            site.log.listen(spec.name, self._note)
        for vendor in site.vendors.values():
            vendor.on_asked = lambda asked: self._trace.update(
                f"{asked.began_s}{asked.process}{asked.call.reference}".encode()
            )

    def _note(self, record: Record) -> None:
        self._trace.update(f"{self._loop.time()}{record.topic}{record.partition}".encode())
        self._trace.update(record.value or b"")


def _rates(rng: random.Random) -> dict[Channel, Rate]:
    return {
        Channel.EMAIL: Rate(rng.choice((15.0, 30.0, 60.0)), rng.choice((10, 30))),
        Channel.SMS: Rate(rng.choice((10.0, 25.0)), rng.choice((6, 20))),
    }


def _is_done(happened: Happened) -> bool:
    truth, story = happened.truth, happened.story
    for campaign in story.campaigns:
        newest = truth.newest(campaign.id)
        if newest is None or newest.finished_at is None:
            return False
    if any(vendor.reports_to_come for vendor in happened.site.vendors.values()):
        return False
    if not all(truth.is_finished(*address) for _, address, _ in story.addresses):
        return False
    if chats.unfinished(happened):
        return False
    if happened.site.groups.behind(lambda topic, partition: happened.site.log.ends(topic, partition)[1]):
        return False  # poison may still lie there, or a delivery whose caller died: its lease has to run out
    return not any(checkers.counts_exact(happened))  # reports may still lie in the log when all have been made
