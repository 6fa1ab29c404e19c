"""Where others reach a port that a role has opened."""

from __future__ import annotations

import os
import socket

import pytest

from deploy import serving
from schemas.errors import Misconfigured


def host_of(listen: str, advertise: str = "") -> str:
    with serving.bound(listen, "[api] listen") as door:
        host, _, port = serving.url_of(door, advertise).removeprefix("http://").rpartition(":")
        assert int(port) == door.getsockname()[1]
        return host


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_who_listens_on_every_address_is_reached_at_the_machines_own(
    listen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostbyname", {os.uname().nodename: "10.1.2.3"}.__getitem__)
    assert host_of(listen) == "10.1.2.3"


def test_a_machine_whose_name_stands_for_its_loopback_is_reached_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "127.0.1.1")
    assert host_of("0.0.0.0:0") == os.uname().nodename


def test_a_given_name_wins_and_a_given_address_stays() -> None:
    assert host_of("127.0.0.1:0") == "127.0.0.1"
    assert host_of("0.0.0.0:0", "status-0.tidings.internal") == "status-0.tidings.internal"


def test_of_a_port_that_is_taken_the_setting_is_named_that_has_to_change() -> None:
    with serving.bound("127.0.0.1:0", "[api] listen") as door:
        door.listen()
        taken = f"127.0.0.1:{door.getsockname()[1]}"
        told = f"cannot listen on {taken}: Address already in use; free it or change [streams] listen"
        with pytest.raises(Misconfigured) as refused, serving.bound(taken, "[streams] listen"):
            pass
    assert str(refused.value) == told
