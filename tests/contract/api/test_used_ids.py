"""Ids of campaigns that the API no longer keeps: what was asked for first is still the only answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from producers.campaign_view import CampaignView, Options
from schemas import codec, messages
from schemas.forgetting import QUIET_MS
from schemas.messages import CampaignCursor, CampaignState, CampaignStatus
from schemas.records import Outgoing
from tests.doubles.api import Api

Client = TestClient[Any, Any]
PATH = "/v1/campaigns"
SPRING: dict[str, Any] = {"campaign_id": "spring", "template": "news", "recipients": [{"user_id": "u1"}]}
TWENTY_DAYS_MS = 20 * 86_400_000


@pytest.fixture
def api() -> Api:
    """It keeps two campaigns."""
    made = Api()
    made.parts = replace(made.parts, campaigns=CampaignView(made.topics, made.clock, Options(most=2)))
    return made


async def write(api: Api, topic: str, message: messages.Message) -> None:
    await api.log.publish([Outgoing(topic, b"default/spring", codec.encode(message))])


def ended(api: Api, campaign_id: str, at_ms: int) -> CampaignState:
    status = CampaignStatus.PROCESSED
    return CampaignState(
        "default", campaign_id, "news", status, 1, 1, 1, 1, 0, {"sent": 1}, {}, 0, 1, 1, 1, at_ms, api.clock.now_ms()
    )


async def forget_spring(api: Api, client: Client) -> None:
    """It is accepted, ends, and others push it out."""
    assert (await client.post(PATH, json=SPRING)).status == 202
    await write(api, api.topics.campaign_state, ended(api, "spring", api.clock.now_ms()))
    for name in ("summer", "autumn"):
        assert (await client.post(PATH, json=SPRING | {"campaign_id": name})).status == 202
    assert (await client.get(f"{PATH}/spring")).status == 404


async def test_the_same_campaign_again_gets_the_same_answer_although_it_was_forgotten(api: Api, client: Client) -> None:
    await forget_spring(api, client)
    again = await client.post(PATH, json=SPRING)
    assert (again.status, again.headers.get("Idempotent-Replayed")) == (202, "true")
    assert await again.json() == {"campaign_id": "spring", "status": "accepted", "expected": 1}
    assert [asked.campaign_id for asked in api.campaigns()].count("spring") == 1, "nothing is asked for again"


async def test_another_campaign_under_a_forgotten_id_is_refused_not_accepted_and_never_sent(
    api: Api, client: Client
) -> None:
    await forget_spring(api, client)
    other = await client.post(PATH, json=SPRING | {"recipients": [{"user_id": "u2"}]})
    assert (other.status, (await other.json())["field"]) == (422, "campaign_id")
    assert [asked.campaign_id for asked in api.campaigns()].count("spring") == 1


async def test_an_id_stays_used_while_late_reports_come_of_a_forgotten_campaign(api: Api, client: Client) -> None:
    await forget_spring(api, client)
    await write(api, api.topics.campaign_state, replace(ended(api, "spring", api.clock.now_ms()), version=2))
    assert (await client.post(PATH, json=SPRING)).headers.get("Idempotent-Replayed") == "true"
    assert (await client.post(PATH, json=SPRING | {"campaign_id": "winter"})).status == 202
    assert (await client.post(PATH, json=SPRING)).headers.get("Idempotent-Replayed") == "true"


@pytest.mark.parametrize("finished", [True, False])
async def test_an_id_is_not_free_again_when_the_log_has_lost_its_request(
    api: Api, client: Client, finished: bool
) -> None:
    """Its cursor stays in the log and says that everything was let go: another one would never be sent."""
    await write(api, api.topics.cursor, CampaignCursor("default", "spring", 1, 1, 1, 1, 0))
    if finished:
        await write(api, api.topics.campaign_state, ended(api, "spring", api.clock.now_ms() - TWENTY_DAYS_MS))
    answer = await client.post(PATH, json=SPRING)
    assert (answer.status, (await answer.json())["field"]) == (422, "campaign_id")
    assert not api.campaigns() and not api.pages()


async def test_an_id_is_free_again_when_dispatch_has_removed_what_was_left_of_its_campaign(
    api: Api, client: Client
) -> None:
    """The campaign of each month under one name; also where the API keeps the old one no more."""
    await forget_spring(api, client)
    cursor = CampaignCursor("default", "spring", 1, 1, 1, 1, api.clock.now_ms())
    await write(api, api.topics.cursor, cursor)
    other = SPRING | {"recipients": [{"user_id": "u2"}]}
    assert (await client.post(PATH, json=other)).status == 422
    api.clock.advance(QUIET_MS)
    await api.log.publish([Outgoing(api.topics.cursor, b"default/spring", None)])
    answer = await client.post(PATH, json=other)
    assert (answer.status, "Idempotent-Replayed" in answer.headers) == (202, False)
    assert [asked.recipients for asked in api.campaigns() if asked.campaign_id == "spring"] == [1, 1]
    assert (await (await client.get(f"{PATH}/spring")).json())["status"] == "running"


async def test_a_tombstone_that_comes_late_frees_no_id_of_a_campaign_of_now(api: Api, client: Client) -> None:
    await forget_spring(api, client)
    await api.log.publish([Outgoing(api.topics.cursor, b"default/spring", None)])
    assert (await client.post(PATH, json=SPRING)).headers.get("Idempotent-Replayed") == "true"
