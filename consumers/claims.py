"""The claim: the right to send one delivery now, and what became of it. One call per delivery, whoever tries.

One packed entry per delivery key in Redis, kept 24 h from its last write. `lane_worker` looks at it in round
trip A, takes it in round trip B, settles it after the call. Where A saw no claim, B writes the first one with a
plain SET NX, which costs Redis a third of a script; whatever is in the way is left to the scripts beside this file.
A claim that is neither settled nor given back lapses with its lease: its call's outcome is then unknown.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from schemas import keys, timeline
from schemas.errors import Poison
from schemas.messages import Delivery
from schemas.reasons import ParkReason
from schemas.trips import Trip, script_beside

TAKE = script_beside(__file__, "claim_entry.lua", "claim_take.lua")
SETTLE = script_beside(__file__, "claim_settle.lua")
MARK = script_beside(__file__, "claim_mark.lua")

TOKEN_BYTES = 4
"""The last one is the number of the provider that the holder calls, in the order of the settings. Given back, a claim
has that of the call before, where this is in doubt.
"""
MAX_TAKEOVERS = 3
"""The third takeover makes no call any more: the delivery kills its workers."""
NUMBERS_MAX = (255, 65_535 - MAX_TAKEOVERS)
"""Highest generation and record call that fit a claim."""

_HEADER = struct.Struct(">BBHHI4s")  # the lease end's six bytes are read as two numbers
_DOUBT = struct.Struct(">HIB")
_SINGLE = struct.Struct(">cIHHI")
_RECIPIENT = struct.Struct(">cIH")


class Answer(Enum):
    """What a claim says to a record, in the order in which the questions are asked."""

    DUPLICATE_OF = b"D"
    STALE = b"O"
    SENDING = b"L"
    FINISHED_SAME = b"F"
    RECHECK = b"R"
    TAKEOVER = b"T"
    CLAIMED = b"C"


class VerdictClass(IntEnum):
    """What a settled call means for later records of the same delivery."""

    NONE = 0
    SENT = 1
    WAITING = 2
    ENDED = 3


class Settled(Enum):
    """LATE: somebody has claimed it since, who decides how it goes on. MISSING: Redis had lost the claim, or was set
    back to an older one that nobody holds. It is there again, settled, unless another address got it meanwhile.
    """

    STORED = b"S"
    LATE = b"L"
    MISSING = b"M"


class Entry(NamedTuple):
    """A claim as it lies in Redis. record_call: the number in the record that claimed; call: that of its call."""

    verdict: VerdictClass
    published: bool
    given_back: bool
    generation: int
    record_call: int
    takeovers: int
    lease_end_ms: int
    token: bytes
    address: bytes
    detail: bytes

    @property
    def call(self) -> int:
        return self.record_call + self.takeovers

    @property
    def seat(self) -> int:
        """The number of the provider that its call goes to."""
        return self.token[-1]

    def is_open(self) -> bool:
        """Neither settled nor given back: a call is under way, or its worker died."""
        return self.verdict is VerdictClass.NONE and not self.given_back


class Bid(NamedTuple):
    """One record's wish to send its delivery: the keys it touches and the numbers it competes with."""

    claim_key: bytes
    profile_key: str
    cancel_key: str
    timeline_key: str
    address: bytes
    generation: int
    record_call: int
    forced: bool
    delivery_key: str


class ServerTime(NamedTuple):
    """What the clock that leases run by showed, and the steady time just before it was asked."""

    read_ms: int
    asked_s: float

    def latest_ms(self, steady_s: float) -> int:
        """What it shows at this steady time at the latest: a lease must not end before its holder thinks so."""
        return self.read_ms + int((steady_s - self.asked_s) * 1000) + 1


class Taken(NamedTuple):
    """The answer to a bid. entry is the bidder's own after TAKEOVER and CLAIMED, else the one in the way."""

    answer: Answer
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class ClaimOptions:
    """lease_s: how long one holder may take for its call. keep_s: how long a claim outlives its last write."""

    lease_s: float = 30.0
    keep_s: int = 86_400


class Claims(Protocol):
    """The port. Each ask_* adds exactly one command to a trip; the read_* of the same name reads its reply."""

    def ask_now(self, trip: Trip) -> None: ...

    def read_now(self, reply: Any) -> int:
        """The clock that leases run by, ms."""
        ...

    def ask_seen(self, trip: Trip, bid: Bid) -> None: ...

    def read_seen(self, reply: Any) -> tuple[Entry | None, bool]:
        """The claim as it is, and whether the intent was cancelled."""
        ...

    def ask_first(self, trip: Trip, bid: Bid, server_ms: int, seat: int = 0) -> Entry:
        """Asks for a claim that nobody had yet; gives the entry that is then ours. server_ms: now, as `read_now` says.
        seat: the number of the provider to be called.

        Whoever gets it must look after it, in the same trip, at the version and the cancel flag: what is answered
        before the claim must stop the call.
        """
        ...

    def read_first(self, reply: Any) -> Entry | None:
        """The entry in the way; None: the claim is ours."""
        ...

    def ask_version(self, trip: Trip, bid: Bid) -> None: ...

    def read_version(self, reply: Any) -> int:
        """The profile's version, as the profile store numbers it."""
        ...

    def ask_cancelled(self, trip: Trip, bid: Bid) -> None: ...

    def read_cancelled(self, reply: Any) -> bool: ...

    def ask_take(self, trip: Trip, bid: Bid, version_seen: int, cancelled_seen: bool, seat: int = 0) -> bytes:
        """Asks for any claim, if the profile and the cancel flag are still those that were seen. The token that it
        then has.
        """
        ...

    def read_take(self, reply: Any) -> Taken: ...

    def ask_end(self, trip: Trip, bid: Bid, verdict: VerdictClass, detail: bytes) -> None:
        """Asks for the claim of a delivery that ends without a call: taken and settled at once, so that nobody can
        die in between and leave a call in doubt that was never made. The profile and the cancel flag may have changed.
        """
        ...

    def read_end(self, reply: Any) -> Taken: ...

    def ask_settle(self, trip: Trip, bid: Bid, mine: Entry, verdict: VerdictClass, detail: bytes, line: bytes) -> None:
        """Stores a verdict. mine: the claim as it was taken. line: for the user's timeline, b"" for none."""
        ...

    def read_settle(self, reply: Any) -> Settled: ...

    def ask_published(self, trip: Trip, bid: Bid, token: bytes) -> None: ...

    def ask_give_back(self, trip: Trip, bid: Bid, token: bytes, taken_over: Entry | None = None) -> None:
        """No call was made. taken_over: the claim of a call in doubt before; its provider and the end of its lease are
        put back, or nobody would know any more where that call went, and when.
        """
        ...


def bid_for(delivery: Delivery) -> Bid:
    """The bid that this record makes. Raises Poison when its row or its numbers cannot be ours."""
    tenant, user_id = delivery.tenant, delivery.user_id
    if not (0 <= delivery.generation <= NUMBERS_MAX[0] and 1 <= delivery.call <= NUMBERS_MAX[1]):
        raise Poison(ParkReason.BAD_REQUEST, f"generation {delivery.generation}, call {delivery.call}: out of range")
    delivery_key = keys.delivery_key(delivery.intent, delivery.channel, delivery.device)
    return Bid(
        *keys.redis_send(tenant, user_id, delivery.intent, delivery_key),
        _packed_place(delivery.row, delivery.slot),
        delivery.generation,
        delivery.call,
        delivery.force,
        delivery_key,
    )


def judge(entry: Entry | None, bid: Bid, now_ms: int) -> Answer:
    """What this entry says to this bid, before anything else is known: `claim_take.lua` without the recheck."""
    if entry is None:
        return Answer.CLAIMED
    theirs, ours = (entry.generation, entry.record_call), (bid.generation, bid.record_call)
    if entry.address != bid.address:
        return Answer.DUPLICATE_OF
    if theirs > ours:
        return Answer.STALE
    if entry.is_open() and entry.lease_end_ms > now_ms:
        return Answer.SENDING
    is_redrive = bid.forced and bid.generation > entry.generation
    sent = entry.verdict is VerdictClass.SENT and not is_redrive
    if sent or (theirs == ours and entry.verdict is not VerdictClass.NONE):
        return Answer.FINISHED_SAME
    return Answer.TAKEOVER if theirs == ours and not entry.given_back else Answer.CLAIMED


class RedisClaims:
    """The claims in Redis. rng makes the tokens that tell one holder from the next."""

    def __init__(self, rng: random.Random, options: ClaimOptions) -> None:
        self._rng = rng
        self._lease_ms = int(options.lease_s * 1000)
        self._keep_s = options.keep_s

    def ask_now(self, trip: Trip) -> None:
        trip.execute_command("TIME")

    def read_now(self, reply: Any) -> int:
        return int(reply[0]) * 1000 + int(reply[1]) // 1000

    def ask_seen(self, trip: Trip, bid: Bid) -> None:
        trip.execute_command("MGET", bid.claim_key, bid.cancel_key)

    def read_seen(self, reply: Any) -> tuple[Entry | None, bool]:
        raw, cancelled = reply
        return None if raw is None else unpacked_entry(raw), cancelled is not None

    def ask_first(self, trip: Trip, bid: Bid, server_ms: int, seat: int = 0) -> Entry:
        token, lease_end_ms = self._token(seat), server_ms + self._lease_ms
        high, low = lease_end_ms >> 32, lease_end_ms & 0xFFFFFFFF
        raw = _HEADER.pack(0, bid.generation, bid.record_call, high, low, token) + bid.address
        trip.execute_command("SET", bid.claim_key, raw, "EX", self._keep_s, "NX", "GET")
        return Entry(
            _UNSETTLED, False, False, bid.generation, bid.record_call, 0, lease_end_ms, token, bid.address, b""
        )

    def read_first(self, reply: Any) -> Entry | None:
        return None if reply is None else unpacked_entry(reply)

    def ask_version(self, trip: Trip, bid: Bid) -> None:
        trip.execute_command("HGET", bid.profile_key, "v")

    def read_version(self, reply: Any) -> int:
        return int(reply or 0)

    def ask_cancelled(self, trip: Trip, bid: Bid) -> None:
        trip.execute_command("EXISTS", bid.cancel_key)

    def read_cancelled(self, reply: Any) -> bool:
        return bool(reply)

    def ask_take(self, trip: Trip, bid: Bid, version_seen: int, cancelled_seen: bool, seat: int = 0) -> bytes:
        token = self._token(seat)
        self._run_take(trip, bid, token, (version_seen, int(cancelled_seen)), _UNSETTLED, b"")
        return token

    def read_take(self, reply: Any) -> Taken:
        return Taken(Answer(reply[:1]), unpacked_entry(reply[1:]) if len(reply) > 1 else None)

    def ask_end(self, trip: Trip, bid: Bid, verdict: VerdictClass, detail: bytes) -> None:
        self._run_take(trip, bid, self._token(0), (0, 0), verdict, detail)

    def read_end(self, reply: Any) -> Taken:
        return self.read_take(reply)

    def _token(self, seat: int) -> bytes:
        return self._rng.randbytes(TOKEN_BYTES - 1) + bytes((seat,))

    def _run_take(
        self, trip: Trip, bid: Bid, token: bytes, seen: tuple[int, int], verdict: VerdictClass, detail: bytes
    ) -> None:
        touched = (bid.claim_key, bid.profile_key, bid.cancel_key)
        numbers = (bid.generation, bid.record_call, token, self._lease_ms, self._keep_s)
        trip.run(TAKE, touched, bid.address, *numbers, *seen, int(bid.forced), int(verdict), detail)

    def ask_settle(self, trip: Trip, bid: Bid, mine: Entry, verdict: VerdictClass, detail: bytes, line: bytes) -> None:
        high, low = mine.lease_end_ms >> 32, mine.lease_end_ms & 0xFFFFFFFF
        taken = _HEADER.pack(mine.takeovers << 4, mine.generation, mine.record_call, high, low, mine.token)
        stored = (taken + mine.address, int(verdict), detail, self._keep_s)
        history = (line, timeline.ENTRIES, timeline.KEPT_S)
        trip.run(SETTLE, (bid.claim_key, bid.timeline_key), *stored, *history)

    def read_settle(self, reply: Any) -> Settled:
        return Settled(reply)

    def ask_published(self, trip: Trip, bid: Bid, token: bytes) -> None:
        trip.run(MARK, (bid.claim_key,), token, "P", self._keep_s)

    def ask_give_back(self, trip: Trip, bid: Bid, token: bytes, taken_over: Entry | None = None) -> None:
        before = b""
        if taken_over is not None:
            end_ms = taken_over.lease_end_ms
            before = _DOUBT.pack(end_ms >> 32, end_ms & 0xFFFFFFFF, taken_over.seat)
        trip.run(MARK, (bid.claim_key,), token, "G", self._keep_s, before)


def unpacked_entry(raw: bytes) -> Entry:
    """The entry as `claim_entry.lua` packed it."""
    flags, generation, record_call, high, low, token = _HEADER.unpack_from(raw)
    end = _HEADER.size + (_SINGLE.size if raw[_HEADER.size] == _KIND_SINGLE else _RECIPIENT.size)
    return Entry(
        verdict=_VERDICTS[flags >> 2 & 3],
        published=bool(flags & 1),
        given_back=bool(flags & 2),
        generation=generation,
        record_call=record_call,
        takeovers=flags >> 4 & 3,
        lease_end_ms=high << 32 | low,
        token=token,
        address=raw[_HEADER.size : end],
        detail=raw[end:],
    )


_VERDICTS = tuple(VerdictClass)
_UNSETTLED = VerdictClass.NONE
_KIND_SINGLE = ord("n")


def packed_address(address: keys.Address) -> bytes:
    """The address in 7 or 13 bytes. A recipient's campaign is left out: the delivery key already names it."""
    return _packed_place(address.row, address.slot)


def _packed_place(row: str, slot: int) -> bytes:
    try:
        if keys.is_campaign_row(row):
            return _RECIPIENT.pack(b"c", _page(row), slot)
        epoch, partition, offset = keys.single_place(keys.Address(row, slot))
        return _SINGLE.pack(b"n", int(epoch, 16), partition, offset >> 32, offset & 0xFFFFFFFF)
    except (ValueError, struct.error) as error:
        raise Poison(ParkReason.BAD_REQUEST, f"no such row: {row} slot {slot}") from error


@lru_cache(1_000)
def _page(row: str) -> int:
    """The page of a campaign row: the same for hundreds of deliveries."""
    return keys.campaign_of_row(row)[1]


def unpacked_address(packed: bytes, campaign_id: str) -> keys.Address:
    """The address behind the packed one; campaign_id is the delivery's own."""
    if packed[:1] == b"c":
        _, page, slot = _RECIPIENT.unpack(packed)
        return keys.recipient_address(campaign_id, page, slot)
    _, epoch, partition, high, low = _SINGLE.unpack(packed)
    return keys.single_address(f"{epoch:08x}", partition, high << 32 | low)
