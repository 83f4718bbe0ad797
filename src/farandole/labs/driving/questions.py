"""What the driving lab asks, and how its tables name what they share."""

from __future__ import annotations

from farandole.format import NOT_MEASURED, known
from farandole.labs.lab import Question
from farandole.report.table import Column

WORKERS = Question(key="workers", text="What do time and loss become as workers are added?")
VERDICT = Question(key="verdict", text="Does it pay to add workers, and why not?")
SIZE = Question(key="size", text="From which size of the data set on would more workers pay?")
RANKS = Question(key="ranks", text="What loss does every rank see, as its tagged output tells?")
AVERAGING = Question(key="averaging", text="What is averaged over the workers, and how often?")

QUESTIONS = (WORKERS, VERDICT, SIZE, RANKS, AVERAGING)

METRIC = "val_loss"
CONSTANT = "constant_mse"
RANK_LOSS = "rank_loss"


def four(value: float | None) -> str:
    """Show a loss to four digits, however small it is."""
    return f"{value:.4g}" if value is not None and known(value) else NOT_MEASURED


LOSS_COLUMN = Column(key="loss", title="loss (MSE)", show=four, interval=True)
