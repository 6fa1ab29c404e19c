"""Why something was not sent, why it waits, why it was parked: closed lists, part of the public contract.

Rows store a reason as its position in `REASONS`: append only, never reorder.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Shown in the API, in `notification.state` and in metrics."""

    NONE = ""
    # suppressed
    NO_CHANNEL = "no_channel"
    NO_ADDRESS = "no_address"
    OPTED_OUT = "opted_out"
    SUPPRESSED_ADDRESS = "suppressed_address"
    ERASED = "erased"
    DEAD_DEVICE = "dead_device"
    CAPPED = "capped"
    SPEND_CAP = "spend_cap"
    DUPLICATE_OF = "duplicate_of"
    DUPLICATE_RECIPIENT = "duplicate_recipient"
    IN_DIGEST = "in_digest"
    # held
    QUIET_HOURS = "quiet_hours"
    CAMPAIGN_PAUSED = "campaign_paused"
    LOOKALIKE = "lookalike"
    SCHEDULED = "scheduled"
    DIGEST = "digest"
    # waiting for a retry
    PROVIDER_ERROR = "provider_error"
    PROVIDER_THROTTLED = "provider_throttled"
    PROVIDER_DOWN = "provider_down"
    PROVIDER_CONFIG = "provider_config"
    UNKNOWN_OUTCOME = "unknown_outcome"
    RATE_LIMITED = "rate_limited"
    LEASED_ELSEWHERE = "leased_elsewhere"
    # failed
    TRIES_USED_UP = "tries_used_up"
    REFUSED_BY_PROVIDER = "refused_by_provider"
    BLOCKED_BY_PROVIDER = "blocked_by_provider"
    ADDRESS_REFUSED = "address_refused"
    TEMPLATE_ERROR = "template_error"
    UNKNOWN_TEMPLATE = "unknown_template"
    TOO_OLD = "too_old"
    CRASHES_WORKER = "crashes_worker"
    NO_KEY = "no_key"
    BAD_REQUEST = "bad_request"
    # ends by the sender's own wish
    CANCELLED_BY_CALLER = "cancelled_by_caller"
    CAMPAIGN_CANCELLED = "campaign_cancelled"
    EXPIRED = "expired"
    INTERNAL_ERROR = "internal_error"
    # suppressed: no provider is configured for the channel
    NO_PROVIDER = "no_provider"
    # failed: its page is gone from the log, or cannot be read
    AUDIENCE_LOST = "audience_lost"
    # held: scheduled at a local time, by the tenant's time zone since the user's own is not known
    UNKNOWN_ZONE = "unknown_zone"
    # suppressed: another channel was tried in its place
    FELL_BACK = "fell_back"
    # failed: its provider was away for so long that another channel was tried
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    # cancelled: an operator dropped it from hold
    DROPPED_BY_OPERATOR = "dropped_by_operator"
    # failed: with the values of its campaign it is larger than a record of the log may be
    TOO_LARGE = "too_large"


REASONS: tuple[Reason, ...] = tuple(Reason)
"""Position = the code in a row. Append only."""
UNREACHED = frozenset({Reason.NO_ADDRESS, Reason.DEAD_DEVICE, Reason.NO_PROVIDER, Reason.FELL_BACK})
"""Suppressed for these a channel only says that another one has to do: what became of that one says more."""


class ParkReason(StrEnum):
    """Error class of a dead letter (`tid-error-class`)."""

    UNDECODABLE = "undecodable"
    UNKNOWN_SCHEMA = "unknown_schema"
    NO_KEY = "no_key"
    BAD_REQUEST = "bad_request"
    UNKNOWN_TEMPLATE = "unknown_template"
    TEMPLATE_ERROR = "template_error"
    TOO_LARGE = "too_large"
    TOO_OLD = "too_old"
    TRIES_USED_UP = "tries_used_up"
    REFUSED = "refused"
    CRASHES_WORKER = "crashes_worker"
    EXPIRED_LOG = "expired_log"
    INTERNAL_ERROR = "internal_error"
