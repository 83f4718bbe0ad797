"""What is averaged over the workers: gradients, in every step."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from farandole.format import plural, size, whole
from farandole.labs import columns
from farandole.labs.lab import Answered, Found, Question
from farandole.labs.settings import settings_of
from farandole.report.table import Column, Table
from farandole.study.records import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What the workers of one launch exchanged."""

    ranks: int
    steps: int
    gradient_bytes_per_step: float | None
    """That a rank sent, over its whole run and steps."""
    model_bytes: int | None
    """Of all gradients once."""
    fingerprints: int
    """Different ones among the ranks' weights; 0 where none was taken."""

    @property
    def together(self) -> bool:
        """Whether every step moved gradients and all ranks ended with the same weights."""
        return bool(self.gradient_bytes_per_step) and self.fingerprints == 1


def exchange(launch: Launch) -> Exchange:
    """Return what a launch's workers exchanged."""
    trained = [rank for rank in launch.ranks if len(rank.steps)]
    per_step = [rank.bytes_sent.get("gradients", 0) / len(rank.steps) for rank in trained]
    payload = [b for rank in trained if (b := rank.gradient_bytes_per_step) is not None]
    weights = {rank.weights for rank in trained if rank.weights is not None}
    return Exchange(
        ranks=len(launch.ranks),
        steps=min((len(rank.steps) for rank in trained), default=0),
        gradient_bytes_per_step=median(per_step) if per_step else None,
        model_bytes=max(payload, default=None),
        fingerprints=len(weights),
    )


def answer_averaging(found: Found, question: Question) -> Answered:
    """Answer by bytes per step and by fingerprints of the weights."""
    rows: list[tuple[Any, ...]] = []
    seen: list[Exchange] = []
    for one in settings_of(found, "workers", "recipes"):
        ended = [launch for launch in one.launches if launch.outcome == "ok"]
        if not ended:
            continue
        moved = exchange(ended[-1])
        seen.append(moved)
        rows.append(
            (
                *(one.recipe, one.workers, one.epochs, moved.steps),
                *(moved.gradient_bytes_per_step, moved.model_bytes, moved.fingerprints),
            )
        )
    table = Table(
        name=question.key,
        title="Gradients sent per step, and different weights at the end",
        columns=(
            columns.RECIPE,
            columns.WORKERS,
            Column(key="epochs", title="epochs", show=whole),
            Column(key="steps", title="steps", show=whole),
            Column(key="gradient_bytes", title="gradients sent per step and rank", show=size),
            Column(key="model_bytes", title="all gradients once", show=size),
            Column(key="fingerprints", title="different weights", show=whole),
        ),
        rows=tuple(rows),
        notes=("Weights are compared by a fingerprint of all parameters after the last step.",),
    )
    return Answered(question=question, sentences=tuple(_said(seen)), tables=(table,))


def shown_by(moved: Exchange) -> str:
    """Say what one launch shows of its averaging."""
    each = moved.gradient_bytes_per_step or 0.0
    ends = "one and the same fingerprint" if moved.fingerprints == 1 else "different fingerprints"
    return (
        f"on {plural(moved.ranks, 'worker')} each rank sent {size(each)} of gradients in each of "
        f"{moved.steps:,} steps, and the weights of all {moved.ranks} ranks end with {ends}"
    )


def _said(seen: list[Exchange]) -> list[str]:
    several = [moved for moved in seen if moved.ranks > 1]
    if not several:
        return ["No launch on several workers ran to its end: nothing was exchanged."]
    most = max(several, key=lambda moved: moved.ranks)
    said = [f"Gradients are averaged in every step: {shown_by(most)}."]
    together = sum(moved.together for moved in several)
    said.append(
        f"The same holds in {together} of {plural(len(several), 'setting')} with several workers; "
        "weights never travel after the first broadcast, because equal gradients keep equal "
        "weights equal."
    )
    if together < len(several):
        said[0] = f"Not all workers trained together: {shown_by(most)}."
    return said
