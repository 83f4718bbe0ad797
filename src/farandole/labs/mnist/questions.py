"""What the mnist lab asks, and how its tables name what they share."""

from __future__ import annotations

from farandole.labs.lab import Question
from farandole.report.table import Column
from farandole.report.text import NOT_MEASURED, known, whole

UTILISATION = Question(key="utilisation", text="How does utilisation depend on the batch?")
STEPS = Question(key="steps", text="How many steps does a job take?")
WORKERS = Question(
    key="workers",
    text="What time do 1, 2 and 4 workers take, how efficient, how accurate are they?",
)
BOTTLENECKS = Question(
    key="bottlenecks", text="Where are the bottlenecks: are utilisation or memory unequal?"
)
TWO_NODES = Question(key="two_nodes", text="What do two nodes change in batch and learning rate?")
KEEPING_ACCURACY = Question(
    key="keeping_accuracy", text="How is accuracy kept as the global batch grows?"
)
BEST = Question(key="best", text="Which number of workers gives the best accuracy?")

QUESTIONS = (UTILISATION, STEPS, WORKERS, BOTTLENECKS, TWO_NODES, KEEPING_ACCURACY, BEST)

METRIC = "val_accuracy"
HERE, LAB = "here", "the lab"


def four(value: float | None) -> str:
    """Show an accuracy with the digits that the lab gives it."""
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


SOURCE_COLUMN = Column(key="source", title="measured", text=True)
WORKERS_COLUMN = Column(key="workers", title="workers", show=whole)
RECIPE_COLUMN = Column(key="recipe", title="recipe", text=True)
ACCURACY_COLUMN = Column(key="accuracy", title="accuracy", show=four, interval=True)
