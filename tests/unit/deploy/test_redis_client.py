"""What a process makes of the Redis it was pointed at."""

from __future__ import annotations

import pytest

from deploy import redis_client
from schemas.errors import Misconfigured

INFO = b"# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\nrun_id:8f1c0d\r\nconfig_file:\r\n"


def test_a_redis_that_is_too_old_is_refused_by_its_version() -> None:
    with pytest.raises(Misconfigured, match=r"Redis 6\.2\.14 is too old: Tidings needs 7\.0 or newer"):
        redis_client.run_id(INFO % b"6.2.14")


@pytest.mark.parametrize("version", [b"7.0.15", b"10.1.0"])
def test_a_redis_is_known_by_the_id_of_its_run(version: bytes) -> None:
    assert redis_client.run_id(INFO % version) == b"8f1c0d"
