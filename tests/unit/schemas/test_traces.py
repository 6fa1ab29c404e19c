"""Which traces go on, and as what."""

from __future__ import annotations

import pytest

from schemas import traces

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize("given", [f"00-{TRACE}-{PARENT}-01", f"cc-{TRACE}-{PARENT}-01-what the future adds\r"])
def test_a_trace_goes_on_as_the_version_that_is_known(given: str) -> None:
    assert traces.carried(given.encode()) == f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    "given",
    [
        None,
        b"",
        f"00-{TRACE}-{PARENT}-01\r\nAuthorization: Bearer stolen".encode(),
        f"00-{TRACE}-{PARENT}-01\n".encode(),
        f"00-{TRACE}-{PARENT}-01-more".encode(),
        f"ff-{TRACE}-{PARENT}-01".encode(),
        f"00-{TRACE.upper()}-{PARENT}-01".encode(),
        f"00-{'0' * 32}-{PARENT}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        b"00-1-2-01",
        b"\xff\x00",
    ],
)
def test_what_is_no_trace_goes_nowhere(given: bytes | None) -> None:
    assert traces.carried(given) == ""
