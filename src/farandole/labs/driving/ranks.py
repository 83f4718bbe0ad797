"""The loss of every rank by epoch, and lines of a launch's tagged output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from farandole.format import brief, plural, whole
from farandole.labs import columns
from farandole.labs.driving.questions import RANK_LOSS, RANKS, four
from farandole.labs.lab import Answered, Found
from farandole.report.charts import lines
from farandole.report.table import Column, Table
from farandole.study.folder import LAUNCHES, OUTPUT_FILE
from farandole.study.records import Launch, Study

_MOST_LINES = 8


def answer_ranks(found: Found) -> Answered:
    """Answer by what every rank recorded, in the launch with the most workers that has it."""
    study = found.records.get("workers")
    launch = _most(study) if study else None
    losses = rank_losses(launch) if launch else {}
    table = Table(
        name="ranks",
        title="The training loss that each rank saw, by epoch",
        columns=(
            columns.WORKERS,
            Column(key="epoch", title="epoch", show=brief),
            Column(key="rank", title="rank", show=whole),
            Column(key="rank_loss", title="its own loss", show=four),
        ),
        rows=tuple(
            (launch.cell.workers, epoch, rank, value)
            for (epoch, rank), value in sorted(losses.items())
            if launch
        ),
    )
    tagged = _tagged(study, launch) if study and launch else ()
    output = Table(
        name="ranks-output",
        title="What the workers printed, as the launcher tags it",
        columns=(Column(key="line", title="line", text=True),),
        rows=tuple((line,) for line in tagged),
    )
    return Answered(
        question=RANKS,
        sentences=tuple(_said(launch, losses, tagged)),
        tables=(table, output) if tagged else (table,),
        figures=(
            lines(
                "loss-by-rank",
                "Training loss by rank",
                "Each rank's own loss, over its own samples, on a logarithmic axis.",
                table,
                x="epoch",
                y="rank_loss",
                series="rank",
                x_log=False,
                log=True,
            ),
        ),
    )


def rank_losses(launch: Launch) -> dict[tuple[float, int], float]:
    """Return each rank's own loss by epoch, the first being 1, and rank."""
    found: dict[tuple[float, int], float] = {}
    for rank in launch.ranks:
        own = [metric for metric in rank.metrics if metric.name == RANK_LOSS]
        for place, metric in enumerate(own):
            epoch = float(place) if metric.epoch is None else metric.epoch
            found[epoch, rank.rank] = metric.value
    # Keras counts epochs from 0, people from 1.
    first = 1 - min((epoch for epoch, _ in found), default=1.0)
    return {(epoch + first, rank): value for (epoch, rank), value in found.items()}


def tagged_lines(text: str, *, most: int = _MOST_LINES) -> tuple[str, ...]:
    """Choose lines of an output in which several ranks tell their losses.

    Args:
        text: of a launch, each line with its rank in front: "[1]<stdout>: ...".
        most: how many.
    """
    told = [line for line in text.splitlines() if line.startswith("[") and "loss" in line]
    others = [line for line in text.splitlines() if line.startswith("[")]
    return tuple((told or others)[-most:])


def _most(study: Study) -> Launch | None:
    """Return a launch with rank losses that has the most workers."""
    known = [one for one in study.launches if one.outcome == "ok" and rank_losses(one)]
    return max(known, key=lambda one: one.cell.workers, default=None)


def _tagged(study: Study, launch: Launch) -> tuple[str, ...]:
    """Read the launch's output; a study without a folder has none."""
    try:
        path = Path(study.path) / LAUNCHES / launch.id / OUTPUT_FILE
        return tagged_lines(path.read_text(errors="replace"))
    except OSError:
        return ()


def _said(
    launch: Launch | None, losses: dict[tuple[float, int], float], tagged: tuple[str, ...]
) -> list[str]:
    if launch is None or not losses:
        return ["No rank recorded its own loss: no launch ran to its end."]
    last = max(epoch for epoch, _ in losses)
    ends: dict[int, Any] = {rank: value for (epoch, rank), value in losses.items() if epoch == last}
    said = [
        f"In the last epoch on {plural(launch.cell.workers, 'worker')} the ranks' own losses lie "
        f"between {four(min(ends.values()))} and {four(max(ends.values()))}: each sees other "
        "samples with the same weights, so that losses differ and weights do not."
        if len(ends) > 1
        else f"The one rank ends with a loss of {four(ends[min(ends)])}."
    ]
    if tagged:
        said.append(
            f"{plural(len(tagged), 'line')} of that launch are shown as they were printed: the "
            "number in brackets is the rank."
        )
    return said
