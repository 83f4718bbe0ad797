"""The page of a lab in a real browser: charts are drawn, nothing leaves it, strings stay text."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.report.lab import LabReport
from farandole.report.lab.contents import contents
from farandole.report.lab.page import page
from farandole.report.render import bundle
from tests.report.builders import ODD, Words
from tests.report.lab.builders import lab, oddly
from tests.report.visiting import Seen, browsing, visit


def hostile(turn: int) -> LabReport:
    """Return a lab all of whose strings are odd."""
    say = oddly(turn)
    words = Words(label=say(""), param=(say(""), say("")), metric=say(""), host=say(""))
    return lab(say, words=words)


PAGES: dict[str, tuple[LabReport, dict[str, Any]]] = {
    "light": (lab(), {"color_scheme": "light", "hovers": "speedup"}),
    "dark": (lab(size_="quick"), {"color_scheme": "dark"}),
    "print": (lab(), {"color_scheme": "dark", "media": "print"}),
    "narrow": (lab(), {"viewport": {"width": 380, "height": 800}}),
    **{f"hostile {turn}": (hostile(turn), {}) for turn in (0, 4)},
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    folder = tmp_path_factory.mktemp("pages")
    with browsing() as browser:
        return {
            name: visit(browser, folder, page(contents(report), scripts=bundle()), **options)
            for name, (report, options) in PAGES.items()
        }


@pytest.mark.parametrize("name", PAGES)
def test_every_chart_is_drawn_and_nothing_leaves_the_page(seen: dict[str, Seen], name: str) -> None:
    assert seen[name].errors == []
    assert seen[name].undrawn == []
    assert seen[name].requests == []
    assert len(seen[name].marks) == 5
    assert min(seen[name].marks.values()) >= 4, seen[name].marks


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("hostile")])
def test_hostile_strings_stay_text(seen: dict[str, Seen], name: str) -> None:
    assert not seen[name].hacked
    assert all(odd in seen[name].text for odd in ODD if odd.isprintable() and len(odd) < 100)


def test_light_dark_and_print(seen: dict[str, Seen]) -> None:
    assert seen["light"].background == seen["print"].background == "rgb(255, 255, 255)"
    assert seen["dark"].background == "rgb(20, 24, 28)"
    assert seen["light"].stroke == seen["print"].stroke == "rgb(0, 114, 178)"
    assert seen["dark"].stroke == "rgb(86, 180, 255)"


def test_hovering_shows_the_value(seen: dict[str, Seen]) -> None:
    assert "(" in seen["light"].hover
    assert "workers" in seen["light"].hover


def test_paper_has_no_folded_parts(seen: dict[str, Seen]) -> None:
    assert seen["print"].open_details > seen["light"].open_details


@pytest.mark.parametrize("name", [name for name in PAGES if name != "print"])
def test_nothing_is_wider_than_the_window(seen: dict[str, Seen], name: str) -> None:
    assert seen[name].overflow <= 0
