"""Claims as they lie in Redis: what they take, and which of them stand for a call whose outcome nobody knows."""

from __future__ import annotations

import redis

from consumers import claims

PATTERN = "c:{*"
AT_ONCE = 1_000


def read(url: str, most: int) -> dict[bytes, tuple[bytes, int]]:
    """At most so many claims: key -> its value, and the time that it still has, ms."""
    found: dict[bytes, tuple[bytes, int]] = {}
    with redis.Redis.from_url(url) as client:
        names = list(dict.fromkeys(client.scan_iter(PATTERN, count=AT_ONCE)))[:most]
        for start in range(0, len(names), AT_ONCE):
            part = names[start : start + AT_ONCE]
            pipe = client.pipeline(transaction=False)
            for name in part:
                pipe.get(name)
                pipe.pttl(name)
            replies = pipe.execute()
            for name, raw, left_ms in zip(part, replies[::2], replies[1::2], strict=True):
                if raw is not None:
                    found[name] = (raw, left_ms)
    return found


def open_calls(url: str) -> int:
    """Claims without a verdict: right after the death of the only worker, the calls it had in flight."""
    found = read(url, 10_000_000)
    return sum(claims.unpacked_entry(raw).is_open() for raw, _ in found.values())


def bytes_each(url: str, most: int = 100_000) -> float:
    """Redis memory of a claim, tables and expiry included: an emptied database is filled with them again.

    The database is empty afterwards.
    """
    found = read(url, most)
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        before = int(client.info("memory")["used_memory"])
        items = list(found.items())
        for start in range(0, len(items), AT_ONCE):
            pipe = client.pipeline(transaction=False)
            for name, (raw, left_ms) in items[start : start + AT_ONCE]:
                pipe.set(name, raw, px=max(left_ms, 1))
            pipe.execute()
        after = int(client.info("memory")["used_memory"])
        client.flushdb()
    return (after - before) / max(1, len(found))
