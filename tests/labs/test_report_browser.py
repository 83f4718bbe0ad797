"""The page of a lab in a real browser: charts are drawn, nothing leaves it, strings stay text."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.labs.report import LabReport, document
from farandole.report.render import bundle, page
from tests.labs.report_builders import lab, oddly
from tests.report.builders import ODD, Words
from tests.report.visiting import LOOKS, Seen, browsing, visit


def hostile(turn: int) -> LabReport:
    """Return a lab all of whose strings are odd."""
    say = oddly(turn)
    words = Words(label=say(""), param=(say(""), say("")), metric=say(""), host=say(""))
    return lab(say, words=words)


PAGES: dict[str, tuple[LabReport, dict[str, Any]]] = {
    "light": (lab(), {"looks": LOOKS, "hovers": "speedup"}),
    "narrow": (lab(size_="quick"), {"viewport": {"width": 380, "height": 800}}),
    "hostile": (hostile(0), {}),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    folder = tmp_path_factory.mktemp("pages")
    found: dict[str, Seen] = {}
    with browsing() as browser:
        for name, (report, options) in PAGES.items():
            text = page(document(report), scripts=bundle())
            names = options.get("looks", (name,))
            found |= zip(names, visit(browser, folder, text, **options), strict=True)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_every_chart_is_drawn_and_nothing_leaves_the_page(seen: dict[str, Seen], name: str) -> None:
    assert seen[name].errors == []
    assert seen[name].undrawn == []
    assert seen[name].requests == []
    assert len(seen[name].marks) == 4
    assert min(seen[name].marks.values()) >= 4, seen[name].marks


def test_hostile_strings_stay_text(seen: dict[str, Seen]) -> None:
    assert not seen["hostile"].hacked
    assert all(odd in seen["hostile"].text for odd in ODD if odd.isprintable() and len(odd) < 100)


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


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_the_window(seen: dict[str, Seen], name: str) -> None:
    assert seen[name].overflow <= 0
