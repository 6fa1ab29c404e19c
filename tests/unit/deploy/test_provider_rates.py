"""How much dispatch may aim at, by how a channel's providers stand."""

from __future__ import annotations

import pytest

from deploy import sections
from deploy.provider_rates import Pace, standby_share, together
from deploy.settings import Settings
from schemas.messages import Channel

WELL, SLOW_STANDBY, DOWN, MAYBE = Pace(1000, True), Pace(100, True), Pace(1000, False), Pace(1000, False, True)


@pytest.mark.parametrize(
    ("paces", "share", "per_s"),
    [
        ([WELL], 0.0, 1000),
        ([WELL, WELL], 0.05, 1000 / 0.95),
        ([WELL, SLOW_STANDBY], 0.05, 1000 / 0.95),
        ([WELL._replace(per_s=500), WELL], 0.05, 500 / 0.95),
        ([WELL, Pace(10, True)], 0.05, 200),
        ([DOWN, SLOW_STANDBY], 0.05, 100),
        ([MAYBE, SLOW_STANDBY], 0.05, 100),
        ([WELL, DOWN], 0.05, 1000),
        ([DOWN, DOWN, SLOW_STANDBY], 0.05, 100),
        ([DOWN, MAYBE], 0.05, 1000),
        ([DOWN, DOWN], 0.05, 0),
        ([WELL._replace(is_avoided=True), SLOW_STANDBY], 0.05, 100),
        ([WELL._replace(is_avoided=True), DOWN], 0.05, 1000),
        ([], 0.0, 0),
    ],
)
def test_it_is_what_the_usable_providers_take_together(paces: list[Pace], share: float, per_s: float) -> None:
    assert together(paces, share) == pytest.approx(per_s)


def settings(*rates: float, share: float = 0.05) -> Settings:
    names = tuple(f"p{number}" for number in range(len(rates)))
    made = {
        name: sections.Provider(kind="http", url="http://x", rate_per_s=rate, burst=20)
        for name, rate in zip(names, rates, strict=True)
    }
    return Settings(
        channels={"push": sections.Channel(providers=names)},
        providers=made,
        sending=sections.Sending(standby_share=share),
    )


@pytest.mark.parametrize(
    ("rates", "share", "expected"),
    [((100.0,), 0.05, 0.0), ((100.0, 100.0), 0.05, 0.05), ((990.0, 10.0), 0.05, 0.01), ((100.0, 100.0), 0.0, 0.0)],
)
def test_a_slow_standby_gets_no_more_than_it_can_take(rates: tuple[float, ...], share: float, expected: float) -> None:
    assert standby_share(settings(*rates, share=share), Channel.PUSH) == pytest.approx(expected)
