"""A dispatch of its own process, for tests that kill it: python -m ... BOOTSTRAP REDIS_URL PREFIX INSTANCE [GAP].

It kills itself in this gap.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from deploy import redis_client
from deploy.redis_trips import RedisTrips
from producers.publisher import KafkaPublisher
from retry_topics.dead_letters import DeadLetters
from schemas import keys
from schemas.clock import SystemClock
from schemas.messages import Channel
from schemas.policies import MessageClass, TemplatePolicy
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.backlog import Backlog
from streams.burials import Burials
from streams.campaigns import Campaigns
from streams.digest_marks import DigestMarks
from streams.digests import Digests, Entries
from streams.dispatch import Dispatch
from streams.grants import Grants
from streams.held_release import HeldRelease
from streams.holds import Holds
from streams.lanes import Window
from streams.leader import KafkaLeadership
from streams.letting_go import LettingGo
from streams.log_reader import KafkaLogReader
from streams.page_reader import PageReader, ReadAhead
from streams.release import Releases
from streams.tails import KafkaTails
from streams.ticks import Ticks
from tests.doubles.drops import Dropped
from tests.doubles.stores import MemoryReads

RATE_PER_S = 400.0
WHOLE_PAGES = Window(piece_s=600)
POLICIES = {"offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.INAPP,))}
IDS = keys.Ids(b"a secret of the tests")


async def rate(_: Channel) -> float:
    return RATE_PER_S


async def main(bootstrap: str, redis_url: str, prefix: str, instance: str, deadly: str = "") -> None:
    def gap(name: str) -> None:
        if name == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    kafka, topics, clock = {"bootstrap.servers": bootstrap}, Topics(prefix), SystemClock()
    publisher, reader = KafkaPublisher(kafka), KafkaLogReader(kafka)
    epoch = Epoch()
    trips = RedisTrips(redis_client.connect(redis_url, epoch), "dispatch")
    marks, entries = DigestMarks(trips, epoch), Entries({}, IDS)
    leadership = KafkaLeadership(kafka, topics.leader, topics.group("dispatch"), instance, publisher, clock)
    campaigns, grants = Campaigns(topics, POLICIES), Grants(trips)
    pages = PageReader(reader, publisher, DeadLetters(topics, clock).letter, topics)
    ahead, letting_go = ReadAhead(pages), LettingGo(Holds(topics), reader, pages, topics, MemoryReads())
    backlog = Backlog(reader, trips, dict.fromkeys(topics.lanes(), 1), clock)
    releases = Releases(POLICIES, ahead, backlog, grants, rate, topics, {}, clock, letting_go, WHOLE_PAGES)
    await leadership.start()
    tails = KafkaTails(kafka)
    ticks = Ticks(publisher, topics, 1, clock)
    held = HeldRelease(campaigns, letting_go, Dropped(), publisher, topics, clock, gap)
    digests = Digests(campaigns, letting_go, marks, entries, POLICIES, publisher, topics, clock, gap)
    burials = Burials(campaigns, held.holds, reader, leadership, publisher, topics, clock)
    await Dispatch(
        campaigns, releases, ahead, grants, leadership, tails, publisher, topics, clock, ticks, held, digests, burials
    ).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
