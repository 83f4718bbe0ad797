"""Looking at a page in a real browser. Whoever imports this is skipped where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("there is no chromium: apt-get install chromium", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


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


@contextmanager
def browsing() -> Iterator[Any]:
    """Give a browser, and end it."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


LOOKS: dict[str, dict[str, str]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "print": {"color_scheme": "dark", "media": "print"},
}
"""Ways to look at one page, in this order: what was unfolded for paper stays so."""


def visit(
    browser: Any,
    folder: Path,
    text: str,
    *,
    looks: Sequence[str] = ("light",),
    hovers: str = "",
    **options: Any,
) -> list[Seen]:
    """Open a page offline, wait until it has drawn, and look at it in one way or in several.

    Args:
        browser: Playwright's.
        folder: For the page's file.
        text: The page.
        looks: Of LOOKS; colours are the style sheet's, so that nothing is drawn again.
        hovers: Name of the chart whose last point the pointer goes to.
        options: Of the browser's context.
    """
    file = folder / "report.html"
    file.write_text(text, encoding="utf-8")
    context = browser.new_context(offline=True, **options)
    tab = context.new_page()
    errors: list[str] = []
    requests: list[str] = []
    tab.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(file.as_uri())
    tab.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=60_000)
    found = []
    for look in looks:
        if look == "print":
            tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        tab.emulate_media(**LOOKS[look])
        found.append(_seen(tab, errors, [url for url in requests if url != file.as_uri()], hovers))
        hovers = ""
    context.close()
    return found


def faults(browser: Any, folder: Path, text: str, axe: str, look: str) -> list[str]:
    """Return the serious faults that axe-core finds in a page with all of its parts opened."""
    file = folder / "report.html"
    file.write_text(text, encoding="utf-8")
    context = browser.new_context(offline=True, **LOOKS[look])
    tab = context.new_page()
    tab.goto(file.as_uri())
    tab.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=60_000)
    tab.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    tab.evaluate(axe)
    found = tab.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    context.close()
    return [
        f"{one['id']}: {one['nodes'][0]['html']}: {one['nodes'][0]['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def _seen(tab: Any, errors: list[str], requests: list[str], hovers: str) -> Seen:
    hover = ""
    if hovers:
        points = tab.locator(f"#chart-{hovers} .mark-symbol.role-mark path")
        points.last.scroll_into_view_if_needed()
        box = points.last.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        tab.mouse.move(x - 40, y - 40)
        tab.mouse.move(x, y, steps=4)
        hover = tab.locator("#vg-tooltip-element.visible").inner_text()
    charts = tab.locator(".chart")
    ids = [charts.nth(index).get_attribute("id") for index in range(charts.count())]
    shapes = ".mark-symbol path, .mark-rect path, .mark-line path, .mark-rule line, .mark-text text"
    return Seen(
        errors=list(errors),
        requests=requests,
        headline=tab.locator("h1").first.inner_text(),
        marks={name: tab.locator(f"[id='{name}'] svg").locator(shapes).count() for name in ids},
        undrawn=[name for name in ids if not tab.locator(f"[id='{name}'][data-drawn=yes]").count()],
        text=tab.locator("body").inner_text(),
        hacked=tab.evaluate("'hacked' in window"),
        hover=hover,
        background=tab.evaluate("getComputedStyle(document.documentElement).backgroundColor"),
        stroke=tab.evaluate(
            "(line => line ? getComputedStyle(line).stroke : '')"
            "(document.querySelector('.mark-line path[stroke=\"var(--c1)\"]'))"
        ),
        open_details=tab.locator("details[open]").count(),
        overflow=tab.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        ),
    )
