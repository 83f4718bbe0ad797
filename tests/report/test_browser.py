"""The page in a real browser: charts are drawn, nothing leaves it, names stay text.

All pages are visited once, by a fixture of the module, so that no process of the browser lives
while a test runs; the tests look at what was seen.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from farandole.model.info import Comparison, ScalingInfo
from farandole.model.statistics import Estimate
from farandole.report.contents import contents
from farandole.report.page import page
from farandole.report.render import bundle
from tests.report.builders import HEADLINE, Words, comparison, study
from tests.report.test_contents import with_floats

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("there is no chromium: apt-get install chromium", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PAPER, NIGHT = "rgb(255, 255, 255)", "rgb(20, 24, 28)"
ODD = (
    "<script>window.hacked=1</script>",
    '"]; window.hacked=1; //',
    "datum['x']",
    "{{constructor.constructor('window.hacked=1')()}}",
    "</script><img src=x onerror=window.hacked=1>",
    "a.b[0]\\'\"",
    "שלום \u202e עולם",
    "NaN",
    "x" * 3000,
    "url(javascript:window.hacked=1)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a visit found."""

    errors: list[str]
    requests: list[str]
    headline: str
    marks: dict[str, int]
    """Drawn shapes by chart."""
    undrawn: list[str]
    text: str
    hacked: bool
    hover: str
    background: str
    stroke: str
    """Of the first series' line."""
    open_details: int
    overflow: int
    """Pixels by which the page is wider than its window."""


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
    first = info.metric_curves[0]
    broken = replace(first, points=(replace(first.points[0], value=nan), *first.points[1:]))
    return replace(
        info,
        answer=replace(info.answer, headline=words[0], next=words[1]),
        cells=(replace(info.cells[0], throughput=nan), *info.cells[1:]),
        metric_curves=(broken, *info.metric_curves[1:]),
    )


PAGES: dict[str, tuple[ScalingInfo | Comparison, dict[str, Any]]] = {
    "light": (study(), {"color_scheme": "light", "hovers": True}),
    "dark": (study(), {"color_scheme": "dark"}),
    "print": (study(), {"color_scheme": "dark", "media": "print"}),
    "narrow": (study(), {"viewport": {"width": 380, "height": 800}}),
    "several": (comparison(), {}),
    "void": (study(void="Your 2 workers trained 2 separate models."), {}),
    "nan": (with_floats(study(), math.nan), {}),
    "zero": (with_floats(study(), 0.0), {}),
    "huge": (with_floats(study(), 1e300), {}),
    **{f"hostile {turn}": (hostile(turn), {}) for turn in (0, 3, 7)},
}


SENSELESS = ("nan", "zero", "huge")
"""Whose figures make no sense: few charts, and no error."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    folder = tmp_path_factory.mktemp("pages")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            found = {
                name: visit(browser, folder, info, **options)
                for name, (info, options) in PAGES.items()
            }
        finally:
            browser.close()
    return found


def visit(
    browser: Any,
    folder: Path,
    info: ScalingInfo | Comparison,
    *,
    media: str | None = None,
    hovers: bool = False,
    **options: Any,
) -> Seen:
    """Open a page offline, wait until it has drawn, and look at it."""
    file = folder / "report.html"
    file.write_text(page(contents(info), scripts=bundle()), encoding="utf-8")
    context = browser.new_context(offline=True, **options)
    tab = context.new_page()
    errors: list[str] = []
    requests: list[str] = []
    tab.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(file.as_uri())
    tab.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=60_000)
    if media is not None:
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        tab.emulate_media(media=media)
    hover = ""
    if hovers:
        points = tab.locator("#chart-speedup .mark-symbol path")
        points.last.scroll_into_view_if_needed()
        box = points.last.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        tab.mouse.move(x - 40, y - 40)
        tab.mouse.move(x, y, steps=4)
        hover = tab.locator("#vg-tooltip-element.visible").inner_text()
    charts = tab.locator(".chart")
    ids = [charts.nth(index).get_attribute("id") for index in range(charts.count())]
    shapes = ".mark-symbol path, .mark-rect path, .mark-line path, .mark-rule line, .mark-text text"
    result = Seen(
        errors=errors,
        requests=[url for url in requests if url != file.as_uri()],
        headline=tab.locator("h1").first.inner_text(),
        marks={name: tab.locator(f"[id='{name}'] svg").locator(shapes).count() for name in ids},
        undrawn=[name for name in ids if not tab.locator(f"[id='{name}'][data-drawn=yes]").count()],
        text=tab.locator("body").inner_text(),
        hacked=tab.evaluate("'hacked' in window"),
        hover=hover,
        background=tab.evaluate("getComputedStyle(document.documentElement).backgroundColor"),
        stroke=tab.evaluate(
            "(line => line ? getComputedStyle(line).stroke : '')"
            "([...document.querySelectorAll('#chart-accuracy-by-epoch .mark-line path')][0])"
        ),
        open_details=tab.locator("details[open]").count(),
        overflow=tab.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        ),
    )
    context.close()
    return result


@pytest.mark.parametrize("name", PAGES)
def test_every_chart_is_drawn_without_an_error(seen: dict[str, Seen], name: str) -> None:
    assert seen[name].errors == []
    assert seen[name].undrawn == []
    if name not in SENSELESS:
        assert len(seen[name].marks) >= 13
        assert min(seen[name].marks.values()) >= 4, seen[name].marks


@pytest.mark.parametrize("name", PAGES)
def test_no_request_leaves_the_page(seen: dict[str, Seen], name: str) -> None:
    assert seen[name].requests == []


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


@pytest.mark.parametrize("name", [name for name in PAGES if name != "print"])
def test_nothing_is_wider_than_the_window(seen: dict[str, Seen], name: str) -> None:
    assert seen[name].overflow <= 0
