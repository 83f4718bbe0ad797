"""Looking into figures."""

from __future__ import annotations

from typing import Any

from farandole.report.figure import Figure, Missing


def drawn(found: Figure | Missing) -> Figure:
    """Return the figure, and fail where there is none."""
    assert isinstance(found, Figure), found
    return found


def rows(figure: Figure) -> list[dict[str, Any]]:
    """Return all rows of all data in a specification."""
    return [row for values in figure.spec["datasets"].values() for row in values]
