"""The accepted record behind a notification's address: what was asked, for whom, and what makes it one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from producers.api.parts import ApiParts
from schemas import codec, keys, messages
from schemas.errors import Poison
from schemas.keys import Address
from schemas.messages import CampaignRequested, NotificationRequested, Recipient

PAGES_READ_MAX = 1_000
"""Pages of other uploads that may lie between a campaign's own before a look-up gives up."""


@dataclass(frozen=True, slots=True)
class Single:
    """A single's record, as it lies in its entry topic, but of the tenant whose topic that is."""

    asked: NotificationRequested
    written_at_ms: int

    @property
    def user_id(self) -> str:
        return self.asked.user_id

    @property
    def intent(self) -> str:
        return keys.single_intent(self.asked.tenant, self.asked.event_id)


@dataclass(frozen=True, slots=True)
class OfCampaign:
    """A recipient as its page has them, and the campaign's request."""

    campaign: CampaignRequested
    recipient: Recipient

    @property
    def user_id(self) -> str:
        return self.recipient.user_id

    @property
    def intent(self) -> str:
        return keys.recipient_intent(self.campaign.tenant, self.campaign.campaign_id, self.recipient.user_id)


async def at(parts: ApiParts, tenant: str, address: Address) -> Single | OfCampaign | None:
    """What was accepted at this address; None when the log no longer has it. Raises Transient."""
    try:
        if keys.is_campaign_row(address.row):
            return await _recipient_at(parts, tenant, address)
        return await _single_at(parts, tenant, address)
    except Poison:  # the log begins behind it, or holds what nobody can read
        return None


async def of_user(parts: ApiParts, asked: CampaignRequested, user_id: str) -> Address | None:
    """Where in a campaign's audience a user is, first; None when they are not in it, or it is not kept any more.

    Reads the whole audience in the worst case. Raises Transient.
    """
    written = user_id.encode()
    try:
        async for record in parts.log.read_range(
            parts.topics.audience, asked.partition, asked.first_offset, asked.last_offset
        ):
            if record.value is None or written not in record.value:  # nearly all: not worth taking apart
                continue
            page = codec.decode(record.value, messages.AudiencePage)
            if page.upload_id == asked.upload_id:
                for position, recipient in enumerate(page.recipients):
                    if recipient.user_id == user_id:
                        return keys.recipient_address(asked.campaign_id, page.page, position)
    except Poison:
        return None
    return None


async def _single_at(parts: ApiParts, tenant: str, address: Address) -> Single | None:
    epoch, partition, offset = keys.single_place(address)
    topic = parts.entries.topic(epoch)
    record = None if topic is None else await parts.log.read(topic, partition, offset)
    if record is None:
        return None
    asked = replace(codec.decode(record.value, NotificationRequested), tenant=tenant)  # publishers leave it empty
    return Single(asked, record.timestamp_ms)


async def _recipient_at(parts: ApiParts, tenant: str, address: Address) -> OfCampaign | None:
    """Pages lie in order, at or behind first offset + page: others' pages may lie between them."""
    encoded_id, number = keys.campaign_of_row(address.row)
    campaign = await parts.campaigns.find_now(tenant, keys.decoded(encoded_id))
    asked = None if campaign is None else campaign.requested
    if asked is None or number >= asked.pages:
        return None
    first = asked.first_offset + number
    last = min(asked.last_offset, first + PAGES_READ_MAX)
    async for record in parts.log.read_range(parts.topics.audience, asked.partition, first, last):
        page = codec.decode(record.value, messages.AudiencePage)
        if page.upload_id == asked.upload_id and page.page == number:
            return OfCampaign(asked, page.recipients[address.slot])
    return None
