"""The wording of explanations: for every reason, state, claim and provider what support may say about it.

One place, so that words change without touching what is found out. Never a body, an address or a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from schemas.backstage import ClaimState, ProviderState
from schemas.messages import CampaignStatus, EventKind
from schemas.reasons import Reason


class Words(NamedTuple):
    """short: within a list of events. why: a sentence. do: what the person at the desk can do; "" = nothing to do."""

    short: str
    why: str
    do: str = ""


_WRITE_TO_TEAM = "Tell the team that sends it."
_OPERATOR = "Tell the people on call."

REASONS: Mapping[Reason, Words] = {
    Reason.NONE: Words("", ""),
    Reason.NO_CHANNEL: Words(
        "no way to reach the person",
        "None of the channels that were asked for can reach this person.",
        "Add an address or a device to the profile; then the team can send it again.",
    ),
    Reason.NO_ADDRESS: Words(
        "no address",
        "The person has no address for this channel.",
        "Add it to the profile; then the team can send it again.",
    ),
    Reason.OPTED_OUT: Words(
        "opted out",
        "The person does not want messages of this kind on this channel.",
        "Only the person can change that, in their preferences.",
    ),
    Reason.SUPPRESSED_ADDRESS: Words(
        "address is suppressed",
        "The address is on the suppression list: a message bounced, or somebody complained or unsubscribed.",
        "If the address is right and the person wants mail again, remove it from the suppressions.",
    ),
    Reason.ERASED: Words("person was erased", "The person asked to be erased: nothing is sent to them any more."),
    Reason.DEAD_DEVICE: Words(
        "device is gone",
        "The app was removed from this device, or the device was unregistered.",
        "Ask the person to open the app again: it registers the device anew.",
    ),
    Reason.CAPPED: Words(
        "daily limit reached",
        "The person had got as many such messages that day as they may get.",
        "Nothing needs to be done; the team decides about the limit.",
    ),
    Reason.SPEND_CAP: Words(
        "budget used up",
        "The day's budget of money for this channel was used up.",
        "The budget can be raised; then `tidings holds` lets go what is held, and what was not sent can be sent again.",
    ),
    Reason.DUPLICATE_OF: Words(
        "repeat of another request", "The same message was asked for twice; only the first request was sent."
    ),
    Reason.DUPLICATE_RECIPIENT: Words(
        "listed twice in the campaign", "The person is in this campaign twice; they get it once."
    ),
    Reason.IN_DIGEST: Words("goes in a digest", "It was gathered with others into one message, a digest."),
    Reason.QUIET_HOURS: Words(
        "quiet hours", "It is night where the person lives: it waits until the quiet hours are over."
    ),
    Reason.CAMPAIGN_PAUSED: Words(
        "campaign is paused",
        "Its campaign was paused by an operator.",
        "It goes on when the campaign is resumed: `tidings campaigns resume`.",
    ),
    Reason.LOOKALIKE: Words(
        "looks like one sent just before",
        "It looks like another message that this person got within the last ten minutes, so it was stopped to be safe.",
        "Look whether it is a mistake: it can be let go or dropped with `tidings holds`; else it expires.",
    ),
    Reason.SCHEDULED: Words("scheduled", "It was asked for at a later time."),
    Reason.DIGEST: Words("gathered for a digest", "It waits to be gathered with others into one message, a digest."),
    Reason.PROVIDER_ERROR: Words(
        "the provider had an error", "The provider had an error of its own; that usually passes by itself."
    ),
    Reason.PROVIDER_THROTTLED: Words("the provider asks to slow down", "The provider asked us to slow down."),
    Reason.PROVIDER_DOWN: Words(
        "the provider is down", "So many calls to the provider failed that none are made for a while."
    ),
    Reason.PROVIDER_CONFIG: Words(
        "the provider refuses our account",
        "The provider refuses our credentials or our account, so everything for it is kept.",
        f"{_OPERATOR} The credentials or the account must be put right; then it goes on by itself.",
    ),
    Reason.UNKNOWN_OUTCOME: Words(
        "no answer from the provider",
        "A call was made and no answer came, so nobody knows whether the provider took it.",
    ),
    Reason.RATE_LIMITED: Words(
        "no room at the provider's rate", "As many calls go to the provider now as it allows; it waits for its turn."
    ),
    Reason.LEASED_ELSEWHERE: Words(
        "another sender has it in hand", "Another sender has it in hand, or had when it died."
    ),
    Reason.TRIES_USED_UP: Words(
        "all tries failed",
        "It was tried as often as it may be, and every try failed.",
        f"{_OPERATOR} When the provider is well again it can be redriven from the dead letters.",
    ),
    Reason.REFUSED_BY_PROVIDER: Words(
        "the provider refused it",
        "The provider refused this message for good.",
        f"{_WRITE_TO_TEAM} The provider's own words are above.",
    ),
    Reason.BLOCKED_BY_PROVIDER: Words(
        "the provider blocked it",
        "The provider blocked this message, as spam or by its rules.",
        f"{_WRITE_TO_TEAM} The text or the sender must change.",
    ),
    Reason.ADDRESS_REFUSED: Words(
        "the address was refused",
        "The provider says that there is no such address, or that it takes no messages now.",
        "Ask the person for the right one.",
    ),
    Reason.TEMPLATE_ERROR: Words(
        "the template failed",
        "The text could not be made from its template and the values it was given.",
        f"{_WRITE_TO_TEAM} A value is missing, or the template has a mistake.",
    ),
    Reason.UNKNOWN_TEMPLATE: Words("no such template", "There is no template of this name any more.", _WRITE_TO_TEAM),
    Reason.TOO_OLD: Words(
        "too old to be sent safely",
        "It lay so long after its release that nobody could say any more whether it had gone already.",
        "The team can send it again as a new message.",
    ),
    Reason.CRASHES_WORKER: Words(
        "it makes senders crash", "Three senders died with it in hand, so it is not tried any more.", _OPERATOR
    ),
    Reason.NO_KEY: Words(
        "event without event_id",
        "It was published without an event_id, so a repeat could not be told from it.",
        _WRITE_TO_TEAM,
    ),
    Reason.BAD_REQUEST: Words("request is not valid", "What was asked for is not valid.", _WRITE_TO_TEAM),
    Reason.CANCELLED_BY_CALLER: Words("cancelled by the caller", "The team that asked for it cancelled it."),
    Reason.DROPPED_BY_OPERATOR: Words(
        "dropped by an operator", "It was held back, and an operator decided to drop it."
    ),
    Reason.CAMPAIGN_CANCELLED: Words("campaign was cancelled", "Its campaign was cancelled."),
    Reason.EXPIRED: Words("expired", "Its time had passed before it could be sent.", "The team can send it again."),
    Reason.INTERNAL_ERROR: Words("fault of ours", "A fault in our own software stopped it.", _OPERATOR),
    Reason.NO_PROVIDER: Words(
        "no provider for the channel", "No provider is set up for this channel.", "An operator can set one up."
    ),
    Reason.AUDIENCE_LOST: Words(
        "its page was lost", "The list of recipients could no longer be read when it was due.", _OPERATOR
    ),
    Reason.TOO_LARGE: Words(
        "values too long",
        "The values of the campaign and those of this person are together longer than one message may be.",
        f"{_WRITE_TO_TEAM} The values must be shorter.",
    ),
    Reason.UNKNOWN_ZONE: Words(
        "scheduled, time zone not known",
        "It was asked for at a local time. The person's own time zone is not known, so the company's is used.",
        "Put the time zone into the profile.",
    ),
    Reason.PROVIDER_UNAVAILABLE: Words(
        "the provider was away for too long",
        "The provider was away for longer than the template waits before it turns to the next channel.",
    ),
    Reason.FELL_BACK: Words(
        "went on another channel", "The message turned to another channel, so the rest of this one was given up."
    ),
}
"""Every reason of the closed list."""

STATES: Mapping[str, str] = {
    "accepted": "It was accepted and is on its way to a sender; nothing was sent yet.",
    EventKind.SCHEDULED: "It was not sent yet: it waits for its time.",
    EventKind.QUEUED: "It was not sent yet: it is in line for a sender.",
    EventKind.HELD: "It was not sent yet: it is held back.",
    EventKind.RETRYING: "It was not sent yet: it is going to be tried again.",
    EventKind.SENT: "It was sent: the provider accepted it and did not say yet whether it arrived.",
    EventKind.UNCONFIRMED: "Nobody knows whether it was sent: a call was made and its answer never came.",
    EventKind.DELIVERED: "It was delivered: the provider reports that it arrived.",
    EventKind.UNDELIVERED: "It was sent, but the provider reports that it did not arrive.",
    EventKind.BOUNCED: "It was sent, but it bounced: the address does not take it.",
    EventKind.COMPLAINED: "It arrived, and the person complained about it as spam.",
    EventKind.SUPPRESSED: "It was not sent, on purpose.",
    EventKind.EXPIRED: "It was not sent: it expired first.",
    EventKind.CANCELLED: "It was not sent: it was cancelled.",
    EventKind.FAILED: "It was not sent: it failed for good.",
}
"""In short, by the state shown."""

INSTEAD: Mapping[Reason, str] = {
    Reason.IN_DIGEST: "It was not sent by itself: it went out together with others, as one message.",
    Reason.FELL_BACK: "It was not sent here: another channel was used in its place.",
    Reason.DUPLICATE_OF: "It was not sent again: the same message had been asked for before.",
    Reason.DUPLICATE_RECIPIENT: "It was not sent again: the person is in this campaign twice.",
}
"""In short, where the reason says more than the state, and more kindly."""

WHAT_TO_DO: Mapping[str, str] = {
    EventKind.UNCONFIRMED: "Ask the person whether it came before anything is sent again.",
    EventKind.UNDELIVERED: "Check the address or the device with the person; then the team can send it again.",
    EventKind.BOUNCED: "Ask the person for the right address. The old one is on the suppression list.",
    EventKind.COMPLAINED: "Do not send it again: the address is on the suppression list.",
    EventKind.CANCELLED: "Nothing needs to be done: whoever cancelled it wanted that. It can be sent as a new message.",
}
"""By the state shown, where the reason does not say more."""

REPORTS: Mapping[str, str] = {
    EventKind.DELIVERED: "the provider reports: delivered",
    EventKind.UNDELIVERED: "the provider reports: not delivered",
    EventKind.BOUNCED: "the provider reports: bounced",
    EventKind.COMPLAINED: "the person complained",
}
ENDS: Mapping[str, str] = {
    EventKind.SUPPRESSED: "not sent on purpose",
    EventKind.EXPIRED: "expired",
    EventKind.CANCELLED: "cancelled",
    EventKind.FAILED: "failed for good",
}

IN_HAND: Mapping[ClaimState, str] = {
    ClaimState.SENDING: "A sender has it in hand at this moment (call {call}), until {until} at the latest.",
    ClaimState.LAPSED: (
        "The sender that had it in hand for call {call} died or hung; its time ran out at {until}. "
        "The next one takes over, and cannot know whether that call was made."
    ),
}
CLAIM_AHEAD = "The senders' own record says already: {what}. The status follows within seconds."
AHEAD: Mapping[ClaimState, str] = {ClaimState.SENT: "it was sent", ClaimState.ENDED: "it has ended"}

PROVIDERS: Mapping[ProviderState, str] = {
    ProviderState.WELL: "",
    ProviderState.OPEN: "No calls go to the provider {provider} now, since too many failed. It is tested {again}.",
    ProviderState.TESTED: "The provider {provider} failed and is being tested with a few calls right now.",
    ProviderState.REFUSES_US: (
        "Everything for the provider {provider} is kept back, since it refuses our credentials or account. "
        "A person must put that right; it is tested {again}."
    ),
}
AGAIN, AT_ONCE = "again in {left}", "again at any moment"

CAMPAIGNS: Mapping[CampaignStatus, str] = {
    CampaignStatus.SCHEDULED: "The campaign has not started yet.",
    CampaignStatus.RUNNING: "The campaign is running.",
    CampaignStatus.PAUSED: "The campaign is paused: nothing of it is sent until somebody resumes it.",
    CampaignStatus.CANCELLED: "The campaign was cancelled.",
    CampaignStatus.PROCESSED: "The campaign is finished.",
    CampaignStatus.PARTIALLY_PROCESSED: "The campaign is finished; some of its messages failed.",
    CampaignStatus.EXPIRED: "The campaign expired before all of it was sent.",
}

POSSIBLE_DUPLICATE = (
    "{count} of its calls may have reached the provider without our hearing of it, or was made twice. If it was called "
    "again, the person may have got it more than once."
)
NOT_READ_YET = "It is in the log and was not read from there yet; that takes well below a second when all is well."
PAGE_NOT_RELEASED = "Its page of the campaign was not let go yet: a campaign goes out at the pace of its providers."
WAITS_IN_CAMPAIGN = "It waits for its turn in its campaign; nothing was sent yet."
RATHER_NOT_TWICE = "The template would rather lose a message than send it twice, so the call was not repeated."
IN_INBOX = "It lies in the inbox of the app since {at}."
IN_INBOX_SHORT = "It was put into the person's inbox in the app."
NO_WORD_SHORT = "It was sent: the provider accepted it, and no report came in time of whether it arrived."
LOG_AWAY = "Nothing new is sent while the log (Kafka) does not answer; everything waits and goes on by itself."
REDIS_AWAY = "Nothing is sent while Redis cannot be used; everything waits and goes on by itself."
REDIS_AWAY_WAITS = (
    "This template is sent all the same while Redis cannot be used, but nobody read this person in the last minutes "
    "and the request brings no address, so it waits."
)
REDIS_AWAY_SENDS = "This template is sent all the same while Redis cannot be used, at a lower rate."
