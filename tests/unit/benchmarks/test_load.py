"""What the bench sends: a second campaign that was held as a look-alike would be waited for in vain."""

from __future__ import annotations

from pathlib import Path

from benchmarks import load, site
from consumers import lookalikes
from consumers.lookalikes import Mark
from schemas import policies
from schemas.messages import Channel, Delivery
from schemas.policies import TemplatePolicy


def test_campaigns_to_the_same_people_are_checked_and_no_lookalikes_of_each_other(tmp_path: Path) -> None:
    site.write_templates(tmp_path, campaigns=2)
    known = policies.read_policies(tmp_path)
    first, second = (_mark(load.delivery(Channel.PUSH, campaign, 7, 0), known) for campaign in (0, 1))
    assert first is not None and second is not None and first.key != second.key


def test_all_the_people_there_are_get_as_many_campaigns_as_there_are_templates() -> None:
    assert [load.campaigns(count) for count in (1, load.PEOPLE, load.PEOPLE + 1)] == [1, 1, 2]


def _mark(delivery: Delivery, known: dict[str, TemplatePolicy]) -> Mark | None:
    return lookalikes.mark_of(delivery, known[delivery.template], b"", lambda template: None)
