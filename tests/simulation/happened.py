"""All that is known once a run has ended: what the checkers are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas import keys
from schemas.keys import Address
from schemas.slots import EMPTY, Slot
from tests.simulation.deployment import Deployment
from tests.simulation.faults import Struck, Window, role_of
from tests.simulation.site import Site
from tests.simulation.truth import Truth
from tests.simulation.vendor import Asked
from tests.simulation.workload import Campaign, Story


@dataclass(frozen=True, slots=True)
class Happened:
    """poison: (topic, value) of what nobody could read. was_set_back: Redis lost some of what it had been told."""

    site: Site
    story: Story
    truth: Truth
    deployment: Deployment
    faults: Sequence[Window]
    poison: Sequence[tuple[str, bytes]]
    was_set_back: bool = False

    def asked(self) -> Iterator[Asked]:
        for vendor in self.site.vendors.values():
            yield from vendor.asked

    def slot(self, address: Address) -> Slot:
        return self.truth.slots.get((address.row, address.slot), EMPTY)

    def stood_still(self, process: str, at_s: float) -> bool:
        """Whether something had befallen this process just before: what it does then it decided earlier."""
        role = process.partition("/")[0]
        return any(w.struck.touched == role and w.began_s <= at_s <= w.ended_s + 1.0 for w in self.troubles())

    def troubles(self) -> Iterator[Window]:
        """The faults, and the moment of every death."""
        yield from self.faults
        for at_s, name in self.deployment.crashes:
            yield Window(at_s, at_s, Struck(f"{name} died", role_of(name)))


def places(campaign: Campaign) -> Iterator[tuple[Address, str]]:
    """Where each recipient's status lives, and who it is."""
    for position, user_id in enumerate(campaign.users):
        page, slot = divmod(position, campaign.page_size)
        yield keys.recipient_address(campaign.id, page, slot), user_id
