"""Parts that pages have in common, as HTML: a figure, a machine, command lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from farandole.report import method
from farandole.report.escape import html
from farandole.report.figure import Figure
from farandole.report.table import Table, to_html

MOST_ROWS = 300
NEEDS_SCRIPT = "<noscript><p>The charts need JavaScript; their tables do not.</p></noscript>"


def tabulated(table: Table) -> str:
    """Return a table, the longest ones cut."""
    return to_html(table, limit=MOST_ROWS)


def figure(one: Figure, *, table: Literal["folded", "open", "elsewhere"] = "folded") -> str:
    """Return the place of a chart with its title, caption and table."""
    wide = " class=wide" if one.wide else ""
    under = ""
    if table != "elsewhere":
        state = " open" if table == "open" else ""
        rows = tabulated(one.table)
        under = f"<details{state}><summary>Table</summary>{rows}</details>"
    return (
        f"<figure{wide}><h3><bdi>{html(one.title)}</bdi></h3>\n"
        f'<div class=chart id="chart-{html(one.name)}" role=img aria-label="{html(one.alt)}">'
        "</div>\n"
        f"<figcaption>{html(one.caption)}</figcaption>\n"
        f"{under}</figure>"
    )


def machine(facts: Mapping[str, object]) -> str:
    """Return what is known of a machine as a list."""
    rows = "".join(
        f"<dt>{html(key)}</dt><dd><bdi>{html(value)}</bdi></dd>"
        for key, value in method.machine_rows(facts)
    )
    return f"<dl>{rows}</dl>" if rows else "<p>Not recorded.</p>"


def commands(lines: Sequence[str]) -> str:
    """Return command lines to copy."""
    return "<pre><code>" + "\n".join(html(line) for line in lines) + "</code></pre>"
