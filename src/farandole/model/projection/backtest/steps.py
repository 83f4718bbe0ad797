"""Fit small rows, score large ones: how right projections of steps would have been."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from farandole.errors import DataError
from farandole.model.projection.backtest.baselines import fit_baselines
from farandole.model.projection.backtest.scores import FileScore, Guess, score
from farandole.model.projection.records import LEAST_ROWS, LinkSpeed, StepRow
from farandole.model.projection.steps.ensemble import fit_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Which rows are fitted, and what is told beside them."""

    fit_workers: int = 4
    """Rows of up to so many workers are fitted, all others scored."""
    fit_hosts: int | None = None
    """Rows of more hosts are not fitted either; None: all are."""
    link: LinkSpeed | None = None
    """What connects hosts, for fits that see one host only."""
    gradient_bytes: Mapping[str, int] = field(default_factory=dict)
    """By model, where known."""

    def fitted(self, row: StepRow) -> bool:
        """Tell whether a fit may see the row."""
        few_hosts = self.fit_hosts is None or row.hosts <= self.fit_hosts
        return few_hosts and row.workers <= self.fit_workers

    def scored(self, row: StepRow) -> bool:
        """Tell whether the row is large enough to be scored."""
        return row.workers > self.fit_workers


def backtest_steps(
    groups: Mapping[tuple[str, str], Sequence[StepRow]],
    split: Split,
    *,
    notes: Iterable[str] = (),
) -> FileScore:
    """Fit each model of each cluster on its small rows and score its large ones.

    Args:
        groups: Rows by cluster and model.
        split: Which rows are small.
        notes: Sentences on the file, to be passed on.

    Raises:
        DataError: No model has rows to fit and rows to score.
    """
    told = list(notes)
    guesses: list[Guess] = []
    rows_fit = 0
    several = len({cluster for cluster, _ in groups}) > 1
    for (cluster, model), rows in groups.items():
        name = (f"{cluster} {model}" if several else model) or "all"
        small = [row for row in rows if split.fitted(row)]
        large = [row for row in rows if split.scored(row)]
        if len(small) < LEAST_ROWS or not large:
            told.append(_left_out(name, len(small), len(large), split))
            continue
        rows_fit += len(small)
        guesses += guess_steps(
            small,
            large,
            group=name,
            link=split.link,
            gradient_bytes=split.gradient_bytes.get(model),
        )
    if not guesses:
        raise DataError(" ".join(told))
    return score("steps", guesses, rows_fit=rows_fit, notes=told)


def guess_steps(
    small: Sequence[StepRow],
    large: Sequence[StepRow],
    *,
    group: str = "",
    link: LinkSpeed | None = None,
    gradient_bytes: float | None = None,
) -> list[Guess]:
    """Fit the small rows and say what the large ones take; their times only go into the guess."""
    fit = fit_steps(small, link=link, gradient_bytes=gradient_bytes)
    laws = fit_baselines(small)
    projected = fit.at_each([(row.workers, row.hosts, row.batch) for row in large])
    return [
        Guess(
            group=group,
            key=str(row.workers),
            measured=row.step_s,
            projected=said,
            baselines={name: law(row) for name, law in laws.items()},
            label=f"{row.workers} workers on {row.hosts} nodes, batch {row.batch}",
        )
        for row, said in zip(large, projected, strict=True)
    ]


def _left_out(name: str, small: int, large: int, split: Split) -> str:
    limit = f"{split.fit_workers} workers"
    if split.fit_hosts is not None:
        limit += f" on {split.fit_hosts} nodes"
    return (
        f"{name} was left out: it has {small} rows of up to {limit} to fit and {large} larger ones "
        f"to score. It needs {LEAST_ROWS} and 1; --fit-workers moves the limit."
    )
