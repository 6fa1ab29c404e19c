"""Which partition a key belongs to: Kafka's murmur2, the same as every producer here is set to.

Needed where the partition must follow from a part of the key: all facets of a user lie together, so that
their offsets can be compared.
"""

from __future__ import annotations

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2_partition(key: bytes, partitions: int) -> int:
    """Where a record with this key goes (Java's default, librdkafka's murmur2_random)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2, unsigned."""
    length = len(key)
    whole = length & ~3
    hashed = 0x9747B28C ^ length
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        hashed = hashed * _M & _MASK ^ word
    if rest := key[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15
