"""What really reached people: the judge of every demo, test and benchmark.

A *call* is a request the provider read. A *send* is a call after which the person has the message: accepted,
whether or not the answer came back. Everything is counted per service (an HTTP path, or "smtp").
Keys and recipients are kept as 8-byte hashes, so a million of them fit into 200 MB.
Texts that begin with a mark are counted by its name as well: `marks.py`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from deploy.simulators.marks import Marks

MESSAGES_KEPT = 200
SECONDS_KEPT = 7200
_CALL = 1 << 20
"""A key's entry counts calls above, sends below this bit."""
_SENDS = _CALL - 1
_ONE = {_CALL: _CALL, _CALL + 1: _CALL + 1}
"""The entries of nearly all keys, called once: each is one object, not one a key."""


def short_hash(text: str) -> int:
    """Eight bytes of blake2b; `GET /ledger?keys=1` shows it in hex."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class Message:
    """A call in full: when it was read, its key, and what it said."""

    at_s: float
    key: str
    content: dict[str, Any]


class Service:
    """The book of one service, with its newest messages."""

    def __init__(self) -> None:
        self.calls = 0
        self.sends = 0
        self.repeats = 0
        self.in_flight = 0
        self.max_in_flight = 0
        self.answers: Counter[str] = Counter()
        self.messages: deque[Message] = deque(maxlen=MESSAGES_KEPT)
        self._keys: dict[int, int] = {}
        self._recipients: set[int] = set()
        self._keys_sent = 0
        self._rate: Counter[int] = Counter()
        self._last_second: deque[float] = deque()
        self._most_in_a_second = 0

    def begin(self, key: int, now_s: float) -> int:
        """A call was read; which call of its key it is, from 1."""
        self.calls += 1
        self.in_flight += 1
        if self.in_flight > self.max_in_flight:
            self.max_in_flight = self.in_flight
        self._count_second(now_s)
        entry = self._keys.get(key, 0) + _CALL
        self._keys[key] = _ONE.get(entry, entry)
        return entry // _CALL

    def sent(self, key: int, recipient: int) -> bool:
        """The person has it now, possibly once more; True when it is the first time."""
        entry = self._keys.get(key, 0)
        self._keys[key] = _ONE.get(entry + 1, entry + 1)
        self.sends += 1
        self._recipients.add(recipient)
        if entry & _SENDS:
            self.repeats += 1
            return False
        self._keys_sent += 1
        return True

    def end(self, answer: str) -> None:
        """The call is over: a status, "hung" or "dropped"."""
        self.in_flight -= 1
        self.answers[answer] += 1

    def of(self, key: int) -> dict[str, int]:
        entry = self._keys.get(key, 0)
        return {"calls": entry // _CALL, "sends": entry & _SENDS}

    def by_key(self) -> Iterator[tuple[int, int, int]]:
        """(hash, calls, sends) of every key; over a copy, since calls go on meanwhile."""
        for key, entry in list(self._keys.items()):
            yield key, entry // _CALL, entry & _SENDS

    def summary(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "sends": self.sends,
            "distinct_keys": self._keys_sent,
            "distinct_recipients": len(self._recipients),
            "repeats": self.repeats,
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "answers": dict(self.answers),
            "max_per_second": max(self._rate.values(), default=0),
            "most_in_a_second": self._most_in_a_second,
            "per_second": {str(second): count for second, count in sorted(self._rate.items())[-120:]},
        }

    def _count_second(self, now_s: float) -> None:
        """By the clock's seconds, and in the second that ends now, wherever that one began."""
        self._rate[int(now_s)] += 1
        if len(self._rate) > SECONDS_KEPT:
            del self._rate[min(self._rate)]
        recent = self._last_second
        recent.append(now_s)
        while recent[0] <= now_s - 1.0:
            recent.popleft()
        if len(recent) > self._most_in_a_second:
            self._most_in_a_second = len(recent)


class Ledger:
    """All services together, what became of callbacks, and how questions about messages were answered."""

    def __init__(self) -> None:
        self.services: dict[str, Service] = {}
        self.callbacks: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.marks = Marks()

    def service(self, name: str) -> Service:
        found = self.services.get(name)
        if found is None:
            found = self.services[name] = Service()
        return found

    def reset(self) -> None:
        """Forgets everything; calls still in flight end in a book nobody reads."""
        self.services.clear()
        self.callbacks.clear()
        self.asked.clear()
        self.marks.clear()

    def summary(self) -> dict[str, Any]:
        """Sums over all services, then each of them."""
        services = {name: service.summary() for name, service in self.services.items()}
        summed = ("calls", "sends", "distinct_keys", "repeats", "in_flight")
        totals = {word: sum(service[word] for service in services.values()) for word in summed}
        return {**totals, "callbacks": dict(self.callbacks), "asked": dict(self.asked), "services": services}
