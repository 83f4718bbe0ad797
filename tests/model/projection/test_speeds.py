"""Step times of settings, on top of a known law."""

from __future__ import annotations

import pytest

from farandole.model.projection.links import parse_link
from farandole.model.projection.records import LinkSpeed
from farandole.model.projection.settings import Setting
from farandole.model.projection.speeds import Speeds
from tests.model.projection.known import Ring


def test_speed_shortens_computing_alone() -> None:
    speeds = Speeds(lambda link: Ring())
    plain = speeds.step_s(Setting(workers=4, per_host=4), 10)
    fast = speeds.step_s(Setting(workers=4, per_host=4, speed=2.0), 10)
    assert plain.value == pytest.approx(0.1 + 0.075)
    assert fast.value == pytest.approx(0.05 + 0.075)
    assert fast.high / fast.value == pytest.approx(plain.high / plain.value)


def test_one_fit_per_link() -> None:
    made: list[LinkSpeed | None] = []

    def fit(link: LinkSpeed | None) -> Ring:
        made.append(link)
        return Ring()

    speeds = Speeds(fit)
    for workers in (8, 16):
        for link in (None, parse_link("10Gbit")):
            speeds.step_s(Setting(workers=workers, per_host=4, link=link), 10)
    assert made == [None, parse_link("10Gbit")]
    assert speeds.assumptions == ("The ring is known.",)
    assert speeds.forms == (("ring", 1.0),)


def test_a_figure_is_asked_for_once() -> None:
    ring = Ring()
    speeds = Speeds(lambda link: ring)
    for _ in range(3):
        speeds.step_s(Setting(workers=8, per_host=8), 10)
    assert ring.asked == 1
