"""Step times of settings, on top of a known law."""

from __future__ import annotations

import pytest

from farandole.model.projection.links import parse_link
from farandole.model.projection.records import LinkSpeed, Projected
from farandole.model.projection.settings import Setting
from farandole.model.projection.steps.by_link import Speeds
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

    slow, fast = parse_link("10Gbit"), parse_link("100Gbit")
    speeds = Speeds(fit, slow)
    speeds.step_s(Setting(workers=2, per_host=4), 10)
    for workers in (8, 16):
        for link in (slow, fast):
            speeds.step_s(Setting(workers=workers, per_host=4, link=link), 10)
    assert made == [slow, fast]
    assert speeds.assumptions == ("The ring is known.",)
    assert speeds.forms == (("ring", 1.0),)


def test_a_link_within_one_host_connects_its_workers() -> None:
    asked = []

    class Asked(Ring):
        def at(self, workers: int, hosts: int, batch: int) -> Projected:
            asked.append((workers, hosts))
            return super().at(workers, hosts, batch)

    Speeds(lambda link: Asked()).step_s(
        Setting(workers=4, per_host=4, link=parse_link("nvlink")), 10
    )
    assert asked == [(4, 4)]


def test_a_figure_is_asked_for_once() -> None:
    ring = Ring()
    speeds = Speeds(lambda link: ring)
    for _ in range(3):
        speeds.step_s(Setting(workers=8, per_host=8), 10)
    assert ring.asked == 1


def test_what_is_said_of_links_is_left_out_within_one_host() -> None:
    class Said(Ring):
        def __init__(self, link: LinkSpeed | None) -> None:
            super().__init__()
            name = "no link" if link is None else link.name
            self.assumptions = ("The batch is known.", f"Taken for granted: {name}.")

    slow = parse_link("10Gbit")
    for inside in (None, slow):
        speeds = Speeds(Said, inside)
        speeds.step_s(Setting(workers=4, per_host=4), 10)
        assert speeds.assumptions == ("The batch is known.",)
    speeds.step_s(Setting(workers=8, per_host=4, link=slow), 10)
    assert "Taken for granted: 10Gbit." in speeds.assumptions
