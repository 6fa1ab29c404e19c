"""The demo's verdict is strict, and its people are as many as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from deploy import settings
from deploy.demo import door, judge, people, place
from deploy.demo.judge import Verdict
from deploy.local import stack
from schemas import policies


def test_a_repeat_that_was_told_of_and_fits_the_kill_is_forgiven() -> None:
    verdict = Verdict(duplicates=3, possible=5, in_flight=9, lost=0, unasked=0)
    assert verdict.holds()
    assert verdict.line() == "duplicates 3, possible duplicates 5, lost 0"


@pytest.mark.parametrize(
    "numbers",
    [(6, 5, 9, 0, 0), (3, 10, 9, 0, 0), (0, 0, 9, 1, 0), (0, 0, 9, 0, 1)],
    ids=["more repeats than told", "more told than in flight", "one lost", "one too many"],
)
def test_anything_else_fails_the_demo(numbers: tuple[int, int, int, int, int]) -> None:
    assert not Verdict(*numbers).holds()


def test_a_loss_on_one_channel_is_not_hidden_by_a_surplus_on_another() -> None:
    assert judge.lost_and_unasked({"push": 10, "sms": 5}, {"push": 11, "sms": 4}) == (1, 1)
    assert judge.lost_and_unasked({"push": 10}, {"push": 10}) == (0, 0)


class _Telling(door.Door):
    """Tells of so many possible duplicates, look by look."""

    def __init__(self, *possible: int) -> None:
        super().__init__(Mock(), "")
        self._left: Iterator[int] = iter(possible)

    async def campaign(self, campaign_id: str) -> dict[str, Any]:
        return {"campaign_id": campaign_id, "possible_duplicates": next(self._left)}


async def test_a_repeat_whose_answer_is_not_yet_counted_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "RECHECK_S", 0)
    assert (await _Telling(0, 1, 3, 9).owned_up("sale", repeats=3))["possible_duplicates"] == 3


async def test_a_repeat_that_is_never_told_of_is_left_to_the_verdict() -> None:
    assert (await _Telling(2).owned_up("sale", repeats=3, within_s=-1))["possible_duplicates"] == 2


def test_the_audience_adds_up() -> None:
    expected, lines = people.expected(), [json.loads(line) for line in people.audience_lines()]
    assert len(lines) == expected.reached + expected.opted_out + expected.unreachable == people.AUDIENCE
    assert len({line["user_id"] for line in lines}) == people.AUDIENCE
    assert expected.opted_out == 100 and expected.unreachable == 90
    by_mail = sum(1 for line in lines if "email" in line.get("to", {}))
    stored_by_mail = sum(1 for n in range(people.STORED) if n % 5 > 2 and not people.has_opted_out(n))
    assert by_mail + stored_by_mail == expected.email


def test_percentiles_name_a_value_that_was_there() -> None:
    assert [judge.percentile(range(1, 101), share) for share in (0.5, 0.99)] == [51, 100]
    assert judge.percentile([], 0.5) == 0


def test_its_settings_and_templates_are_accepted(tmp_path: Path) -> None:
    chosen = place.prepare(tmp_path, stack.Stack("127.0.0.1:1", "redis://127.0.0.1:2/0"))
    read = settings.load(chosen.settings, {})
    assert read.templates.path == place.TEMPLATES
    found = policies.read_policies(read.templates.path)
    assert set(found) == {"login-code", "order-shipped", "newsletter"}
