"""What tables of several labs share: columns, and how figures are shown in them."""

from __future__ import annotations

from farandole.format import NOT_MEASURED, known, whole
from farandole.report.table import Column

HERE, LAB = "here", "the lab"
"""Where a row's figures come from."""


def four(value: float | None) -> str:
    """Show an accuracy with four decimals, as the labs do."""
    return f"{value:.4f}" if value is not None and known(value) else NOT_MEASURED


def signed(value: float | None) -> str:
    """Show a difference of accuracies in points."""
    return f"{100 * value:+.2f}" if value is not None and known(value) else NOT_MEASURED


def in_points(value: float | None) -> str:
    """Show a share in points."""
    return f"{100 * value:.2f}" if value is not None and known(value) else NOT_MEASURED


def plain(value: float | None) -> str:
    """Show a learning rate as one writes it."""
    return f"{value:g}" if value is not None and known(value) else NOT_MEASURED


SOURCE = Column(key="source", title="measured", text=True)
DEVICE = Column(key="device", title="device", text=True)
WORKERS = Column(key="workers", title="workers", show=whole)
RECIPE = Column(key="recipe", title="recipe", text=True)
ACCURACY = Column(key="accuracy", title="accuracy", show=four, interval=True)
