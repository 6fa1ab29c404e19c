"""Every metric: its name, kind, labels and meaning. Names are a promise to dashboards and alerts.

`docs/metrics.md` is generated from this list. Labels are closed sets (channels, lanes, reasons, provider
names, topics), never ids: their number must not grow with traffic.
"""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase

REGISTRY = CollectorRegistry()
"""Holds the metrics of this module and those of the process (memory, CPU, files); `/metrics` serves it."""
ProcessCollector(registry=REGISTRY)

_FAST_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5, 5, 10, 30)
_LONG_S = (0.01, 0.02, 0.04, 0.08, 0.2, 0.5, 1, 2, 5, 15, 60, 300, 1800, 7200, 86400)


def _counter(name: str, meaning: str, *labels: str) -> Counter:
    return Counter(f"tidings_{name}", meaning, labels, registry=REGISTRY)


def _gauge(name: str, meaning: str, *labels: str) -> Gauge:
    return Gauge(f"tidings_{name}", meaning, labels, registry=REGISTRY)


def _histogram(name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(f"tidings_{name}", meaning, labels, buckets=buckets, registry=REGISTRY)


# In: API, callbacks
ACCEPTED = _counter("accepted", "Notifications accepted into the log", "tenant", "priority")
CAMPAIGNS_ACCEPTED = _counter("campaigns_accepted", "Campaigns accepted into the log", "tenant")
RECIPIENTS_ACCEPTED = _counter("recipients_accepted", "Recipients of accepted campaigns", "tenant")
REFUSED = _counter("refused", "Requests refused at the door, by HTTP status", "status")
REPLAYED = _counter("idempotent_replays", "Requests answered from a stored answer", "tenant")
CAMPAIGN_ORDERS = _counter("campaign_orders", "Orders to campaigns that were accepted", "tenant", "order")
IDEMPOTENCY_UNCHECKED = _counter("idempotency_unchecked", "Requests accepted while Redis was away", "tenant")
HTTP_SECONDS = _histogram("http_seconds", "Time to answer a request", _FAST_S, "route", "status")
CALLBACKS = _counter("callbacks", "Callbacks by what became of them at the door", "provider", "result")
CALLBACK_EVENTS = _counter("callback_events", "Reports read from callbacks", "provider", "kind")
ORPHANS = _counter("callback_orphans", "Reports that match no delivery of ours", "provider")

# Log
PUBLISHED = _counter("published", "Records acknowledged by the log", "topic")
PUBLISH_FAILURES = _counter("publish_failures", "Records that the log did not acknowledge in time", "topic")
PUBLISH_SECONDS = _histogram("publish_seconds", "From handing over a batch of records to its last ack", _FAST_S)

# Across: route, dispatch, fan-out
ROUTED = _counter("routed", "Single notifications that got their plan", "priority")
PLANNED = _counter("deliveries_planned", "Deliveries put into a lane by route or fan-out", "channel", "priority")
PUT_INTO_HOLD = _counter(
    "put_into_hold", "Recipients or deliveries put into hold by route, fan-out or a worker", "topic", "reason"
)
PAGES_RELEASED = _counter("pages_released", "Campaign pages let go by dispatch", "tenant")
RECIPIENTS_TOO_LARGE = _counter(
    "recipients_too_large", "Recipients that failed because their campaign's values and theirs fit no record", "tenant"
)
PAGES_FANNED_OUT = _counter("pages_fanned_out", "Campaign pages turned into deliveries")
PAGE_SECONDS = _histogram("page_seconds", "Time to fan out one page, until all its records are in the log", _FAST_S)
LANE_BACKLOG = _gauge("lane_backlog", "Deliveries that dispatch counts as waiting in a lane", "lane")
LANE_RATE = _gauge("lane_rate_per_s", "Rate at which dispatch fills a lane", "lane")
LEADER = _gauge("dispatch_leader", "1 in the process that leads dispatch")
CAMPAIGNS_RUNNING = _gauge("campaigns_running", "Campaigns with pages still to release")
CAMPAIGNS_COMPLETED = _counter("campaigns_completed", "Campaigns whose every recipient has an outcome", "status")
CAMPAIGNS_STALLED = _gauge(
    "campaigns_stalled", "Campaigns that should move and have not for 15 minutes, by what they wait for", "waits_for"
)

# Out: the send
CLAIMS = _counter("claims", "Claims by their answer", "lane", "answer")
SENT = _counter("sent", "Deliveries that a provider accepted", "channel", "priority", "provider")
OUTCOMES = _counter("outcomes", "Provider calls by outcome", "provider", "kind")
CALL_SECONDS = _histogram("call_seconds", "Time of a provider call", _FAST_S, "provider")
AGE_AT_SEND_SECONDS = _histogram(
    "age_at_send_seconds", "From acceptance to the provider's answer", _LONG_S, "channel", "priority"
)
DELIVERED = _counter("delivered", "Deliveries reported as delivered by the provider", "provider")
ENDED = _counter(
    "ended_without_call", "Deliveries that ended unsent, by state and reason", "channel", "state", "reason"
)
FALLBACKS = _counter("fallbacks", "Notifications that turned to another channel", "channel", "following", "reason")
RETRIES = _counter("retries", "Deliveries put into a tier, by reason", "lane", "tier", "reason")
OVER_BUDGET = _counter(
    "retries_over_budget", "Retries moved to a longer tier because the retry budget was used up", "provider"
)
TAKEOVERS = _counter("takeovers", "Claims taken over from a worker whose lease ran out", "lane")
POSSIBLE_DUPLICATES = _counter(
    "possible_duplicates",
    "Calls that may have repeated an earlier one; claim_lost: seen only as both were told as sent",
    "channel",
    "cause",
)
CALLS_WITHOUT_REDIS = _counter(
    "calls_without_redis", "Calls made while Redis was away, by what was known of opt-outs", "channel", "opt_outs"
)
LATE_SETTLES = _counter(
    "late_settles", "Verdicts whose claim had passed to another worker, or was lost by Redis", "lane"
)
CAP_WAITS = _counter(
    "cap_waits", "Deliveries put off because calls under way may use up the user's cap or leave it free", "lane"
)
LOOKALIKES = _counter(
    "lookalikes_held", "Deliveries held because another message of their template went to the same user", "template"
)
RENDER_FAILURES = _counter("render_failures", "Templates that failed for one delivery", "template")
DEAD_TOKENS_DOUBTED = _counter(
    "dead_tokens_doubted",
    "Push tokens called dead that were kept, since so many are that a setting is wrong",
    "provider",
)
BREAKER = _gauge("breaker_state", "0 closed, 1 half open, 2 open", "provider")
BREAKER_CHANGES = _counter("breaker_changes", "State changes of a breaker", "provider", "state")
THROTTLES = _counter(
    "throttles", "Calls that a provider refused as too many, by what was too much", "provider", "scope"
)
TOKENS = _counter("tokens_taken", "Tokens taken from a provider's shared bucket", "provider", "priority")
TOKENS_RETURNED = _counter("tokens_expired", "Tokens that were not used within their life", "provider", "priority")
THROTTLED = _counter("throttled_waits", "Deliveries deferred because no token was left", "provider", "priority")
SPEND_TODAY = _gauge(
    "spend_today", "Money that a tenant has spent on a channel today, by all workers", "tenant", "channel"
)
SPEND_USUAL = _gauge("spend_usual", "What it has spent by this time on an ordinary day", "tenant", "channel")
SPEND_BUDGET = _gauge("spend_budget", "What it may spend in a day", "tenant", "channel")
SPEND_WARNINGS = _counter(
    "spend_warnings",
    "Warnings: it spends faster than usual (ahead), most of its budget is spent (most), or all of it",
    "tenant",
    "channel",
    "worry",
)
CONTROL_CAMPAIGNS = _gauge("paused_or_cancelled_campaigns", "Campaigns that senders currently hold back", "order")
INBOX_PUT = _counter("inbox_put", "In-app messages put into an inbox")

# The engine under every confluent process
ENGINE_IN_FLIGHT = _gauge("engine_in_flight", "Records being handled", "group")
ENGINE_SPAN = _gauge(
    "engine_span", "Records between the committed offset and the newest one taken", "topic", "partition"
)
ENGINE_OLDEST_S = _gauge("engine_oldest_seconds", "Age of the oldest unfinished record", "topic", "partition")
ENGINE_HANDLED = _counter("engine_handled", "Records finished", "topic")
ENGINE_DEFERRED = _counter("engine_deferred", "Answers 'not now'", "topic")
ENGINE_WAITING = _gauge("engine_waiting", "Records put off and kept until they are due", "topic", "partition")
ENGINE_PARKED = _gauge(
    "engine_parked_recently", "Of the last 200 records, those that could not be handled; over 100 it stops", "group"
)
ENGINE_BACKOFFS = _counter("engine_backoffs", "Batches put off because the world was unwell", "group")
ENGINE_COMMITS = _counter("engine_commits", "Offset commits", "group", "result")
ENGINE_REBALANCES = _counter("engine_rebalances", "Assignments changed", "group", "change")
ENGINE_PAUSED = _gauge("engine_paused_partitions", "Partitions paused for back-pressure", "group")
ENGINE_STATUS_BATCHES = _counter("engine_status_batches", "Batches of status events written", "group")

# Waiting rooms
DEAD_LETTERS = _counter("dead_letters", "Records parked, by error class", "topic", "reason")
FORWARDED = _counter("forwarded", "Records handed from a tier back to their lane", "tier")
TIER_OVERDUE_S = _gauge("tier_overdue_seconds", "How long the most overdue record of a tier has been due", "tier")
HELD = _gauge("held", "Records that wait in hold, by reason; shown by the leader", "reason")
HELD_OVERDUE_S = _gauge(
    "held_overdue_seconds",
    "How long the most overdue record in hold has been due, by reason; shown by the leader",
    "reason",
)
HOLD_ORDERS = _counter("hold_orders", "Operators' orders about single deliveries in hold that were obeyed", "order")
HELD_LET_GO = _counter("held_let_go", "Records let go from hold, by reason", "reason")
DIGESTS = _counter("digests", "Digests made of messages that waited for each other", "channel")

# Status
STATUS_EVENTS = _counter("status_events", "Status events merged into rows", "kind")
STATUS_TRANSITIONS = _counter("status_transitions", "Merges that changed what is shown of a delivery", "state")
STATUS_ROWS = _counter("status_rows_written", "Status rows written")
STATUS_LATE = _counter("status_outside_plan", "Events of deliveries outside the slot's plan: kept, never counted")
STATUS_BATCH_SECONDS = _histogram("status_batch_seconds", "Time to merge and publish one batch", _FAST_S)
STATUS_MEMORY = _gauge(
    "status_rows_memory_bytes",
    "What the databases of status rows hold in memory: blocks read, and rows not in a file yet",
)
STATUS_READS = _counter("status_reads", "Reads of status rows by their answer", "result")

# Reconcile
ASKED = _counter("provider_asked", "Questions to a provider's status API, by its answer", "provider", "answer")
RECONCILED = _counter(
    "reconciled", "Deliveries without a word for `[reconcile] after`, by what became of them", "provider", "state"
)

DELIVERED_SHARE = _gauge(
    "delivered_within_10m_share",
    "Of the messages sent 10 to 20 minutes ago, the share delivered within 10 minutes; NaN below 200 messages",
    "provider",
    "channel",
)
DELIVERED_USUAL_SHARE = _gauge(
    "delivered_within_10m_usual_share", "The same share over the seven days before", "provider", "channel"
)
DELIVERED_SHARE_ALARM = _gauge(
    "delivered_within_10m_alarm", "1 since the share fell below 80 % of the usual one", "provider", "channel"
)

# Redis and readiness
REDIS_DOWN = _gauge("redis_down", "1 while Redis is away or not rebuilt from the log")
LOG_DOWN = _gauge("log_down", "1 while the log does not answer this process")
REDIS_FAILURES = _counter("redis_failures", "Round trips that failed", "store")
REDIS_REBUILDS = _counter("redis_rebuilds", "Rebuilds of Redis from the log", "kind")
FACETS_APPLIED = _counter("facets_applied", "Recipient facets and suppressions written to Redis", "result")
PROVISION_CHANGES = _counter("provision_changes", "Changes made to the broker by provision", "kind")

# Every process
TASKS = _gauge("tasks", "asyncio tasks of the process that are not done")


def _tasks() -> int:
    """None where no event loop runs."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


TASKS.set_function(_tasks)


def catalogue() -> tuple[MetricWrapperBase, ...]:
    """Every metric of this module, in the order of its pages."""
    return tuple(value for value in globals().values() if isinstance(value, MetricWrapperBase))
