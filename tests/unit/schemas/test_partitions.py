"""Our murmur2 is Kafka's: known answers of the Java client, and a range check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import partitions


@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_of_the_java_client(key: bytes, java: int) -> None:
    assert partitions.murmur2(key) == java % 2**32


@given(st.binary(), st.integers(1, 200))
def test_every_key_has_a_partition(key: bytes, count: int) -> None:
    assert 0 <= partitions.murmur2_partition(key, count) < count
