"""`tidings holds`: what is meant by the words on the command line, and what is shown of it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from deploy import cli
from deploy.commands import holds
from deploy.commands.holds import Entry, Wish
from deploy.settings import Settings
from schemas.errors import Misconfigured
from schemas.messages import Held, HeldPage, HoldOrder
from tests.doubles import deliveries
from tests.doubles.manual_clock import START_MS


def entry(notification_id: str = "nabc", reason: str = "lookalike", tenant: str = "default", **changes: Any) -> Entry:
    delivery = deliveries.single(**changes)
    return Entry(b"id", Held(tenant, 0, reason, 1, START_MS, delivery=delivery), notification_id)


PAGE = Entry(b"p", Held("default", START_MS, "quiet_hours", 1, START_MS, page=HeldPage("spring", 7, 90, (1, 2, 3))), "")


@pytest.mark.parametrize(
    ("wish", "meant"),
    [
        (Wish(), True),
        (Wish(reason="lookalike", tenant="default", template="welcome"), True),
        (Wish(notifications=frozenset({"nabc", "nxyz"})), True),
        (Wish(user="mia"), True),
        (Wish(user="ben"), False),
        (Wish(reason="quiet_hours"), False),
        (Wish(tenant="other"), False),
        (Wish(template="offer"), False),
        (Wish(notifications=frozenset({"nxyz"})), False),
    ],
)
def test_every_word_narrows_what_is_meant(wish: Wish, meant: bool) -> None:
    assert wish.means(entry(user_id="mia")) is meant


def test_a_part_of_a_page_belongs_to_no_template_and_no_person_and_has_no_id() -> None:
    assert Wish(reason="quiet_hours").means(PAGE)
    assert not Wish(template="offer").means(PAGE) and not Wish(user="mia").means(PAGE)
    assert not Wish(notifications=frozenset({"nabc"})).means(PAGE)
    assert PAGE.told()["recipients"] == 3 and PAGE.told()["page"] == 7


CANCELLED = {("default", "mia", entry(user_id="mia").held.delivery.intent)}  # type: ignore[union-attr]


def test_what_its_caller_cancelled_waits_no_more_though_it_lies_in_hold_until_its_time() -> None:
    found = [PAGE, entry("nben", user_id="ben"), entry("nmia", user_id="mia")]
    waiting, cancelled = holds.parted(found, CANCELLED)
    assert [one.notification_id for one in waiting] == ["nben", ""]
    assert [one.notification_id for one in cancelled] == ["nmia"]


def test_an_order_about_what_was_cancelled_is_refused_and_says_so() -> None:
    waiting, cancelled = holds.parted([entry("nben", user_id="ben"), entry("nmia", user_id="mia")], CANCELLED)
    holds.check_all_wait(Wish(notifications={"nben"}), waiting, cancelled)
    holds.check_all_wait(Wish(reason="lookalike", template="welcome"), waiting, cancelled)
    for wish, said in (
        (Wish(notifications={"nben", "nmia"}), "cancelled, so never sent: nmia; nothing was ordered"),
        (Wish(notifications={"nben", "nxyz"}), "not in hold: nxyz; nothing was ordered"),
    ):
        with pytest.raises(Misconfigured) as refused:
            holds.check_all_wait(wish, waiting, cancelled)
        assert str(refused.value) == said
    with pytest.raises(Misconfigured, match="not in hold: anything like that"):
        holds.check_all_wait(Wish(reason="lookalike", template="welcome"), [], cancelled)


def test_how_much_waits_is_counted_in_recipients() -> None:
    found = holds.counts([entry(), PAGE, PAGE])
    assert [(count["reason"], count["template"], count["recipients"]) for count in found] == [
        ("quiet_hours", "", 6),
        ("lookalike", "welcome", 1),
    ]


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (Wish(), "name the notifications, or give --reason and --template"),
        (Wish(reason="lookalike"), "name the notifications, or give --reason and --template"),
        (Wish(reason="lookalikes", template="offer"), "'lookalikes' is no reason; there are no_channel,"),
    ],
)
async def test_an_order_that_would_mean_too_much_or_nothing_is_refused(wish: Wish, said: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        await holds.order(Settings(), wish, HoldOrder.DROP)
    assert said in str(refused.value)


def test_each_is_a_whole_line_for_whoever_copies_from_it_or_searches_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "nge4dsy3ggzstglrrfyyc4mkwqmznpcq"

    async def held(*_: object) -> list[Entry]:
        return [entry(whole, user_id="mia"), PAGE]

    monkeypatch.setattr(holds, "held", held)
    monkeypatch.setenv("COLUMNS", "80")
    printed = CliRunner().invoke(cli.app, ["holds", "list"]).stdout
    found = next(line.split() for line in printed.splitlines() if whole in line)
    assert found[:3] == [whole, "sms", "lookalike"] and found[5] == "mia" and found[-2:] == ["an", "operator"]


def test_people_see_what_waits_for_whom_and_until_when() -> None:
    shown = Console(width=200, file=io.StringIO())
    shown.print(holds.table([entry(user_id="mia"), PAGE, entry(reason="campaign_paused")], most=3))
    shown.print(holds.summary([entry(), PAGE]))
    assert isinstance(shown.file, io.StringIO)
    rows = [" ".join(line.split()) for line in shown.file.getvalue().splitlines()]
    at = "2026-11-30T00:53:20+00:00"
    assert rows[1] == f"nabc sms lookalike welcome default mia {at} an operator"
    assert rows[2] == f"campaign spring, page 7 quiet_hours default 3 people {at} {at}"
    assert rows[3].endswith(f"{at} resume")
    assert rows[-2:] == ["3 quiet_hours default", "1 lookalike default welcome"]
