"""The stand-ins' book is the judge of losses, repeats and rates."""

from __future__ import annotations

from benchmarks.standins.book import Book


def book(*calls: tuple[bytes, float]) -> Book:
    made = Book()
    for key, at_s in calls:
        made.call(key, at_s)
    return made


def test_a_key_that_comes_again_is_a_repeat_and_no_new_arrival() -> None:
    seen = book((b"a", 1.0), (b"b", 2.0), (b"a", 3.0))
    totals = seen.answer({"ask": "totals"})
    assert (totals["calls"], totals["distinct"], totals["repeats"], totals["last_new_s"]) == (3, 2, 1, 2.0)
    assert seen.answer({"ask": "first_arrivals", "numbers": [1, 2]}) == [1.0, 2.0]


def test_the_most_in_a_second_is_found_wherever_that_second_begins() -> None:
    seen = book(*((b"%d" % number, at_s) for number, at_s in enumerate((0.0, 0.9, 1.1, 1.5, 1.8, 3.0))))
    assert seen.answer({"ask": "between", "from_s": 0.0, "to_s": 10.0}) == {"calls": 6, "most_in_a_second": 4}


def test_what_lies_outside_of_the_time_asked_for_does_not_count() -> None:
    seen = book((b"a", 1.0), (b"b", 2.0), (b"c", 3.0))
    assert seen.answer({"ask": "between", "from_s": 1.5, "to_s": 2.5})["calls"] == 1
