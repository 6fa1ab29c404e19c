"""Which processes `tidings up` runs, and where each shows its numbers."""

from __future__ import annotations

from deploy import roles, sections
from deploy.settings import Settings


def places(listen: str) -> dict[str, str]:
    found = roles.of(Settings(metrics=sections.Metrics(listen=listen)))
    return {role.name: role.environment.get("TIDINGS_METRICS__LISTEN", "") for role in found}


def test_roles_on_one_machine_do_not_fight_for_one_port() -> None:
    given = places("0.0.0.0:9100")
    assert given.pop("api") == given.pop("callbacks") == ""
    assert list(given.values()) == [f"0.0.0.0:{9100 + number}" for number in range(len(given))]
    assert (given["route-requests"], len(given)) == ("0.0.0.0:9100", 11)


def test_only_those_step_back_for_whom_no_phone_waits() -> None:
    behind = {role.name for role in roles.of(Settings()) if role.nice}
    assert behind == {"callbacks", "route-callbacks", "streams-status", "reconcile"}


def test_any_free_port_and_no_port_are_the_same_for_all() -> None:
    assert set(places("127.0.0.1:0").values()) == set(places("").values()) == {""}
