"""The page in a real browser: charts are drawn, nothing leaves it, names stay text.

All pages are visited once, by a fixture of the module, so that no process of the browser lives
while a test runs; the tests look at what was seen.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from farandole.model.analyse import Comparison, ScalingInfo
from farandole.model.statistics import Estimate
from farandole.report.render import bundle, page
from farandole.report.study import document
from tests.report.builders import HEADLINE, ODD, Words, comparison, study, with_row
from tests.report.test_study import with_floats
from tests.report.visiting import LOOKS, Seen, browsing, visit

PAPER, NIGHT = "rgb(255, 255, 255)", "rgb(20, 24, 28)"


def hostile(turn: int) -> ScalingInfo:
    """Return a study in which every string of a user is odd, and some figures are not numbers."""
    words = [ODD[(turn + index) % len(ODD)] for index in range(10)]
    info = study(
        words=Words(
            label=words[0],
            param=(words[1], words[2]),
            metric=words[3],
            loss=words[4],
            command=(words[5], words[6], words[7]),
            reason=words[8],
            output=words[9],
            host=words[0] + words[3],
        )
    )
    nan = Estimate(value=math.nan, low=math.nan, high=math.nan)
    first, loss = info.rows[0].metric_curves
    broken = replace(first, points=(replace(first.points[0], value=nan), *first.points[1:]))
    info = replace(info, answer=replace(info.answer, headline=words[0], next=words[1]))
    return with_row(info, 0, throughput=nan, metric_curves=(broken, loss))


PAGES: dict[str, tuple[ScalingInfo | Comparison, dict[str, Any]]] = {
    "light": (study(), {"looks": LOOKS, "hovers": "speedup"}),
    "narrow": (study(), {"viewport": {"width": 380, "height": 800}}),
    "several": (comparison(), {}),
    "void": (study(void="Your 2 workers trained 2 separate models."), {}),
    "nan": (with_floats(study(), math.nan), {}),
    "zero": (with_floats(study(), 0.0), {}),
    "huge": (with_floats(study(), 1e300), {}),
    # Ten strings in ten places: each comes twice, in another one.
    **{f"hostile {turn}": (hostile(turn), {}) for turn in (0, 4)},
}


SENSELESS = ("nan", "zero", "huge")
"""Whose figures make no sense: few charts, and no error."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    folder = tmp_path_factory.mktemp("pages")
    found: dict[str, Seen] = {}
    with browsing() as browser:
        for name, (info, options) in PAGES.items():
            text = page(document(info), scripts=bundle())
            names = options.get("looks", (name,))
            found |= zip(names, visit(browser, folder, text, **options), strict=True)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_every_chart_is_drawn_without_an_error(seen: dict[str, Seen], name: str) -> None:
    assert seen[name].errors == []
    assert seen[name].undrawn == []
    if name not in SENSELESS:
        assert len(seen[name].marks) >= 12
        assert min(seen[name].marks.values()) >= 4, seen[name].marks


def test_no_request_leaves_a_page(seen: dict[str, Seen]) -> None:
    assert {name: found.requests for name, found in seen.items() if found.requests} == {}


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("hostile")])
def test_hostile_names_stay_text(seen: dict[str, Seen], name: str) -> None:
    assert not seen[name].hacked
    assert seen[name].headline
    label = ODD[int(name.split()[1])]
    assert label in seen[name].text


def test_the_page_opens_with_the_answer(seen: dict[str, Seen]) -> None:
    assert seen["light"].headline == HEADLINE
    assert seen["void"].headline == "Your 2 workers trained 2 separate models."


def test_hovering_shows_the_value(seen: dict[str, Seen]) -> None:
    assert "(" in seen["light"].hover
    assert "workers" in seen["light"].hover


def test_light_dark_and_print(seen: dict[str, Seen]) -> None:
    assert seen["light"].background == PAPER
    assert seen["dark"].background == NIGHT
    assert seen["print"].background == PAPER
    # Charts follow the style sheet: --c1 in its two shades.
    assert seen["light"].stroke == seen["print"].stroke == "rgb(0, 114, 178)"
    assert seen["dark"].stroke == "rgb(86, 180, 255)"


def test_paper_has_no_folded_tables(seen: dict[str, Seen]) -> None:
    assert seen["light"].open_details == 0
    assert seen["print"].open_details >= 15


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_the_window(seen: dict[str, Seen], name: str) -> None:
    assert seen[name].overflow <= 0
