"""The cases in the order in which they are run, and the figures that are to be reached (design, section 13)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from benchmarks.bench import Bench, Outcome
from benchmarks.cases import accept, campaign, cap, email, fan_out, kill, nothing_outside, sender, status, trips


@dataclass(frozen=True, slots=True)
class Case:
    """Something that is run as a whole. minutes: of one run on two cores, about. peers_minutes: of its references."""

    name: str
    title: str
    run: Callable[[Bench], Coroutine[Any, Any, Outcome]]
    minutes: float
    peers_minutes: float = 0.0


CASES = (
    Case("sender", "bulk sends through the whole sender", sender.http, 3.2, 1.5),
    Case("tls", "the same over TLS", sender.tls, 2.0),
    Case("nothing", "the same with a provider that costs nothing", nothing_outside.run, 1.0),
    Case("parts", "where the sender's CPU time goes", sender.parts, 1.0),
    Case("trips", "a round trip to Redis", trips.run, 0.2),
    Case("email", "mail by SMTP", email.run, 1.0, 0.5),
    Case("fan_out", "pages to deliveries", fan_out.run, 1.0),
    Case("campaign", "a campaign through the whole road", campaign.run, 2.5),
    Case("status", "status events to rows and public state", status.run, 1.5),
    Case("accept", "requests accepted", accept.run, 1.0),
    Case("cap", "beside a long campaign at the provider's cap", cap.run, 2.5, 1.5),
    Case("kill", "kill -9 of a worker at half of a campaign", kill.run, 1.5, 2.0),
)
"""`campaign` tells `status` how large status batches are."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that is to be reached. value: its name in the case's outcome. references: (value, whose it is)."""

    case: str
    value: str
    what: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    references: tuple[tuple[str, str], ...] = field(default=())
    digits: int = 0

    @property
    def goal(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:,.{self.digits}f} {self.unit}".rstrip()
        if self.at_most is not None:
            return f"<= {self.at_most:,.{self.digits}f} {self.unit}".rstrip()
        return "-"

    def is_met(self, value: float) -> bool | None:
        """None: it has no goal of its own."""
        if self.at_least is not None:
            return value >= self.at_least
        return value <= self.at_most if self.at_most is not None else None


BARE = ("bare_per_s", "bare loop on the same client")
OWN, OWN_TOOK = ("own_cpu_us", "the client's own pipeline"), ("own_took_us", "the client's own pipeline")
BULLMQ = ("bullmq_per_s", "BullMQ")
OTHERS = (BARE, BULLMQ, ("peer_python_per_s", "bare Python loop, 25-line client"), ("peer_go_per_s", "bare Go loop"))
FIGURES = (
    Figure(
        "sender", "per_s", "bulk sends, every guard on, HTTP provider answering in 10 ms", "/s", 10_000, None, OTHERS
    ),
    Figure("sender", "of_bare", "the same, of the bare loop", "x", sender.GOAL_OF_BARE, digits=2),
    Figure("sender", "pair_per_s", "the same by two workers, one for each core", "/s", 4_000),
    Figure("sender", "of_bullmq", "the same, of a BullMQ worker with none of these guards", "x", 1.0, digits=2),
    Figure("sender", "guarded_per_s", "the bare loop, asking Redis and the log for all that the guards do", "/s"),
    Figure("sender", "guarded_of_bare", "that loop, of the bare loop", "x", digits=2),
    Figure(
        "sender",
        "room_us",
        "CPU a delivery that this machine leaves the worker at that goal",
        "us",
        references=(("bare_cpu_us", "the bare loop's"), ("guarded_cpu_us", "the same with the guards' asking")),
        digits=1,
    ),
    Figure("tls", "per_s", "the same over TLS", "/s", None, None, (BARE,)),
    Figure("tls", "of_bare", "the same over TLS, of the bare loop over TLS", "x", sender.GOAL_OF_BARE, digits=2),
    Figure("nothing", "per_core_s", "the same, provider that costs nothing, a core of `work`", "/s", 12_000),
    Figure("parts", "worker_us", "CPU of the worker a delivery", "us"),
    Figure("trips", "cpu_us", "a trip to Redis with one command, CPU", "us", references=(OWN,), digits=1),
    Figure("trips", "took_us", "the same, how long it takes", "us", references=(OWN_TOOK,), digits=1),
    Figure("email", "per_s", "mail by SMTP", "/s", 2_600, None, (BULLMQ,)),
    Figure("fan_out", "per_core_s", "fan-out, a core", "deliveries/s", 40_000),
    Figure("status", "per_core_s", "status rows and public state, a core", "transitions/s", 30_000),
    Figure("campaign", "per_s", "campaign through the whole road, reports included", "deliveries/s", 4_000),
    Figure("campaign", "end_to_end_per_s", "the same from the request to the last outcome", "deliveries/s"),
    Figure("campaign", "cpu_us", "CPU a delivery of everything together", "us"),
    Figure("campaign", "largest_mb", "the largest Tidings process", "MB", None, 300),
    Figure("campaign", "claim_bytes", "Redis memory of a claim", "bytes", None, 130),
    Figure("campaign", "wrong_counts", "recipients without exactly one outcome", "", None, 0),
    Figure("accept", "p99_ms", "202 at 500 requests/s, p99", "ms", None, 50, digits=1),
    Figure("accept", "p50_ms", "the same, p50", "ms", digits=1),
    Figure("accept", "not_accepted", "requests without a 202", "", None, 0),
    Figure("accept", "accepted_and_not_in_the_log", "202 and not in the log", "", None, 0),
    Figure(
        "cap",
        "code_p50_ms",
        "login code, request to provider, p50",
        "ms",
        None,
        40,
        (("bullmq_code_p50_ms", "BullMQ"),),
        1,
    ),
    Figure("cap", "code_p99_ms", "the same, p99", "ms", None, 200, (("bullmq_code_p99_ms", "BullMQ"),), 1),
    Figure("cap", "codes_missing", "login codes that did not arrive", "", None, 0),
    Figure("cap", "bulk_busy", "pace: bulk's part of the rate that is used", "x", 0.97, digits=3),
    Figure("cap", "over_rate", "calls above rate + burst in any second", "", None, 0),
    Figure("cap", "small_s", "campaign of 200 behind the large one, all with the provider", "s", None, 10, digits=1),
    Figure("kill", "lost", "kill -9 at half: lost", "", None, 0, (("bullmq_lost", "BullMQ"),)),
    Figure("kill", "repeats", "repeats", "", None, None, (("bullmq_repeats", "BullMQ"),)),
    Figure("kill", "repeats_beyond", "repeats beyond the calls in flight", "", None, 0),
    Figure("kill", "not_owned_up_to", "repeats not counted as possible duplicates", "", None, 0),
    Figure(
        "kill",
        "whole_after_s",
        "everybody has it, after the kill (lease 30 s)",
        "s",
        None,
        35,
        (("bullmq_whole_after_s", "BullMQ"),),
        1,
    ),
)


_TOGETHER = (
    "carry the deliveries of one read through the story of a send together, each step for all of them, instead of a "
    "task for each: what that can bring at most is what the loop shows that asks for the guards and decides nothing. "
    "Compiling brings 3 % ([decision 15](decisions/0015-not-compiled.md)); a second worker on the second core brings "
    "more than either"
)
_LESS = (
    "less to ask, and nothing else: the loop that asks for the guards and decides nothing stays at a third of the bare "
    "loop, and one script in place of six commands saves a few per cent "
    "([decision 16](decisions/0016-what-the-guards-ask.md))"
)
NEXT_STEPS = {
    ("sender", "per_s"): _TOGETHER,
    ("sender", "of_bare"): _LESS,
    ("sender", "of_bullmq"): _TOGETHER,
    ("tls", "of_bare"): _LESS,
    ("nothing", "per_core_s"): _TOGETHER,
    ("fan_out", "per_core_s"): (
        "encode the deliveries of a page in one pass, as all but user, address and values are the same; more processes "
        "share the partitions until then"
    ),
    ("campaign", "per_s"): (
        "the sender's steps above, as it waits for the cores with status, Kafka and Redis; apart from them it is not "
        "the limit"
    ),
    ("campaign", "claim_bytes"): (
        "keep the claims of one user's notifications in one hash: the key, its entry in two tables and the "
        "allocator's rounding are most of it, the packed claim is 28 bytes"
    ),
    ("accept", "p99_ms"): (
        "write several requests of a turn with one produce, and give the API and Kafka cores of their own: p50 is well "
        "within, the tail waits for a core"
    ),
}
"""What would be done next where a goal is not reached: (case, value) -> in words."""


def of(case: str) -> list[Figure]:
    return [figure for figure in FIGURES if figure.case == case]
