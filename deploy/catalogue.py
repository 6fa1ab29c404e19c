"""The topics and groups of this deployment, and the broker made to match them."""

from __future__ import annotations

import asyncio
import logging

from deploy import provision as provisioning
from deploy.blueprint import Blueprint, Change, blueprint
from deploy.broker_state import Broker
from deploy.settings import Settings
from schemas.errors import Transient
from schemas.topics import Topics

log = logging.getLogger(__name__)


def topics_of(settings: Settings) -> Topics:
    """The catalogue of this deployment."""
    return Topics(settings.topic_prefix, tuple(settings.tenants))


def blueprint_of(settings: Settings) -> Blueprint:
    """What the broker must have."""
    kafka = settings.kafka
    return blueprint(topics_of(settings), kafka.partitions == "production", kafka.replication_factor)


async def provision(settings: Settings, apply: bool) -> list[Change]:
    """How the broker differs from the catalogue; with apply, made to match."""
    return await asyncio.to_thread(_provision, settings, apply)


async def provision_patiently(settings: Settings) -> None:
    """Makes it match. A broker that has only just started may need a moment; raises Transient when it needs more."""
    for wait_s in (0.5, 1, 2, 4, 8):
        try:
            await provision(settings, apply=True)
            return
        except Transient as error:
            log.warning("up.broker_not_ready", extra={"why": str(error), "again_in_s": wait_s})
            await asyncio.sleep(wait_s)
    await provision(settings, apply=True)


def _provision(settings: Settings, apply: bool) -> list[Change]:
    broker, wanted = Broker(settings.kafka.client()), blueprint_of(settings)
    changes = provisioning.plan(broker, wanted)
    if apply and changes:
        provisioning.apply(broker, wanted, changes)
    return changes
