"""What somebody hears who starts the stand-ins where a port is taken."""

from __future__ import annotations

import socket

import pytest

from deploy.simulators import run
from schemas.errors import Misconfigured


@pytest.mark.parametrize("taken", ["http_port", "smtp_port"])
async def test_a_taken_port_is_named_and_the_other_server_is_closed_again(taken: str, unused_tcp_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = {"http_port": unused_tcp_port, "smtp_port": 0, taken: other.getsockname()[1]}
        with pytest.raises(Misconfigured, match=f"cannot listen on 127.0.0.1:{ports[taken]}: .*in use; free it"):
            async with run.running(run.Options(**ports)):
                pass
    with socket.create_server(("127.0.0.1", unused_tcp_port)):
        pass
