"""What travels: one frozen dataclass per Avro schema in `schemas/avro`.

Times are wall-clock milliseconds UTC; 0 means "not set" in internal messages, None in public ones.
Params travel as JSON text: nobody between the door and the renderer needs to look inside.
"""

from __future__ import annotations

from enum import StrEnum

from schemas.quick import dataclass


class Channel(StrEnum):
    PUSH = "push"
    EMAIL = "email"
    SMS = "sms"
    INAPP = "inapp"


class Priority(StrEnum):
    """Which lane: transactional never waits behind bulk."""

    TRANSACTIONAL = "transactional"
    BULK = "bulk"


@dataclass(frozen=True, slots=True)
class Device:
    """One push device. id is the caller's; the token is what the provider addresses."""

    id: str
    token: str
    platform: str
    app: str = ""
    environment: str = "production"
    registered_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Contact:
    """`to` of a request: addresses for somebody without a stored profile, or overriding it. Empty: absent."""

    email: str = ""
    phone: str = ""
    devices: tuple[Device, ...] = ()
    locale: str = ""
    time_zone: str = ""


@dataclass(frozen=True, slots=True)
class NotificationRequested:
    """An accepted single request. event_id is the Idempotency-Key (or the publisher's own event id).

    channels empty: those of the template. priority: "" or "bulk". send_at_local: "HH:MM" in the
    user's zone, send_on: "YYYY-MM-DD" or "". A redrive or move keeps `origin_row`/`origin_slot`. digest_of: how many
    messages go out as this one (`streams/digests.py`); 0 = it is a message of its own.
    """

    tenant: str
    event_id: str
    user_id: str
    template: str
    params: str = "{}"
    channels: tuple[Channel, ...] = ()
    priority: str = ""
    to: Contact | None = None
    send_at_ms: int = 0
    send_at_local: str = ""
    send_on: str = ""
    expires_at_ms: int = 0
    force: bool = False
    accepted_at_ms: int = 0
    origin_row: str = ""
    origin_slot: int = 0
    digest_of: int = 0


@dataclass(frozen=True, slots=True)
class NotificationCancelled:
    """On `notification.control`: the intent must not be sent any more."""

    tenant: str
    notification_id: str
    intent: str
    user_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Recipient:
    """One line of an audience."""

    user_id: str
    params: str = "{}"
    to: Contact | None = None


@dataclass(frozen=True, slots=True)
class AudiencePage:
    """Up to 250 recipients of one upload; page counts from 0; a recipient's slot is its position."""

    tenant: str
    campaign_id: str
    upload_id: str
    page: int
    recipients: tuple[Recipient, ...]


@dataclass(frozen=True, slots=True)
class CampaignRequested:
    """Written after its last page. The first request of an id wins; content_hash tells two apart.

    send_at_ms: its pages are let go from then on; 0 = at once. send_at_local, send_on: as in NotificationRequested.
    """

    tenant: str
    campaign_id: str
    template: str
    upload_id: str
    partition: int
    first_offset: int
    last_offset: int
    pages: int
    recipients: int
    content_hash: str
    params: str = "{}"
    channels: tuple[Channel, ...] = ()
    priority: str = ""
    send_at_ms: int = 0
    send_at_local: str = ""
    send_on: str = ""
    expires_at_ms: int = 0
    pace_per_s: int = 0
    weight: int = 1
    accepted_at_ms: int = 0


class CampaignOrder(StrEnum):
    """What an operator last wanted of a campaign. Cancel has a key of its own and is never undone; so have the
    pace and the weight, which therefore neither undo a pause nor are undone by one.
    """

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    PACE = "pace"
    WEIGHT = "weight"


@dataclass(frozen=True, slots=True)
class CampaignControl:
    """One order, under the key of its kind (`keys.control_key`); of each kind the newest counts.

    pace_per_s counts in a PACE only (0: no limit of its own), weight in a WEIGHT only.
    """

    tenant: str
    campaign_id: str
    order: CampaignOrder
    pace_per_s: int
    at_ms: int
    weight: int = 0


@dataclass(frozen=True, slots=True)
class ReleasedPage:
    """A page that dispatch let go (`campaign.pages`). slots empty: all of them; else only these are due.

    source_offset: where the page lies in `campaign.audience`; it orders plans of one slot. send_at_local ("HH:MM"),
    send_on: when each recipient is due in their own zone ("" = at once), as in the campaign's request.
    """

    tenant: str
    campaign_id: str
    page: int
    template: str
    params: str
    channels: tuple[Channel, ...]
    priority: Priority
    accepted_at_ms: int
    released_at_ms: int
    expires_at_ms: int
    source_offset: int
    hop: int
    slots: tuple[int, ...]
    recipients: tuple[Recipient, ...]
    send_at_local: str = ""
    send_on: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where a delivery goes by what was known at at_ms: for templates that are sent while Redis is away.

    is_unchecked: nobody could look at opt-outs and suppressions then, and the address is the request's own.
    """

    at_ms: int
    address: str
    locale: str = ""
    time_zone: str = ""
    is_unchecked: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """One notification on one channel (for push: one device), as it lies in a lane, tier, hold or DLQ.

    row and slot are its address (keys.Address without the tenant); index is its place in the slot's plan.
    device is the device id ("" unless push). call is the number this record would make (from 1);
    tries counts calls that count against the limit; generation rises only by a redrive; hop rises with every
    lane, tier or hold it is put into. siblings are the plan's other deliveries ("channel" or "channel/device").
    fallback: channels still to try when this one cannot be reached.
    doubted_at, doubted_at_ms: the provider of its newest call of which nobody knows what came, and when that was; the
    time alone where the message may have arrived on the channel that this one is the fallback of.
    digest_of: how many messages go out as this one; 0 = it is a message of its own. snapshot: only where the template
    may be sent while Redis is away.
    """

    tenant: str
    user_id: str
    intent: str
    row: str
    slot: int
    index: int
    channel: Channel
    device: str
    priority: Priority
    template: str
    campaign_id: str
    params: str
    campaign_params: str
    to: Contact | None
    accepted_at_ms: int
    released_at_ms: int
    expires_at_ms: int
    hop: int = 0
    generation: int = 0
    call: int = 1
    tries: int = 0
    siblings: tuple[str, ...] = ()
    fallback: tuple[Channel, ...] = ()
    doubted_at: str = ""
    doubted_at_ms: int = 0
    digest_of: int = 0
    snapshot: Snapshot | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class HeldPage:
    """A part of a campaign's page that is due later: a reference, never the recipients.

    source_offset: where the page lies in `campaign.audience` (partition: CampaignRequested.partition). slots: those
    that wait; empty: all of the page.
    """

    campaign_id: str
    page: int
    source_offset: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """What waits on `hold`, keyed by its hold id: a part of a page, or one delivery; exactly one of the two is set.

    due_ms 0: only an event lets it go (the resume of its campaign, an operator), or its expiry. reason is one of
    reasons.Reason. hop: the hop of what comes out, one more than that of what was put in. A tombstone says that this
    hop was let go.
    """

    tenant: str
    due_ms: int
    reason: str
    hop: int
    held_at_ms: int
    page: HeldPage | None = None
    delivery: Delivery | None = None


class HoldOrder(StrEnum):
    """What an operator may want of a delivery in hold."""

    RELEASE = "release"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class HoldOrdered:
    """On `hold.control`, keyed by hold id: what an operator wants of one delivery in hold."""

    tenant: str
    hold_id: str
    order: HoldOrder
    at_ms: int


class EventKind(StrEnum):
    """What happened to a slot or one of its deliveries. `schemas/states.py` merges them in any order."""

    PLANNED = "planned"
    # waits
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    HELD = "held"
    RETRYING = "retrying"
    # calls
    SENT = "sent"
    UNCONFIRMED = "unconfirmed"
    DELIVERED = "delivered"
    UNDELIVERED = "undelivered"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    # ends without a call
    SUPPRESSED = "suppressed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"
    # a call that may have been a repeat
    POSSIBLE_DUPLICATE = "possible_duplicate"


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """One thing that happened, at one slot of a row.

    delivery: "channel" or "channel/devicehash" (keys.delivery_suffix); "" speaks of the whole slot.
    PLANNED carries plan (the delivery suffixes in index order) with source_offset, user_id, template, accepted_at_ms.
    waits carry (generation, hop) and until_ms; calls carry (generation, call), provider and provider_id;
    ends carry generation. next: the delivery that a fallback adds in the same merge ("" = none).
    index: when delivery is "" but known by number (a callback), its place in the plan; else -1.
    reason is one of reasons.Reason; detail is for people, <= 200 characters.
    """

    slot: int
    kind: EventKind
    at_ms: int
    delivery: str = ""
    index: int = -1
    generation: int = 0
    hop: int = 0
    call: int = 0
    reason: str = ""
    detail: str = ""
    until_ms: int = 0
    provider: str = ""
    provider_id: str = ""
    next: str = ""
    plan: tuple[str, ...] = ()
    source_offset: int = -1
    user_id: str = ""
    template: str = ""
    accepted_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class StatusBatch:
    """Up to 200 events of one row: one record of `delivery.status`, keyed by tenant/row."""

    tenant: str
    row: str
    events: tuple[StatusEvent, ...]


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """Public contract on `notification.state`, keyed by delivery id. Readers keep the highest version.

    version: (offset on delivery.status << 8) + position in the batch, comparable within one key.
    """

    delivery_id: str
    notification_id: str
    tenant: str
    campaign_id: str | None
    user_id: str
    template: str
    channel: str
    device: str | None
    state: str
    reason: str | None
    detail: str | None
    provider: str | None
    provider_id: str | None
    calls: int
    possible_duplicates: int
    accepted_at: int
    sent_at: int | None
    waits_until: int | None
    at: int
    version: int


@dataclass(frozen=True, slots=True)
class CampaignProgress:
    """Absolute counts of one campaign over one status partition; readers keep the highest version and sum.

    outcomes: recipients by their one outcome (finished slots only); reasons: why not sent;
    planned: slots that have a plan; sent, delivered: recipients with at least one such delivery.
    """

    tenant: str
    campaign_id: str
    partition: int
    version: int
    planned: int
    finished: int
    sent: int
    delivered: int
    outcomes: dict[str, int]
    reasons: dict[str, int]
    possible_duplicates: int


@dataclass(frozen=True, slots=True)
class CampaignCursor:
    """How far dispatch has released a campaign: next_page and the offset it lies at, or, of a page released in pieces,
    the first position of it that is left (next_slot). Ordered by epoch. at_ms: nothing from there on was let go before.

    missing: pages passed over because the log does not hold them, whose recipients are not ended yet: the first
    page of each gap and the one after its last, in turn.
    """

    tenant: str
    campaign_id: str
    epoch: int
    next_page: int
    next_offset: int
    released: int
    at_ms: int
    missing: tuple[int, ...] = ()
    next_slot: int = 0


class CampaignStatus(StrEnum):
    SCHEDULED = "scheduled"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    PROCESSED = "processed"
    PARTIALLY_PROCESSED = "partially_processed"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class CampaignState:
    """Public contract on `campaign.state`, keyed by campaign. `finished_at` is latched once set.

    A tombstone comes 40 days after the last that was heard of the campaign: what follows is of the next one of that id,
    whatever its version.

    progress_at: when it last moved: let go, finished, started or resumed. waits_for: a
    `standstill.WaitsFor`; None while it moves.
    """

    tenant: str
    campaign_id: str
    template: str
    status: CampaignStatus
    expected: int
    released: int
    finished: int
    sent: int
    delivered: int
    outcomes: dict[str, int]
    reasons: dict[str, int]
    possible_duplicates: int
    epoch: int
    version: int
    accepted_at: int
    finished_at: int | None
    at: int
    progress_at: int | None = None
    waits_for: str | None = None


@dataclass(frozen=True, slots=True)
class RawCallback:
    """A provider's webhook as it came, written before anything is read from it."""

    tenant: str
    provider: str
    body: bytes
    headers: dict[str, str]
    received_at_ms: int


class FacetKind(StrEnum):
    USER = "user"
    DEVICE = "device"
    OPT_OUT = "opt_out"
    ERASED = "erased"


@dataclass(frozen=True, slots=True)
class RecipientFacet:
    """One facet of a user on `recipients`; a tombstone removes it. A profile write can never undo an opt-out.

    Which fields count depends on `facet`. channel/kind "*" means all.
    """

    tenant: str
    user_id: str
    facet: FacetKind
    at_ms: int
    email: str = ""
    phone: str = ""
    locale: str = ""
    time_zone: str = ""
    device: Device | None = None
    channel: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Suppression:
    """An address that must not be written to again; the record key is channel:address hash."""

    tenant: str
    channel: str
    address_hash: str
    cause: str
    provider: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """One in-app message, keyed user:notification. A re-put of the same key changes nothing."""

    tenant: str
    user_id: str
    notification_id: str
    template: str
    title: str
    text: str
    data: str
    at_ms: int
    expires_at_ms: int
    read_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """Written by a new dispatch leader; its offset is the leader's epoch."""

    instance: str
    at_ms: int


Message = (
    NotificationRequested
    | NotificationCancelled
    | AudiencePage
    | CampaignRequested
    | CampaignControl
    | ReleasedPage
    | Delivery
    | Held
    | HoldOrdered
    | StatusBatch
    | DeliveryState
    | CampaignProgress
    | CampaignCursor
    | CampaignState
    | RawCallback
    | RecipientFacet
    | Suppression
    | InboxMessage
    | LeaderRecord
)
"""Everything that has a schema of its own (Contact, Device, HeldPage, Recipient, Snapshot, StatusEvent are parts)."""
