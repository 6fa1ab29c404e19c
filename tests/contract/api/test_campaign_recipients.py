"""Who failed and why, as a list that can be cut off and gone on with."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import ClientPayloadError
from aiohttp.test_utils import TestClient, TestServer

from producers.api import campaign_recipients
from producers.api.app import build_app
from schemas import codec, keys, messages
from schemas.errors import Transient
from schemas.messages import CampaignStatus
from schemas.records import Outgoing
from schemas.stores import DeliveryView, SlotView
from tests.acceptance import world
from tests.doubles.api import Api
from tests.doubles.stores import MemoryReads

Client = TestClient[Any, Any]
PATH = "/v1/campaigns"
NEWS: dict[str, Any] = {"campaign_id": "spring", "template": "news", "params": {"sale": "spring"}}
SIZE = 20_000
THREE = [{"user_id": "u1"}, {"user_id": 2}, {"user_id": "u3"}]


def view(user_id: str, state: str, reason: str = "") -> SlotView:
    delivery = DeliveryView("email", "", state, reason, "", "mail", 1, 0, 0, 0)
    return SlotView(state, reason, "", user_id, "news", 1, (delivery,))


async def test_recipients_are_listed_by_their_outcome(api: Api, client: Client) -> None:
    await client.post(PATH, json=NEWS | {"recipients": [{"user_id": number} for number in range(600)]})
    for page, (state, reason) in enumerate([("sent", ""), ("suppressed", "opted_out"), ("complained", "")]):
        address = keys.recipient_address("spring", page, 4)
        api.reads.put("default", address, view(f"u{page}", state, reason))
    answer = await client.get(f"{PATH}/spring/recipients?outcome=suppressed")
    assert answer.content_type == "application/x-ndjson"
    [line] = (await answer.text()).splitlines()
    told = json.loads(line)
    assert (told["user_id"], told["deliveries"][0]["reason"]) == ("u1", "opted_out")
    assert (await client.get(f"/v1/notifications/{told['notification_id']}")).status == 200
    delivered = await (await client.get(f"{PATH}/spring/recipients?outcome=delivered")).text()
    assert json.loads(delivered)["user_id"] == "u2"
    assert len((await (await client.get(f"{PATH}/spring/recipients")).text()).splitlines()) == 3
    assert (await client.get(f"{PATH}/spring/recipients?outcome=nice")).status == 422


async def test_recipients_of_a_recovering_row_say_try_again(api: Api, client: Client) -> None:
    await client.post(PATH, json=NEWS | {"recipients": THREE})
    api.reads.is_recovering = True
    assert (await client.get(f"{PATH}/spring/recipients")).status == 503


class CountedReads(MemoryReads):
    """Counts the rows read, and how many at once. fails_at: the owner of this page is recovering."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[str] = []
        self.fails_at = -1

    async def row(self, tenant: str, row: str) -> Sequence[SlotView | None]:
        self.rows.append(row)
        if keys.campaign_of_row(row)[1] == self.fails_at:
            raise Transient("recovering")
        return await super().row(tenant, row)


@pytest.fixture
async def large(api: Api, client: Client) -> CountedReads:
    """A campaign of 20,000, of whom every hundredth failed."""
    reads = CountedReads()
    lines = b"".join(b'{"user_id":%d}\n' % number for number in range(SIZE))
    accepted = await client.post(PATH, data=world.upload(NEWS, io.BytesIO(lines)))
    assert accepted.status == 202
    for number in range(SIZE):
        address = keys.recipient_address("spring", number // 250, number % 250)
        failed = number % 100 == 0
        reads.put("default", address, view(str(number), *(("failed", "dead_device") if failed else ("sent", ""))))
    object.__setattr__(api.parts, "reads", reads)
    return reads


async def listed(client: Client, query: str) -> list[dict[str, Any]]:
    answer = await client.get(f"{PATH}/spring/recipients?outcome=failed{query}")
    assert answer.status == 200, await answer.text()
    return [json.loads(line) for line in (await answer.text()).splitlines()]


async def test_the_list_of_a_long_campaign_reads_each_row_once_and_a_limit_reads_no_further(
    client: Client, large: CountedReads
) -> None:
    found = await listed(client, "")
    assert [one["user_id"] for one in found] == [str(number) for number in range(0, SIZE, 100)]
    assert len(large.rows) == len(set(large.rows)) == SIZE // 250
    large.rows.clear()
    assert len(await listed(client, "&limit=3")) == 3
    assert len(large.rows) == campaign_recipients.ROWS_AT_ONCE


async def test_pages_of_the_list_put_together_are_the_list(client: Client, large: CountedReads) -> None:
    whole, paged, after = await listed(client, ""), [], ""
    while some := await listed(client, f"&limit=7{after}"):
        paged += some
        after = f"&after={some[-1]['notification_id']}"
    assert paged == whole


async def test_a_list_that_breaks_off_is_no_whole_list_and_goes_on_behind_its_last_line(
    client: Client, large: CountedReads
) -> None:
    large.fails_at = 20
    answer = await client.get(f"{PATH}/spring/recipients?outcome=failed")
    assert answer.status == 200
    arrived = [await answer.content.readline() for _ in range(16 * 250 // 100)]
    with pytest.raises(ClientPayloadError):
        await answer.content.read()
    large.fails_at = -1
    rest = await listed(client, f"&after={json.loads(arrived[-1])['notification_id']}")
    assert [json.loads(line) for line in arrived] + rest == await listed(client, "")


async def test_the_owner_of_the_first_rows_recovering_is_an_answer_to_try_again(
    client: Client, large: CountedReads
) -> None:
    large.fails_at = 0
    answer = await client.get(f"{PATH}/spring/recipients?outcome=failed")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


@pytest.mark.parametrize("query", ["after=nonsense", "limit=0", "limit=x", "outcome=nice"])
async def test_a_wrong_query_is_refused_naming_the_part(client: Client, query: str) -> None:
    await client.post(PATH, json=NEWS | {"recipients": THREE})
    answer = await client.get(f"{PATH}/spring/recipients?{query}")
    assert (answer.status, (await answer.json())["field"]) == (422, query.partition("=")[0])


async def test_a_place_in_another_campaign_is_refused(api: Api, client: Client) -> None:
    await client.post(PATH, json=NEWS | {"recipients": THREE})
    other = api.ids.notification_id("default", keys.recipient_address("autumn", 0, 0))
    assert (await client.get(f"{PATH}/spring/recipients?after={other}")).status == 422


async def test_a_campaign_whose_pages_are_gone_has_no_list_rather_than_an_empty_one(api: Api) -> None:
    now_ms = api.clock.now_ms()
    state = messages.CampaignState(
        "default", "spring", "news", CampaignStatus.PARTIALLY_PROCESSED, 3, 3, 3, 2, 1, {"failed": 3}, {}, 0, 1, 9,
        now_ms, now_ms, now_ms,
    )  # fmt: skip
    await api.log.publish([Outgoing(api.topics.campaign_state, b"default/spring", codec.encode(state))])
    await api.parts.campaigns.open(api.log)
    async with TestClient(TestServer(build_app(api.parts))) as client:
        assert (await client.get(f"{PATH}/spring")).status == 200
        assert (await client.get(f"{PATH}/spring/recipients?outcome=failed")).status == 410
