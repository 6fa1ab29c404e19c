"""A campaign waits for the lanes it fills, and for no others."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from schemas.messages import Channel, Priority
from schemas.policies import MessageClass, TemplatePolicy
from tests.doubles import campaigns as accepted
from tests.doubles.campaign_road import CampaignRoad
from tests.doubles.status_road import TOPICS

PUSH, EMAIL, SMS, INAPP = Channel.PUSH, Channel.EMAIL, Channel.SMS, Channel.INAPP
POLICIES = {
    "both": TemplatePolicy("both", MessageClass.MARKETING, (PUSH, EMAIL)),
    "either": TemplatePolicy("either", MessageClass.MARKETING, (), (PUSH, EMAIL)),
    "rescued": TemplatePolicy("rescued", MessageClass.MARKETING, (PUSH,), (EMAIL,)),
}
MAIL_LANE = TOPICS.lane(EMAIL, Priority.BULK)
PUSH_LANE = TOPICS.lane(PUSH, Priority.BULK)
FULL = 14
"""Pages that a lane takes."""
Let = Callable[..., Awaitable[int]]


@pytest.fixture
def let(tmp_path: Path) -> Let:
    """How many of 20 pages the first look lets go."""

    async def let(
        template: str,
        served: frozenset[Channel] = frozenset(Channel),
        down: tuple[Channel, ...] = (),
        lying: tuple[tuple[str, int], ...] = (),
    ) -> int:
        road = CampaignRoad(tmp_path, POLICIES, served)
        road.rates |= dict.fromkeys(down, 0.0)
        await accepted.accept(road.log, TOPICS, "spring", 5_000, template=template)
        for lane, deliveries in lying:
            await road.fill(lane, deliveries)
        await (await road.leader()).look(1)
        return len(road.pages())

    return let


@pytest.mark.parametrize("template", list(POLICIES))
async def test_with_push_alone_configured_templates_that_also_name_email_go_out(let: Let, template: str) -> None:
    assert await let(template, served=frozenset({PUSH, INAPP}), down=(EMAIL, SMS)) == FULL


@pytest.mark.parametrize("template", ["either", "rescued"])
async def test_a_dead_mail_provider_does_not_stop_push_that_only_falls_back_to_mail(let: Let, template: str) -> None:
    assert await let(template, down=(EMAIL,), lying=((MAIL_LANE, 1_000),)) == FULL


async def test_while_push_is_down_a_campaign_with_mail_to_fall_back_to_goes_at_the_pace_of_mail(let: Let) -> None:
    assert await let("either", down=(PUSH,), lying=((MAIL_LANE, 2_000),)) == 6, "3,500 less the 2,000 lying there"


async def test_with_every_fallback_down_nothing_goes(let: Let) -> None:
    assert await let("either", down=(PUSH, EMAIL)) == 0


@pytest.mark.parametrize("down", [PUSH, EMAIL])
async def test_a_campaign_sent_on_all_channels_waits_for_each_of_them(let: Let, down: Channel) -> None:
    assert await let("both", down=(down,)) == 0


async def test_channels_that_are_all_sent_wait_even_when_their_fallback_works(let: Let) -> None:
    assert await let("rescued", down=(PUSH,)) == 0


async def test_a_full_mail_lane_holds_back_only_who_fills_it(let: Let) -> None:
    assert await let("both", lying=((MAIL_LANE, 3_500),)) == 0


async def test_a_fallback_lane_may_be_full_but_not_overfull(let: Let) -> None:
    assert await let("either", lying=((MAIL_LANE, 3_500),)) == FULL


async def test_an_overfull_fallback_lane_holds_pages_back_until_it_has_drained(let: Let) -> None:
    assert await let("either", lying=((MAIL_LANE, 3_501),)) == 0


async def test_the_first_served_channel_sets_the_pace(let: Let) -> None:
    lying = ((PUSH_LANE, 3_000), (MAIL_LANE, 1_000))
    assert await let("either", lying=lying) == 2
