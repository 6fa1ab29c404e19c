"""The picture shows what was found, at its place."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from deploy.blast import drawing, plot
from deploy.blast.drawing import Panel
from deploy.blast.facts import Kill
from deploy.blast.plan import Plan
from tests.unit.deploy.blast.found import BEGAN_S, SECONDS, WELL

PANEL = Panel(left=100, top=50, width=200, height=100, x_most=10, y_least=0, y_most=1_000)


def test_it_is_a_picture_with_a_line_for_each_campaign_and_a_mark_for_each_kill() -> None:
    kills = (Kill("work-push.bulk", 1, BEGAN_S + 2.0), Kill("<api>", 2, BEGAN_S + 4.0))
    root = ElementTree.fromstring(plot.svg(replace(WELL, plan=Plan(kills=True), kills=kills)))
    name = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{name}polyline")) == 5
    words = [element.text for element in root.findall(f"{name}text")]
    assert words.count("<api>") == words.count("work-push.bulk") == 1


def test_sends_are_averaged_over_each_step_of_a_long_blast() -> None:
    points = plot.per_second(WELL.large, BEGAN_S, SECONDS, step_s=5)
    assert points == [(2.5, 1_400), (7.5, 1_400), (12.5, 0)]


def test_codes_are_shown_at_the_time_of_their_wish() -> None:
    [(at_s, p50_ms), *_] = plot.latency_ms(WELL.code, BEGAN_S, 1, 0.5)
    assert at_s == 0.5
    assert p50_ms == pytest.approx(20)


def test_values_are_placed_between_the_edges_and_never_beyond_them() -> None:
    assert [PANEL.x(value) for value in (0, 5, 10, 99)] == [100, 200, 300, 300]
    assert [PANEL.y(value) for value in (0, 500, 1_000, 5_000, -1)] == [150, 100, 50, 50, 150]
    decades = replace(PANEL, y_least=1.0, y_most=100.0, is_log=True)
    assert [decades.y(value) for value in (0, 1, 10, 100)] == [150, 150, pytest.approx(100), 50]


def test_names_of_moments_close_to_each_other_are_put_below_each_other() -> None:
    named = ElementTree.fromstring(f"<svg>{PANEL.names([(1, 'first'), (1.1, 'second'), (9, 'third')], 'red')}</svg>")
    first, second, third = (float(element.attrib["y"]) for element in named)
    assert second > first == third


def test_ticks_are_round_numbers_up_to_the_edge() -> None:
    assert drawing.ticks(714) == [0, 100, 200, 300, 400, 500, 600, 700]
    assert drawing.ticks(2_500) == [0, 500, 1_000, 1_500, 2_000, 2_500]
