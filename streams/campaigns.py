"""What dispatch knows of every campaign, and what it says of them in public: life, counts, completion.

Filled from five topics by a view that every dispatch process keeps, leader or not: so a new leader starts warm.
Totals are sums of absolute vectors; completion, once published, is latched and only counts change later.
A campaign that ended is told of for a month; what is left of it then goes with its tombstones (`streams/burials.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from schemas import codec, forgetting, keys, messages, standstill
from schemas.counts import Totals, totals
from schemas.errors import Poison
from schemas.given_orders import GivenOrders
from schemas.messages import CampaignCursor, CampaignRequested, CampaignState, CampaignStatus
from schemas.policies import Policies
from schemas.records import Placed, Record
from schemas.standstill import WaitsFor
from schemas.topics import Topics

log = logging.getLogger(__name__)

DAY_MS = 86_400_000
FINISHED_KEPT_MS = 31 * DAY_MS
"""Late reports change counts for no longer than this."""


@dataclass(slots=True)
class Campaign:
    """One campaign as the log tells it. request is None while only a stray part of it has been seen, and once it is
    told of no more.

    has_provider: whether it could go out, when that was last asked. held: recipients that wait in hold as parts of
    pages, changed last at held_moved_ms; held_deliveries: planned ones that wait there (`streams/holds.py`).
    progress_ms: partition -> when its counts were told. requested_at: where its newest request lies, None
    when none was read. heard_ms: when the newest record about it was written.
    """

    key: str
    request: CampaignRequested | None = None
    cursor: CampaignCursor | None = None
    orders: GivenOrders = field(default_factory=GivenOrders)
    has_provider: bool = True
    held: int = 0
    held_moved_ms: int = 0
    held_deliveries: int = 0
    progress: dict[int, messages.CampaignProgress] = field(default_factory=dict)
    progress_ms: dict[int, int] = field(default_factory=dict)
    state: CampaignState | None = None
    requested_at: Placed | None = None
    heard_ms: int = 0

    @property
    def is_finished(self) -> bool:
        return self.state is not None and self.state.finished_at is not None

    @property
    def is_paused(self) -> bool:
        return self.orders.is_paused

    @property
    def is_cancelled(self) -> bool:
        return self.orders.is_cancelled

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of it but its id."""
        return not (self.request or self.state or self.cursor or self.progress or self.orders)

    @property
    def pace_per_s(self) -> int:
        """The pace last ordered, or that of the request; 0 = no limit of its own."""
        if self.orders.pace_per_s is not None:
            return self.orders.pace_per_s
        return self.request.pace_per_s if self.request is not None else 0

    @property
    def weight(self) -> int:
        """Its share beside other campaigns of its tenant, as last ordered or requested; 1 at least."""
        if self.orders.weight is not None:
            return max(1, self.orders.weight)
        return max(1, self.request.weight) if self.request is not None else 1

    @property
    def next_page(self) -> int:
        return self.cursor.next_page if self.cursor is not None else 0

    @property
    def released(self) -> int:
        """Recipients whose pages were let go or ended."""
        return self.cursor.released if self.cursor is not None else 0

    @property
    def missing(self) -> tuple[int, ...]:
        """Pages that the log does not hold, whose recipients are not ended yet (`streams/cursors.py`)."""
        return self.cursor.missing if self.cursor is not None else ()

    def counts(self) -> Totals:
        return totals(self.progress.values())

    def lose_counts(self, partition: str, at_ms: int) -> None:
        """A tombstone was written then for the counts of this partition."""
        number = int(partition) if partition.isdecimal() else -1
        if number in self.progress and forgetting.is_old(self.progress_ms[number], at_ms):
            del self.progress[number], self.progress_ms[number]


def is_stopped(campaign: Campaign, now_ms: int) -> bool:
    """Whether nothing of it is to be sent any more: whoever still comes to a sender ends there."""
    return campaign.is_cancelled or (campaign.request is not None and now_ms >= campaign.request.expires_at_ms)


def stop_status(campaign: Campaign, request: CampaignRequested, now_ms: int) -> CampaignStatus | None:
    """CANCELLED or EXPIRED when nothing may go out any more; expiry counts only while pages are left, or held."""
    if campaign.is_cancelled:
        return CampaignStatus.CANCELLED
    if campaign.state is not None and campaign.state.status is CampaignStatus.EXPIRED:
        return CampaignStatus.EXPIRED
    if (campaign.next_page < request.pages or campaign.held) and now_ms >= request.expires_at_ms:
        return CampaignStatus.EXPIRED
    return None


def status(campaign: Campaign, request: CampaignRequested, counts: Totals, now_ms: int) -> CampaignStatus:
    """What the campaign is now. One that was latched stays what it was."""
    if campaign.state is not None and campaign.state.finished_at is not None:
        return campaign.state.status
    stopped = stop_status(campaign, request, now_ms)
    if stopped is not None:
        return stopped
    if counts.finished >= request.recipients:
        clean = not counts.outcomes.get("failed") and not counts.outcomes.get("unconfirmed")
        return CampaignStatus.PROCESSED if clean else CampaignStatus.PARTIALLY_PROCESSED
    if campaign.is_paused:
        return CampaignStatus.PAUSED
    if campaign.next_page == 0 and now_ms < request.send_at_ms:
        return CampaignStatus.SCHEDULED
    return CampaignStatus.RUNNING


def state(campaign: Campaign, request: CampaignRequested, epoch: int, now_ms: int) -> CampaignState:
    """The public state of the campaign, as this leader sees it now. Complete only when every recipient is."""
    counts, before = campaign.counts(), campaign.state
    finished_at = before.finished_at if before is not None else None
    if finished_at is None and counts.finished >= request.recipients:
        finished_at = now_ms
    now_is = status(campaign, request, counts, now_ms)
    # A leader may die between a page and its cursor: who is planned or has ended was let go all the same.
    released = max(campaign.released, counts.planned, counts.finished)
    progress_at = _progress_at(campaign, released, counts.finished, now_is, now_ms)
    return CampaignState(
        tenant=request.tenant,
        campaign_id=request.campaign_id,
        template=request.template,
        status=now_is,
        expected=request.recipients,
        released=released,
        finished=counts.finished,
        sent=counts.sent,
        delivered=counts.delivered,
        outcomes=counts.outcomes,
        reasons=counts.reasons,
        possible_duplicates=counts.possible_duplicates,
        epoch=epoch,
        version=before.version + 1 if before is not None else 1,
        accepted_at=request.accepted_at_ms,
        finished_at=finished_at,
        at=now_ms,
        progress_at=progress_at,
        waits_for=None if finished_at else _waits_for(campaign, request, counts, now_is, now_ms - progress_at),
    )


def _progress_at(campaign: Campaign, released: int, finished: int, now_is: CampaignStatus, now_ms: int) -> int:
    """When it last moved. A start, a resume or a cancel is a move, and so is whatever comes out of hold: what follows
    has its time again.
    """
    before = campaign.state
    if before is None or before.progress_at is None:
        return now_ms
    moved = (before.released, before.finished, before.status) != (released, finished, now_is)
    return now_ms if moved else max(before.progress_at, campaign.held_moved_ms)


def _waits_for(
    campaign: Campaign, request: CampaignRequested, counts: Totals, now_is: CampaignStatus, still_ms: int
) -> WaitsFor | None:
    match now_is:
        case CampaignStatus.PAUSED:
            return WaitsFor.RESUME
        case CampaignStatus.SCHEDULED:
            return WaitsFor.START
    if still_ms < standstill.WAITS_AFTER_MS:
        return None
    if now_is is CampaignStatus.RUNNING and not campaign.has_provider:
        return WaitsFor.PROVIDER
    if campaign.released - campaign.held > max(counts.planned, counts.finished):
        return WaitsFor.FAN_OUT
    unfinished = campaign.released - counts.finished
    if unfinished and campaign.held + campaign.held_deliveries >= unfinished:
        return WaitsFor.HOLD
    return WaitsFor.SENDERS if unfinished else WaitsFor.ROOM


def differs(one: CampaignState, other: CampaignState) -> bool:
    """Whether they tell something different, apart from who said it when."""
    return replace(one, epoch=0, version=0, at=0) != replace(other, epoch=0, version=0, at=0)


class Campaigns:
    """All campaigns, kept up to date record by record. topics: those whose records it takes."""

    def __init__(self, topics: Topics, policies: Policies) -> None:
        self._topics = topics
        self._readers: dict[str, Callable[[Record], Campaign]] = {
            topics.campaign_requests: self._request,
            topics.campaign_control: self._control,
            topics.progress: self._progress,
            topics.cursor: self._cursor,
            topics.campaign_state: self._state,
        }
        self._policies = policies
        self._all: dict[str, Campaign] = {}
        self._unfinished: dict[str, Campaign] = {}
        self.topics = tuple(self._readers)
        self._touched: set[str] = set()
        self._overwritten: set[str] = set()

    def on_record(self, record: Record) -> None:
        """Takes one record of one of `topics`; what cannot be read is logged and left out."""
        if record.value is None:
            self._bury(record)
            return
        try:
            campaign = self._readers[record.topic](record)
        except Poison as error:
            place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.warning("campaign.record_unreadable", extra={**place, "error": error.text})
            return
        campaign.heard_ms = max(campaign.heard_ms, record.timestamp_ms)
        self._touched.add(campaign.key)
        self._sort(campaign)

    def unfinished(self) -> Iterator[tuple[Campaign, CampaignRequested]]:
        """Campaigns that still need their leader, oldest request first."""
        for campaign in list(self._unfinished.values()):
            if campaign.request is not None:
                yield campaign, campaign.request

    def find(self, key: str) -> Campaign | None:
        """The campaign of this key; None when nothing was heard of it."""
        return self._all.get(key)

    def news(self) -> tuple[list[tuple[Campaign, CampaignRequested]], set[str]]:
        """Unfinished campaigns and others that changed since the last call; keys of those whose cursor or state
        a leader of a lower epoch wrote over a newer one.
        """
        touched, overwritten = self._touched, self._overwritten
        self._touched, self._overwritten = set(), set()
        found = {key: self._all[key] for key in touched if key in self._all} | self._unfinished
        return [(one, one.request) for one in found.values() if one.request is not None], overwritten

    def tell_again(self, campaigns: Iterable[Campaign], overwritten: set[str]) -> None:
        """What `news` gave could not be written."""
        self._touched |= {campaign.key for campaign in campaigns}
        self._overwritten |= overwritten

    def moved(self, campaign: Campaign, cursor: CampaignCursor) -> None:
        """This cursor is in the log. Of a leader that was deposed meanwhile it changes nothing, as when it is read."""
        self._take_cursor(campaign, cursor)

    def told(self, campaign: Campaign, state: CampaignState) -> None:
        """This state is in the log, likewise."""
        self._take_state(campaign, state)
        self._sort(campaign)

    def forget_old(self, now_ms: int) -> None:
        """Campaigns that finished long ago are told of no more."""
        for campaign in self._all.values():
            finished_at = campaign.state.finished_at if campaign.state is not None else None
            if finished_at is not None and now_ms - finished_at > FINISHED_KEPT_MS:
                campaign.request = None

    def quiet(self, now_ms: int) -> list[Campaign]:
        """Of which nothing was heard for so long that what is left of them may go."""
        strays = (campaign for campaign in self._all.values() if campaign.request is None)
        return [campaign for campaign in strays if now_ms - campaign.heard_ms >= forgetting.QUIET_MS]

    def _sort(self, campaign: Campaign) -> None:
        if campaign.request is None or campaign.is_finished:
            self._unfinished.pop(campaign.key, None)
        else:
            self._unfinished[campaign.key] = campaign

    def _of(self, tenant: str, campaign_id: str) -> Campaign:
        key = keys.campaign_key(tenant, campaign_id)
        return self._all.setdefault(key, Campaign(key))

    def _bury(self, record: Record) -> None:
        """Takes a tombstone (`schemas/forgetting.py`). The last is that of the cursor."""
        tenant, campaign_id, part = keys.campaign_part(record.key or b"")
        campaign = self._all.get(keys.campaign_key(tenant, campaign_id))
        if campaign is None:
            return
        at_ms, is_last = record.timestamp_ms, record.topic == self._topics.cursor
        is_over = forgetting.is_old(campaign.heard_ms, at_ms)
        if is_last:
            self._lose_cursor(campaign, at_ms)
        elif record.topic == self._topics.campaign_state:
            self._lose_state(campaign, at_ms)
        elif record.topic == self._topics.progress:
            campaign.lose_counts(part, at_ms)
        elif record.topic == self._topics.campaign_control:
            campaign.orders.lose(part, at_ms)
        if is_over:  # a leader may have died halfway: without these parts it would be told of wrongly
            campaign.request = None
        if campaign.is_empty or (is_last and is_over):
            del self._all[campaign.key]
        self._sort(campaign)

    def _lose_cursor(self, campaign: Campaign, at_ms: int) -> None:
        if campaign.cursor is None or forgetting.is_old(campaign.cursor.at_ms, at_ms):
            campaign.cursor = None
        else:
            self._write_again(campaign)

    def _lose_state(self, campaign: Campaign, at_ms: int) -> None:
        if campaign.state is None or forgetting.is_old(campaign.state.at, at_ms):
            campaign.state = None
        else:
            self._write_again(campaign)

    def _write_again(self, campaign: Campaign) -> None:
        """A deposed leader's tombstone lies over what is known of it."""
        self._overwritten.add(campaign.key)
        self._touched.add(campaign.key)

    def _request(self, record: Record) -> Campaign:
        request = codec.decode(record.value, CampaignRequested)
        campaign = self._of(request.tenant, request.campaign_id)
        if not campaign.is_empty and forgetting.is_old(campaign.heard_ms, record.timestamp_ms):
            # Its id was free again; the tombstones may be read later, as topics are read side by side.
            campaign = self._all[campaign.key] = Campaign(campaign.key)
        campaign.requested_at = Placed(record.partition, record.offset)
        if campaign.request is None:  # the first request of an id wins
            campaign.request = request
            if request.template not in self._policies:
                name = {"campaign": campaign.key, "template": request.template}
                log.error("campaign.template_missing", extra=name)
        return campaign

    def _control(self, record: Record) -> Campaign:
        control = codec.decode(record.value, messages.CampaignControl)
        campaign = self._of(control.tenant, control.campaign_id)
        campaign.orders.take(control)
        return campaign

    def _progress(self, record: Record) -> Campaign:
        progress = codec.decode(record.value, messages.CampaignProgress)
        campaign = self._of(progress.tenant, progress.campaign_id)
        known = campaign.progress.get(progress.partition)
        if known is None or progress.version >= known.version:
            campaign.progress[progress.partition] = progress
            campaign.progress_ms[progress.partition] = record.timestamp_ms
        return campaign

    def _cursor(self, record: Record) -> Campaign:
        cursor = codec.decode(record.value, CampaignCursor)
        campaign = self._of(cursor.tenant, cursor.campaign_id)
        self._take_cursor(campaign, cursor)
        return campaign

    def _take_cursor(self, campaign: Campaign, cursor: CampaignCursor) -> None:
        known = campaign.cursor
        if known is None or _place(cursor) >= _place(known):
            campaign.cursor = cursor
        elif cursor.epoch < known.epoch:
            self._overwritten.add(campaign.key)

    def _state(self, record: Record) -> Campaign:
        found = codec.decode(record.value, CampaignState)
        campaign = self._of(found.tenant, found.campaign_id)
        self._take_state(campaign, found)
        return campaign

    def _take_state(self, campaign: Campaign, found: CampaignState) -> None:
        known = campaign.state
        if known is None or (found.epoch, found.version) >= (known.epoch, known.version):
            campaign.state = _latched(known, found)
        elif found.epoch < known.epoch:
            self._overwritten.add(campaign.key)


def _place(cursor: CampaignCursor) -> tuple[int, int, int]:
    return cursor.epoch, cursor.next_page, cursor.next_slot


def _latched(known: CampaignState | None, found: CampaignState) -> CampaignState:
    """A new leader may have spoken before it had seen the end: the first completion stays."""
    if known is None or known.finished_at is None or found.finished_at is not None:
        return found
    return replace(found, status=known.status, finished_at=known.finished_at)
