"""What a blast is judged by: arrivals by name, and how long a message took."""

from __future__ import annotations

import pytest

from deploy.simulators import marks
from deploy.simulators.marks import Mark, Marks


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("#large Hello Ann", Mark("large", 0.0)),
        ("#code@12.5 Your code is 1", Mark("code", 12.5)),
        ("#alone", Mark("alone", 0.0)),
        ("Hello #large", None),
        ("# and a blank", None),
        ("#code@soon Your code", None),
        (None, None),
    ],
)
def test_a_text_is_counted_by_the_word_it_begins_with(text: object, mark: Mark | None) -> None:
    assert marks.read(text) == mark


def test_a_message_is_timed_from_the_wish_to_its_first_arrival() -> None:
    found = Marks()
    found.add(Mark("code", 10.0), 10.25, is_new=True)
    found.add(Mark("code", 10.0), 19.0, is_new=False)
    found.add(Mark("code", 18.5), 20.0, is_new=True)
    told = found.shown(0)["code"]
    assert told["waits"] == [[10.25, 0.25], [20.0, 1.5]]
    assert (told["sends"], told["distinct"], told["repeats"]) == (3, 2, 1)
    assert (told["first_s"], told["last_new_s"]) == (10.25, 20.0)
    assert told["per_second"] == {"10": 1, "19": 1, "20": 1}


def test_who_asks_again_gets_only_what_is_new() -> None:
    found = Marks()
    for second in range(5):
        found.add(Mark("code", second - 0.5), float(second), is_new=True)
    told = found.shown(since_s=3.0)["code"]
    assert (told["sends"], told["per_second"], told["waits"]) == (5, {"3": 1, "4": 1}, [[3.0, 0.5], [4.0, 0.5]])


def test_names_by_chance_do_not_fill_the_book() -> None:
    found = Marks()
    for number in range(2 * marks.MARKS_MAX):
        found.add(Mark(f"name{number}", 0.0), 1.0, is_new=True)
    assert len(found.shown(0)) == marks.MARKS_MAX
