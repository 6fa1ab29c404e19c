"""The processes on Faust: fan-out and status. Nobody else pays for its libraries."""

from __future__ import annotations

import hashlib
import os

from consumers.controls import Controls
from deploy import ground as grounds
from deploy import senders, serving
from deploy.engines import BULK_MS, PAGES_MS, telling
from deploy.ground import Ground
from deploy.processes import shared
from deploy.settings import Settings
from retry_topics.dead_letters import DeadLetters
from schemas.gaps import Gap
from streams import agents
from streams.fan_out import FanOut
from streams.recipients import RedisProfiles
from streams.status_process import StatusOptions, StatusProcess, data_dir_lock


async def fan_out(settings: Settings, gap: Gap | None = None) -> None:
    """Pages to deliveries."""
    async with grounds.watched(settings, gap) as ground:
        ground.needs_redis()
        ground.needs_log(ground.log_reader())
        publisher = ground.publisher(PAGES_MS)
        profiles = RedisProfiles(ground.trips("profiles"), ground.epoch)
        controls = Controls()
        await controls.load(ground.tails(), ground.topics)
        expander = FanOut(
            ground.policies,
            profiles,
            ground.trips("fan_out"),
            ground.epoch,
            publisher,
            ground.topics,
            ground.clock,
            await shared.reads(ground),
            settings.quiet_hours(),
            controls.order,
            shared.served(settings),
            ground.gap,
        )
        letters = DeadLetters(ground.topics, ground.clock)
        options = _faust(ground, "fan_out")
        process = agents.fanning_out(ground.topics, options, expander.expand, publisher, letters.letter)
        # There is nothing in the folder, but its name is the member's: two of one name would fight for it.
        with data_dir_lock(options.data_dir):
            await telling(ground.health, process.run(), [process.settled.wait])


async def status(settings: Settings, gap: Gap | None = None) -> None:
    """Status events to rows, public state and reads."""
    async with grounds.watched(settings, gap) as ground:
        publisher, reader = ground.publisher(BULK_MS), ground.log_reader()
        ground.needs_redis()
        ground.needs_log(reader)
        letters = DeadLetters(ground.topics, ground.clock)
        count = ground.broker.partitions[ground.topics.status]
        with serving.bound(settings.streams.listen, "[streams] listen") as door:
            own_url = serving.url_of(door, settings.streams.advertise)
            chosen = StatusOptions(_faust(ground, "status"), own_url, count)
            process = StatusProcess(
                ground.topics,
                chosen,
                ground.ids,
                letters.letter,
                publisher,
                reader,
                ground.trips("status owner"),
                ground.clock,
                ground.gap,
                {name for name, given in settings.providers.items() if senders.promises_reports(given)},
            )
            async with serving.serving(process.view, door):
                await telling(ground.health, process.run(), [process.settled.wait])


def _faust(ground: Ground, role: str) -> agents.FaustOptions:
    """One folder and one fixed member name per process: a quick restart moves no partitions."""
    settings = ground.settings
    folder = settings.streams.folder / (settings.topic_prefix + role)
    own_name = hashlib.sha256(f"{os.uname().nodename} {folder}".encode()).hexdigest()[:16]
    return agents.FaustOptions(
        ground.kafka,
        folder,
        instance=own_name,
        session_s=settings.streams.session_s,
        heartbeat_s=settings.streams.heartbeat_s,
        commit_every_s=settings.streams.commit_every_s,
    )
