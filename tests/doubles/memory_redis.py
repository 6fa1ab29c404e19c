"""Redis in memory, as far as the road uses it: strings, hashes, bits, and the scripts of pace and breakers.

Each script is written here a second time, in Python; `tests/contract/test_scripts.py` holds both against each other
on random histories, the real one in a real Redis. Its clock is the one it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from consumers import breaker, limits, throttles
from schemas import keys
from schemas.clock import Clock
from schemas.trips import Script
from streams import digest_marks, grants
from tests.doubles.memory_trips import RUN_ID

Key = str | bytes
FORGOTTEN_MS = 1_000
CHUNK_S = 0.02
EARLIER_MS, ASKS_MS, BEHIND_MS = 20, 100, 15


class MemoryRedis:
    """reply answers one command, run one script. A callable in a command's place is called: see the other doubles.

    is_strict: an unknown command is an error of whoever asks, not an answer.
    """

    def __init__(self, clock: Clock, *, is_strict: bool = False) -> None:
        self._is_strict = is_strict
        self.epoch: bytes | None = RUN_ID
        self._clock = clock
        self._strings: dict[Key, bytes] = {}
        self._hashes: dict[Key, dict[bytes, bytes]] = {}
        self._bits: dict[Key, set[int]] = {}
        self._ends_ms: dict[Key, int] = {}
        self._commands: dict[str, Callable[..., Any] | None] = {}
        self._scripts: dict[str, Callable[..., Any]] = {
            limits.TAKE.sha: self._take_tokens,
            throttles.NOTE.sha: self._throttle,
            breaker.RECORD.sha: self._record,
            breaker.PROBE.sha: self._probe,
            grants.TAKE.sha: self._take_grant,
            digest_marks.MARK.sha: self._mark_digest,
        }

    def memory(self) -> list[dict[Key, Any]]:
        """All that is kept, for whoever sets it back."""
        return [self._strings, self._hashes, self._bits, self._ends_ms]

    def run(self, script: Script, touched: Sequence[Key], *args: Any) -> Any:
        return self._scripts[script.sha](*touched, *args)

    def reply(self, name: Any, *args: Any) -> Any:
        if callable(name):
            return name()
        if (found := self._commands.get(name)) is None:
            found = self._commands[name] = getattr(self, f"_{name.lower()}", None)
        assert found is not None or not self._is_strict, f"unknown command {name}"
        return ValueError(f"unknown command {name}") if found is None else found(*args)

    # Commands.

    def _time(self) -> tuple[bytes, bytes]:
        now_ms = self._clock.now_ms()
        return str(now_ms // 1000).encode(), str(now_ms % 1000 * 1000).encode()

    def _get(self, key: Key) -> bytes | None:
        return self.epoch if key == keys.REDIS_EPOCH else self._strings.get(key)

    def _set(self, key: Key, value: Any, *how: Any) -> Any:
        before = self._strings.get(key)
        if "NX" not in how or before is None:
            self._strings[key] = _bytes(value)
        return before if "GET" in how else b"OK"

    def _exists(self, key: Key) -> int:
        return int(key in self._strings or bool(self._hash(key)) or key in self._bits)

    def _expire(self, key: Key, seconds: int) -> int:
        return self._pexpire(key, seconds * 1000)

    def _pexpire(self, key: Key, ms: int) -> int:
        self._ends_ms[key] = self._clock.now_ms() + int(ms)
        return 1

    def _setbit(self, key: Key, at: int, bit: int) -> int:
        assert bit == 1, "nobody takes a bit back"
        bits = self._bits.setdefault(key, set())
        before = int(at in bits)
        bits.add(at)
        return before

    def _bitcount(self, key: Key) -> int:
        return len(self._bits.get(key, ()))

    def _hset(self, key: Key, *pairs: Any) -> int:
        found = self._hash(key)
        before = len(found)
        for name, value in zip(pairs[::2], pairs[1::2], strict=True):
            found[_bytes(name)] = _bytes(value)
        return len(found) - before

    def _hgetall(self, key: Key) -> dict[bytes, bytes]:
        return dict(self._hash(key))

    def _hmget(self, key: Key, *names: str) -> list[bytes | None]:
        found = self._hash(key)
        return [found.get(_bytes(name)) for name in names]

    def _hincrby(self, key: Key, name: str, by: int) -> int:
        found = self._hash(key)
        value = int(found.get(_bytes(name), 0)) + int(by)
        found[_bytes(name)] = _bytes(value)
        return value

    def _hash(self, key: Key) -> dict[bytes, bytes]:
        if self._ends_ms.get(key, 2**62) <= self._clock.now_ms():
            del self._ends_ms[key]
            self._hashes.pop(key, None)
        return self._hashes.setdefault(key, {})

    # consumers/limits_take.lua

    def _take_tokens(
        self,
        key: Key,
        worker: str,
        kind: str,
        held: int,
        wanted: int,
        rate: float,
        burst: int,
        reserved: float,
        life: int,
        lane: str,
        rank: int,
    ) -> list[int]:
        now_ms, half, is_bulk = self._clock.now_ms(), burst / 2, kind == "bulk"
        found = self._hash(key)
        _follow_clock(found, now_ms)
        workers, others, others_of_kind = self._others(found, worker, kind, now_ms)
        everything, bulk, filled_us = half, half, now_ms * 1000
        if b"f" in found:
            rate *= _factor(float(found[b"f"]), int(found[b"ft"]), now_ms * 1000)
        if b"t" in found:
            passed_s = max(0, now_ms * 1000 - int(found[b"t"])) / 1_000_000
            everything = min(half, float(found[b"a"]) + rate * passed_s)
            bulk = min(half, float(found[b"b"]) + rate * (1 - reserved) * passed_s)
            filled_us = max(filled_us, int(found[b"t"]))
        tokens, own_rate, room = everything, rate, half
        if is_bulk:
            tokens, own_rate, room = min(everything, bulk), rate * (1 - reserved), half * (1 - reserved)
        share = max(1, math.floor(room / workers))
        space = min(share - held, room - others_of_kind - held, half - others - held)
        least = max(1, math.floor(min(wanted, share / 2, own_rate * CHUNK_S))) if is_bulk else 1
        is_behind = is_bulk and tokens < half / 2 and self._earlier_asked(found, worker, kind, lane, rank, now_ms)
        grant = wait = 0
        if wanted > 0:
            if tokens >= least and space >= least and not is_behind:
                grant = math.floor(min(wanted, tokens, space))
            else:
                wait = max(1, math.ceil((least - tokens) / own_rate * 1000))
                wait += math.ceil((filled_us - now_ms * 1000) / 1000)
                wait = max(wait, 5) if space < least else wait
                wait = max(wait, BEHIND_MS) if is_behind else wait
        found[b"a"] = b"%.6f" % (everything - grant)
        found[b"b"] = b"%.6f" % (bulk - grant if is_bulk else bulk)
        found[b"t"] = b"%d" % filled_us
        found[b"n"] = b"%d" % (now_ms * 1000)
        who = kind.encode(), held + grant, now_ms + life, now_ms, lane.encode(), rank if wanted > 0 else 0
        found[b"w:" + worker.encode()] = b"%b %d %d %d %b %d" % who
        self._pexpire(key, 60_000 + (filled_us - now_ms * 1000) // 1000)
        return [grant, wait]

    def _others(self, found: dict[bytes, bytes], worker: str, kind: str, now_ms: int) -> tuple[int, int, int]:
        """(workers of this class with this one, tokens that others hold, those of this class)."""
        workers, others, others_of_kind = 1, 0, 0
        own = b"w:" + worker.encode()
        for name, value in list(found.items()):
            if not name.startswith(b"w:") or name == own:
                continue
            its_kind, its_held, dies, asked, *_ = value.split()
            if int(asked) + FORGOTTEN_MS < now_ms:
                del found[name]
                continue
            alive = int(its_held) if int(dies) > now_ms else 0
            others += alive
            if its_kind == kind.encode():
                workers, others_of_kind = workers + 1, others_of_kind + alive
        return workers, others, others_of_kind

    def _earlier_asked(
        self, found: dict[bytes, bytes], worker: str, kind: str, lane: str, rank: int, now_ms: int
    ) -> bool:
        for name, value in found.items():
            if name.startswith(b"w:") and name != b"w:" + worker.encode():
                its_kind, _, _, asked, its_lane, its_rank = value.split()
                is_like = (its_kind, its_lane) == (kind.encode(), lane.encode()) and int(asked) + ASKS_MS > now_ms
                if is_like and 0 < int(its_rank) < rank - EARLIER_MS:
                    return True
        return False

    # consumers/throttles_note.lua

    def _throttle(self, bucket: Key, key: Key, slower: int, pause: int, *told: Any) -> int:
        now_ms, found = self._clock.now_ms(), self._hash(key)
        slowed = self._slow_down(self._hash(bucket), now_ms * 1000, pause) if slower else 0
        if slower:
            filled_us = int(self._hash(bucket)[b"t"])
            self._pexpire(bucket, 60_000 + max(0, (filled_us - now_ms * 1000) // 1000))
        if len(found) > 500:
            for name in [name for name, until in found.items() if int(until) <= now_ms]:
                del found[name]
        for scope, ms in zip(told[::2], told[1::2], strict=True):
            if _bytes(scope) in found or len(found) < 1_000:
                found[_bytes(scope)] = b"%d" % max(int(found.get(_bytes(scope), 0)), now_ms + ms)
        if found:
            self._pexpire(key, 3_700_000)
        return slowed

    def _slow_down(self, found: dict[bytes, bytes], now_us: int, pause: int) -> int:
        _follow_clock(found, now_us // 1000)
        factor, since_us = float(found.get(b"f", 1)), int(found.get(b"ft", 0))
        filled_us, slowed = int(found.get(b"t", 0)), 0
        if now_us >= since_us + 2_000_000:
            factor = max(0.01, _factor(factor, since_us, now_us) / 2)
            slowed = math.ceil(factor * 100)
        if slowed or pause:
            found |= {b"a": b"0", b"b": b"0"}
            since_us, filled_us = (max(one, now_us + pause * 1000) for one in (since_us, filled_us))
        found |= {b"f": b"%.6f" % factor, b"ft": b"%d" % since_us, b"t": b"%d" % filled_us}
        return slowed

    # consumers/breaker_record.lua, breaker_probe.lua

    def _record(self, key: Key, results: str, probes: str, hold: int, *limits: int) -> list[Any]:
        window, least, first, longest, hold_ms, probes_needed, calls, repeats = limits
        now_ms, found, change = self._clock.now_ms(), self._hash(key), b""
        is_open, reason = found.get(b"state") == b"open", found.get(b"reason", b"")
        if is_open and reason == b"operator":
            pass
        elif hold:
            change = self._open(found, hold_ms, b"config", now_ms)
        elif is_open and "1" in probes:
            self._open(
                found, min(int(found[b"period"]) * 2, hold_ms if reason == b"config" else longest), reason, now_ms
            )
        elif is_open and probes:
            if self._hincrby(key, "good", len(probes)) >= (1 if reason == b"config" else probes_needed):
                for name in (b"state", b"ring", b"period", b"since", b"good", b"reason", b"until"):
                    found.pop(name, None)
                change = b"closed"
            else:
                found[b"until"] = b"%d" % now_ms
        elif not is_open:
            ring = (found.get(b"ring", b"").decode() + results + probes)[-2 * window :]
            found[b"ring"] = ring.encode()
            newest = ring[-window:]
            if len(newest) >= least and newest.count("1") * 2 > len(newest):
                change = self._open(found, first, b"failures", now_ms)
        counted = self._counted(found, calls, repeats, now_ms // 60_000)
        ring = found.get(b"ring", b"").decode()
        return [change, *counted, len(ring), ring.count("2"), found.get(b"reason", b"")]

    def _open(self, found: dict[bytes, bytes], period: int, reason: bytes, now_ms: int) -> bytes:
        change = b"" if found.get(b"state") == b"open" else b"open"
        if change:
            found[b"since"] = b"%d" % now_ms
        found |= {b"state": b"open", b"until": b"%d" % (now_ms + period), b"period": b"%d" % period}
        found |= {b"reason": reason, b"good": b"0"}
        return change

    def _counted(self, found: dict[bytes, bytes], calls: int, repeats: int, minute: int) -> tuple[int, int]:
        age = minute - int(found.get(b"minute", 0))
        now = [int(found.get(name, 0)) for name in (b"calls", b"repeats")] if age in (0, 1) else [0, 0]
        before = [int(found.get(name, 0)) for name in (b"calls_before", b"repeats_before")] if age == 0 else [0, 0]
        if age == 1:
            now, before = [0, 0], now
        now = [now[0] + calls, now[1] + repeats]
        names = (b"minute", b"calls", b"repeats", b"calls_before", b"repeats_before")
        found |= {name: b"%d" % value for name, value in zip(names, (minute, *now, *before), strict=True)}
        return now[0] + before[0], now[1] + before[1]

    def _probe(self, key: Key, probes: int, round_ms: int) -> int:
        found, now_ms = self._hash(key), self._clock.now_ms()
        if found.get(b"state") != b"open":
            return 0
        left_ms = int(found[b"until"]) - now_ms
        is_lost = found[b"reason"] != b"operator" and left_ms > max(int(found[b"period"]), round_ms)
        if left_ms > 0 and not is_lost:
            return 0
        is_hold = found[b"reason"] == b"config"
        found[b"until"] = b"%d" % (now_ms + (int(found[b"period"]) if is_hold else round_ms))
        return 1 if is_hold else max(1, probes - int(found[b"good"]))

    # streams/grants.lua

    def _take_grant(self, key: Key, instance: str, wanted: int, kept_ms: int) -> int:
        found, now_ms = self._hash(key), self._clock.now_ms()
        tokens = int(found.get(b"tokens", 0))
        taken = max(0, min(tokens, wanted))
        found[b"tokens"] = b"%d" % (tokens - taken)
        found[b"wish:" + instance.encode()] = b"%d %d" % (wanted - taken, now_ms)
        self._pexpire(key, kept_ms)
        return taken

    # streams/digest_marks.lua.

    def _mark_digest(self, *given: Any) -> list[bytes]:
        *touched, digest, _kept_s, marked = given
        marks, flags = touched[::2], touched[1::2]
        found = [
            self._get(mark) or (b"-" if self._exists(flag) else b"") for mark, flag in zip(marks, flags, strict=True)
        ]
        if not any(found[at] not in (b"", b"-") for at in range(len(found))):
            for at, mark in enumerate(marks[:marked]):
                if not found[at]:
                    self._set(mark, digest)
                    found[at] = _bytes(digest)
        return found


def _follow_clock(found: dict[bytes, bytes], now_ms: int) -> None:
    """consumers/limits_clock.lua"""
    back_us = int(found.get(b"n", 0)) - now_ms * 1000
    if back_us <= 0:
        return
    found[b"n"] = b"%d" % (now_ms * 1000)
    for name, value in found.items():
        if name in (b"t", b"ft"):
            found[name] = b"%d" % (int(value) - back_us)
        elif name.startswith(b"w:"):
            kind, held, dies, asked, *rest = value.split()
            gone = [b"%d" % (int(at) - back_us // 1000) for at in (dies, asked)]
            found[name] = b" ".join((kind, held, *gone, *rest))


def _factor(factor: float, from_us: int, now_us: int) -> float:
    """consumers/limits_factor.lua"""
    return min(1.0, factor + max(0, now_us - from_us) / 1_000_000 * 0.05)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
