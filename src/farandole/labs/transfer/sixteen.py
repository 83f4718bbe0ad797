"""What 16 workers would do: projected from the runs here and from the lab's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from farandole.errors import FarandoleError
from farandole.format import brief, listed, plural, seconds, whole
from farandole.labs.columns import HERE, LAB, four
from farandole.labs.lab import Answered, Found
from farandole.labs.transfer.kind import Guess, Kind
from farandole.labs.transfer.questions import SIXTEEN, VALIDATION
from farandole.labs.transfer.times import CPU
from farandole.model.info.scaling import ScalingInfo
from farandole.model.projection.advice import Projection, project
from farandole.model.projection.intervals import Prediction
from farandole.model.projection.join import ProjectionRow
from farandole.model.projection.question import Question
from farandole.model.statistics import Estimate
from farandole.report.charts import lines
from farandole.report.table import Column, Table
from farandole.study.records import Study

WORKERS = 16
_GUESSED = "the author's guess"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A projection from one device's runs, or why there is none."""

    source: str
    device: str
    made: Projection | None
    why: str = ""
    fixed_s: Mapping[int, float] = field(default_factory=dict)
    """What a job takes beside its epochs, by workers."""
    jobs_s: Mapping[int, Estimate] = field(default_factory=dict)
    """Jobs of the lab's epochs as they were measured, by workers."""
    ends: Mapping[int, Estimate] = field(default_factory=dict)
    """Validation accuracy at the end as it was measured, by workers."""

    @property
    def series(self) -> str:
        """What it was projected from."""
        return f"{self.source}, {self.device}"


def outcomes(found: Found, kind: Kind) -> list[Outcome]:
    """Project the study of worker counts, and each device of the lab's table."""
    here, own = found.records.get("workers"), found.studies.get("workers")
    made = [_outcome(kind, HERE, CPU, here, own)]
    study = found.published_records.get(kind.published)
    info = found.published.get(kind.published)
    devices = dict.fromkeys(row.cell.device for row in (info.cells if info else ()))
    several = len(devices) > 1
    return made + [
        _outcome(kind, LAB, device or "GPU", study, info, device if several else None)
        for device in devices
    ]


def answer_sixteen(found: Found, kind: Kind) -> Answered:
    """Answer by `farandole project`, beside the author's guess where there is one."""
    made = outcomes(found, kind)
    table = Table(
        name=SIXTEEN.key,
        title=f"{WORKERS} workers, projected",
        columns=(
            Column(key="source", title="from", text=True),
            Column(key="workers", title="workers", show=whole),
            Column(key="kind", title="figures", text=True),
            Column(key="link", title="link", text=True),
            Column(key="epoch_s", title="epoch", show=seconds, interval=True),
            Column(key="epochs", title="epochs to stability", show=brief, interval=True),
            Column(key="job_s", title=f"job of {kind.epochs} epochs", show=seconds, interval=True),
            Column(key="validation", title="validation accuracy", show=four, interval=True),
        ),
        rows=(
            *(_row(one, row, kind) for one in made if one.made for row in one.made.rows),
            *_guess_rows(kind.guess),
        ),
        notes=(
            f"Intervals of projected rows are of 90 %. A job that was not measured: {kind.epochs} "
            "times the epoch, and what a job took beside its epochs, on 16 workers as on the most "
            "that were measured.",
        ),
    )
    return Answered(
        question=SIXTEEN,
        sentences=tuple(_said(made, kind)),
        tables=(table,),
        figures=(
            lines(
                "epoch-at-sixteen",
                f"Epoch time up to {WORKERS} workers",
                "Filled marks: measured here. Hollow ones: the lab's, the author's guess, and "
                "projections, whose bars are 90 % intervals; on the middle one of the links in the "
                "table. Logarithmic axes.",
                _drawn(made, kind),
                x="workers",
                y="epoch_s",
                series="series",
                x_log=True,
                log=True,
                published=_elsewhere(made, kind),
            ),
        ),
    )


def _outcome(
    kind: Kind,
    source: str,
    device: str,
    study: Study | None,
    info: ScalingInfo | None,
    only: str | None = None,
) -> Outcome:
    if study is None or info is None:
        return Outcome(source=source, device=device, made=None, why="there is no study")
    asked = Question(workers=(WORKERS,), only=(("device", only),) if only is not None else ())
    jobs = [job for job in info.job_times if only is None or job.cell.device == only]
    # Less than nothing is a contradiction in a table, not a cost.
    fixed = {job.cell.workers: max(0.0, job.fixed_s) for job in jobs if job.fixed_s is not None}
    whole_jobs = {job.cell.workers: job.job_s for job in jobs if job.epochs == kind.epochs}
    ends = {
        row.cell.workers: row.final
        for row in info.metrics
        if row.metric == VALIDATION and row.final and (only is None or row.cell.device == only)
    }
    try:
        return Outcome(
            source=source,
            device=device,
            made=project(study, info, asked),
            fixed_s=fixed,
            jobs_s={workers: job_s for workers, job_s in whole_jobs.items() if job_s is not None},
            ends=ends,
        )
    except FarandoleError as error:
        return Outcome(source=source, device=device, made=None, why=str(error).rstrip("."))


def _interval(
    projected: Prediction | None, factor: float = 1.0, plus: float = 0.0
) -> Estimate | None:
    if projected is None:
        return None
    value, low, high = (
        factor * end + plus for end in (projected.value, projected.low, projected.high)
    )
    return Estimate(value=value, low=low, high=high)


def _row(one: Outcome, row: ProjectionRow, kind: Kind) -> tuple[Any, ...]:
    return (
        *(one.series, row.workers, "measured" if row.measured else "projected", row.link or ""),
        *(_interval(row.epoch_s), _interval(_to_stability(one, row))),
        *(_job_s(one, row, kind), _end(one, row)),
    )


def _job_s(one: Outcome, row: ProjectionRow, kind: Kind) -> Estimate | None:
    """Return a job of the lab's epochs, beyond what was measured with the last fixed cost."""
    if row.measured and row.workers in one.jobs_s:
        return one.jobs_s[row.workers]
    last = one.fixed_s[max(one.fixed_s)] if one.fixed_s else 0.0
    return _interval(row.epoch_s, kind.epochs, one.fixed_s.get(row.workers, last))


def _end(one: Outcome, row: ProjectionRow) -> Estimate | None:
    """Return the validation accuracy at the end."""
    return one.ends.get(row.workers) if row.measured else _interval(row.metric)


def _to_stability(one: Outcome, row: ProjectionRow) -> Prediction | None:
    """Return the epochs of a row; those of a job that ends after so many are no finding."""
    goal = one.made.goal if one.made else None
    return row.epochs if goal is not None and goal.kind == "stable" else None


def _guess_rows(guess: Guess | None) -> list[tuple[Any, ...]]:
    if guess is None:
        return []
    source = f"{_GUESSED}, {guess.device}"
    figures = map(_bare, (guess.epoch_s, guess.stable_epoch, guess.job_s))
    return [(source, guess.workers, "guessed", "", *figures, None)]


def _bare(value: float) -> Estimate:
    return Estimate(value=value, low=None, high=None)


def _drawn(made: list[Outcome], kind: Kind) -> Table:
    rows: list[tuple[Any, ...]] = [
        (_series(one, row), row.workers, _interval(row.epoch_s))
        for one in made
        for row in (*_measured(one), *_projected(one))
        if row.epoch_s is not None
    ]
    if kind.guess is not None:
        rows.append((_GUESSED, kind.guess.workers, _bare(kind.guess.epoch_s)))
    return Table(
        name="epoch-at-sixteen",
        title="Epoch time: measured, projected and guessed",
        columns=(
            Column(key="series", title="figures", text=True),
            Column(key="workers", title="workers", show=whole),
            Column(key="epoch_s", title="epoch", show=seconds, interval=True),
        ),
        rows=tuple(rows),
    )


def _series(one: Outcome, row: ProjectionRow) -> str:
    if row.measured:
        return one.series
    return f"projected from {one.series}"


def _elsewhere(made: list[Outcome], kind: Kind) -> tuple[str, ...]:
    names = {
        _series(one, row)
        for one in made
        for row in (*_measured(one), *_projected(one))
        if one.source == LAB or not row.measured
    }
    return (*names, _GUESSED)


def _said(made: list[Outcome], kind: Kind) -> list[str]:
    said = []
    # What can be said first: it may open the report.
    for one in sorted(made, key=lambda one: one.made is None):
        if one.made is None:
            said.append(f"From {one.series} nothing can be projected: {one.why}.")
            continue
        said.append(f"From {one.series}: {one.made.headline}")
        said += [_beyond(one, row) for row in _projected(one)]
    return said + _guess_words(made, kind)


def _measured(one: Outcome) -> list[ProjectionRow]:
    return [row for row in (one.made.rows if one.made else ()) if row.measured]


def _projected(one: Outcome) -> list[ProjectionRow]:
    """Return what is projected, on the link that the headline speaks of: the middle one."""
    rows = [row for row in (one.made.rows if one.made else ()) if not row.measured]
    return rows[len(rows) // 2 :][:1]


def _beyond(one: Outcome, row: ProjectionRow) -> str:
    """Say what an epoch and the epochs are projected to be."""
    parts = []
    if row.epoch_s is not None:
        parts.append(f"an epoch of {_span(row.epoch_s, seconds)}")
    epochs = _to_stability(one, row)
    if epochs is not None:
        parts.append(f"{_span(epochs, brief)} epochs to stability")
    where = f" over {row.link}" if row.link else ""
    what = listed(parts) or "no time that is known"
    assert one.made is not None
    counts = listed([str(number) for number in one.made.measured_workers])
    return (
        f"{plural(row.workers, 'worker')}{where}, from runs on {counts}: {what} (90 % intervals)."
    )


def _span(projected: Prediction | Estimate, show: Any) -> str:
    return f"{show(projected.value)} ({show(projected.low)} to {show(projected.high)})"


def _guess_words(made: list[Outcome], kind: Kind) -> list[str]:
    guess = kind.guess
    if guess is None:
        return ["The author of this lab made no guess at 16 workers."]
    said = [
        f"The author's guess for {guess.workers} {guess.device}: {seconds(guess.epoch_s)} an "
        f"epoch, {brief(guess.stable_epoch)} epochs to stability, slightly more than "
        f"{seconds(guess.job_s)} for the job, similar accuracies."
    ]
    own = next((one for one in made if (one.source, one.device) == (LAB, guess.device)), None)
    for row in _projected(own) if own is not None else ():
        assert own is not None
        epochs, job_s = _interval(_to_stability(own, row)), _job_s(own, row, kind)
        judged = [
            f"{what} {'within' if _inside(guessed, found) else 'outside'} {_span(found, show)}"
            for what, guessed, found, show in (
                ("the epoch", guess.epoch_s, _interval(row.epoch_s), seconds),
                ("its epochs", guess.stable_epoch, epochs, brief),
                ("the job", guess.job_s, job_s, seconds),
            )
            if found is not None
        ]
        if judged:
            said.append(
                f"Beside what the lab's own {guess.device} rows project, the guess lies: "
                f"{', '.join(judged)}; {guess.workers} are {row.throughput.ratio:g} times the most "
                "that it measured."
            )
    return said


def _inside(guessed: float, projected: Estimate) -> bool:
    assert projected.low is not None
    assert projected.high is not None
    return projected.low <= guessed <= projected.high
