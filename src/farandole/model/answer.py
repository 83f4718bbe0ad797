"""The answer: one sentence that is true, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farandole.format import plural
from farandole.model.accuracy import AccuracyVerdict, MetricRow, accuracy_time
from farandole.model.curves import Curve, CurvePoint, group_of
from farandole.model.measured import Measured, figure
from farandole.model.rows import CellRow
from farandole.model.split import StepSplit
from farandole.model.statistics import Estimate
from farandole.model.sweeps import SplitTable
from farandole.model.verdicts import Bound, Verdict, interval, limited_by, share, undecided
from farandole.model.void import Void, why_no_speedup
from farandole.study.records import Cell

_BOUND_WORDS: Mapping[Bound, str] = {
    "compute": "bound by compute",
    "communication": "bound by communication",
    "input": "bound by input",
    "straggler": "held up by one worker",
    "fixed_cost": "fixed cost dominates",
    "oversubscription": "too few cores for so many threads",
    "unknown": "what limits it was not measured",
}
_ACCURACY_WORDS: Mapping[AccuracyVerdict, str] = {
    "same": "same accuracy",
    "worse": "worse accuracy",
    "better": "better accuracy",
    "inconclusive": "accuracy inconclusive",
    "not_measured": "accuracy not measured",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The one thing that a reader takes home."""

    workers: int | None
    """How many to use; None when no launch counts or the study is void."""
    baseline_workers: int | None
    """What the speedup refers to: 1, or the smallest count that was measured."""
    speedup: float | None
    """None when void or when there is nothing to compare."""
    interval: tuple[float, float] | None
    """95 % interval of the speedup; None with one launch on either side."""
    efficiency: float | None
    accuracy: AccuracyVerdict
    limited_by: Bound
    void: str | None
    """Why no speedup may be printed."""
    next: str
    """The command or change to try next; never empty."""
    headline: str
    """One sentence: "2 workers: 1.83x faster (1.79 to 1.87), same accuracy; ..."."""
    sentences: tuple[str, ...] = ()
    """What follows the headline: other groups, today, missing parts."""


def give_answer(
    *,
    cells: Sequence[Measured],
    curves: Sequence[Curve],
    rows: Mapping[Cell, CellRow],
    main_metric: str | None,
    voids: Sequence[Void],
    verdicts: Sequence[Verdict],
    seeds: int,
    split_tables: Sequence[SplitTable] = (),
) -> Answer:
    """Put the answer together from what was computed."""
    accuracy_rows = [one for row in rows.values() if (one := row.metric(main_metric))]
    main = curves[0] if curves else None
    relevant = [void for void in voids if _concerns(void, main)]
    if relevant:
        return void_answer(relevant)
    if main is None:
        return empty_answer(cells, accuracy_rows)
    table = next((table for table in split_tables if table.best is not None), None)
    if table is not None and all(len(curve.points) == 1 for curve in curves):
        return split_answer(table)
    point = _chosen(main)
    base = main.points[0]
    single = len(main.points) == 1
    accuracy = judge_accuracy(point, base, accuracy_rows, alone=single)
    # Where fewer are best, what limits is what keeps the others from being better.
    limiting = _fastest_other(main) if point is base else point
    split = rows[limiting.cell].split
    fired = _fired(verdicts, limiting, cells)
    bound = limited_by(split, fired)
    speedup = None if single else point.speedup
    bounds = None
    if speedup is not None and speedup.low is not None and speedup.high is not None:
        bounds = (speedup.low, speedup.high)
    words = _ACCURACY_WORDS[accuracy]
    if accuracy == "not_measured" and not all(cell.imported for cell in cells):
        takes = accuracy_time(cells, main, {cell: row.job for cell, row in rows.items()}, seeds)
        words += f" (--measure both{f', {takes}' if takes else ''})"
    elif point is base:
        words = ""  # it is the baseline's own accuracy
    silent = _silent(cells, main) if single else None
    alike = [curve for curve in curves if curve.group == main.group]
    which = f"{main.label} ({main.scaling})" if len(alike) > 1 else main.group
    headline = _headline(which, main, point, base, words, _limit(bound, split), silent)
    if any(v.kind == "more_than_linear" and main.label in v.labels for v in verdicts):
        headline = f"{headline[:-1]}; more than linear, so check the baseline first."
    busy = next((v for v in verdicts if v.kind == "disturbed"), None)
    if busy is not None:
        taken = float(busy.evidence["largest share"])
        headline = f"{headline[:-1]}; others used up to {taken:.0%} of the machine."
    return Answer(
        workers=point.workers,
        baseline_workers=main.baseline_workers,
        speedup=speedup.value if speedup else None,
        interval=bounds if point is not base else None,
        efficiency=point.efficiency.value if point.efficiency and not single else None,
        accuracy=accuracy,
        limited_by=bound,
        void=None,
        next=_next(main, point, accuracy, bound, verdicts, silent)
        if not all(cell.imported for cell in cells)
        else _next_row(main, accuracy, main_metric),
        headline=headline,
        sentences=tuple(_sentences(main, point, curves, rows)),
    )


def judge_accuracy(
    point: CurvePoint, base: CurvePoint, rows: Sequence[MetricRow], *, alone: bool
) -> AccuracyVerdict:
    """Return the verdict on the metric at a point of a curve, which may be its only one."""
    same = [row for row in rows if _alike(row.cell, point.cell)]
    exact = [row for row in same if row.cell == point.cell] or same
    if not exact:
        return "not_measured"
    if point.workers == base.workers and not alone and not exact[0].diverged:
        return "same"
    verdict = exact[0].verdict
    # With metrics of this count alone there is nothing to compare with.
    return "inconclusive" if verdict is None else verdict


def _alike(cell: Cell, other: Cell) -> bool:
    """Tell whether accuracy measured in one cell holds for the other: speed may differ."""
    return (
        cell.workers == other.workers
        and cell.params == other.params
        and (cell.batch is None or other.batch is None or cell.batch == other.batch)
    )


def _concerns(void: Void, main: Curve | None) -> bool:
    return main is None or any(point.cell == void.cell for point in main.points)


def _chosen(curve: Curve) -> CurvePoint:
    good = [point for point in curve.points if point.valid]
    for point in good:
        if point.workers == curve.best_workers:
            return point
    return good[0] if good else curve.points[0]


def _fastest_other(curve: Curve) -> CurvePoint:
    """Return the fastest point beside the baseline, which itself stands in when it is alone."""
    return max(
        (point for point in curve.points[1:] if point.speedup is not None),
        key=lambda point: point.throughput.value,
        default=curve.points[0],
    )


def _fired(
    verdicts: Sequence[Verdict], point: CurvePoint, cells: Sequence[Measured]
) -> dict[str, Verdict]:
    label = next(cell.label for cell in cells if cell.cell == point.cell)
    return {
        verdict.kind: verdict
        for verdict in verdicts
        if label in verdict.labels or verdict.kind == "fixed_cost"
    }


def _silent(cells: Sequence[Measured], curve: Curve) -> Measured | None:
    """Return a cell with another number of workers that was launched, but has no figure."""
    return next(
        (
            cell
            for cell in cells
            if cell.cell.workers != curve.baseline_workers
            and group_of(cell.cell) == group_of(curve.points[0].cell)
            and not (cell.paces or cell.cell.today or cell.void_for_speed)
            and (cell.failed or not cell.imported)
        ),
        None,
    )


def _headline(
    which: str,
    curve: Curve,
    point: CurvePoint,
    base: CurvePoint,
    accuracy: str,
    limit: str,
    silent: Measured | None,
) -> str:
    group = f"{which}: " if which else ""
    alone = (
        f"{group}{plural(base.workers, 'worker')}: {figure(base.throughput.value)} {curve.unit}; "
    )
    if silent is not None:
        why = silent.failed or "the machine was busy"
        return (
            f"{alone}no launch with {plural(silent.cell.workers, 'worker')} counts ({why}), so "
            "there is no speedup yet."
        )
    if len(curve.points) == 1:
        return f"{alone}only one worker count was measured, so there is no speedup yet."
    against = "" if base.workers == 1 else f" than {plural(base.workers, 'worker')}"
    if point is base:
        best = _fastest_other(curve)
        assert best.speedup is not None
        pays = "More workers do not pay"
        if undecided(best.speedup):
            pays = "Cannot tell yet whether more workers pay"
        return (
            f"{group}{pays}: "
            f"{plural(best.workers, 'worker')} reach "
            f"{best.speedup.value:.2f}x{interval(best.speedup)} of "
            f"{plural(base.workers, 'worker')}{_once(best.speedup)}"
            f"{f', {accuracy}' if accuracy else ''}; {limit}."
        )
    assert point.speedup is not None
    return (
        f"{group}{plural(point.workers, 'worker')}: {point.speedup.value:.2f}x faster{against}"
        f"{interval(point.speedup)}{_once(point.speedup)}, {accuracy}; {limit}."
    )


def _once(speedup: Estimate) -> str:
    return "" if speedup.low is not None else ", no interval after a single launch"


def _limit(bound: Bound, split: StepSplit | None) -> str:
    if split is not None and split.exposed_s is not None and split.cell.workers > 1:
        taken = f"communication takes {share(split.exposed_s, split):.0%}"
        if bound in ("communication", "compute"):
            return taken
        if bound == "input":
            return f"waiting for data takes {share(split.data_s, split):.0%}"
        if bound == "fixed_cost":
            return f"{taken} of a step, but fixed cost most of the job"
        if bound == "straggler":
            return f"waiting for the slowest worker takes {share(split.waiting_s, split):.0%}"
    return _BOUND_WORDS[bound]


def _next(
    curve: Curve,
    point: CurvePoint,
    accuracy: AccuracyVerdict,
    bound: Bound,
    verdicts: Sequence[Verdict],
    silent: Measured | None,
) -> str:
    if silent is not None:
        if silent.failed:
            return mend_line(silent)
        return "Run it again on a quiet machine: farandole study --resume DIR."
    if len(curve.points) == 1:
        more = 2 * point.workers
        return f"Measure more workers: farandole study -np {point.workers},{more} ..."
    busy = next((verdict for verdict in verdicts if verdict.kind == "disturbed"), None)
    if busy is not None:
        return busy.action
    noisy = [verdict for verdict in verdicts if verdict.kind in ("too_noisy", "no_intervals")]
    about_speed = [verdict for verdict in noisy if curve.label in verdict.labels]
    if about_speed:
        return about_speed[0].action
    for kind, limit in (
        ("communication_bound", "communication"),
        ("input_bound", "input"),
        ("straggler", "straggler"),
        ("fixed_cost", "fixed_cost"),
        ("oversubscription", "oversubscription"),
    ):
        action = next((v.action for v in verdicts if v.kind == kind and bound == limit), None)
        if action is not None:
            return action
    if accuracy == "not_measured":
        return "Measure accuracy, too: --measure both."
    if accuracy == "inconclusive":
        return "Measure accuracy with more seeds: --measure both --seeds 5."
    more = 2 * curve.points[-1].workers
    return (
        f"To know about more workers, study -np {more},{2 * more} on a machine with as many cores "
        "or GPUs."
    )


def _next_row(curve: Curve, accuracy: AccuracyVerdict, metric: str | None) -> str:
    """Say what a table lacks: nothing can be launched for it."""
    if len(curve.points) == 1:
        return "Add rows with other numbers of workers to the table."
    if any(point.launches < 2 for point in curve.points):
        return "Add the rows of repeated runs to the table for intervals."
    if accuracy == "not_measured" and metric is not None:
        return f"Fill in {metric} where the table has none."
    if accuracy == "not_measured":
        return "Add a column with a metric, such as val_accuracy, to the table."
    if accuracy == "inconclusive":
        return "Add the rows of more seeds to the table."
    return "Measure it where you are: farandole study -- COMMAND"


def _sentences(
    main: Curve,
    point: CurvePoint,
    curves: Sequence[Curve],
    rows: Mapping[Cell, CellRow],
) -> list[str]:
    sentences = [main.sentence]
    base = rows[main.points[0].cell].job
    job = rows[point.cell].job
    if base and job and base is not job and base.job_s and job.job_s and main.unit != "jobs/s":
        sentences.append(
            f"The whole job: {figure(base.job_s.value)} s, then {figure(job.job_s.value)} s, "
            f"{base.job_s.value / job.job_s.value:.2f}x."
        )
    for curve in curves[1:]:
        last = _chosen(curve)
        if len(curve.points) > 1 and last is curve.points[0]:
            best = _fastest_other(curve).speedup
            pays = "more workers do not pay"
            if best is not None and undecided(best):
                pays = "cannot tell yet whether more workers pay"
            sentences.append(f"{curve.label} ({curve.scaling}): {pays}.")
        elif last.speedup is not None and len(curve.points) > 1:
            sentences.append(
                f"{curve.label} ({curve.scaling}): {plural(last.workers, 'worker')} "
                f"{last.speedup.value:.2f}x{interval(last.speedup)}."
            )
    cost = rows[point.cell].cost
    if cost is not None:
        known = (("job", cost.job), ("target", cost.to_target), ("epoch", cost.per_epoch))
        words = [f"{name} {figure(value)}" for name, value in known if value is not None]
        if words:
            sentences.append(
                f"At {cost.price_per_worker_hour:g} per worker and hour, "
                f"{plural(point.workers, 'worker')}: {', '.join(words)}."
            )
    return sentences


def mend_line(cell: Measured) -> str:
    """Say where to look after a failure, and how to go on."""
    bad = next(one for one in cell.launches if one.outcome not in ("ok", "stopped"))
    if bad.outcome == "out_of_memory":
        return "Use a smaller batch, or give each worker more memory (--memory)."
    if bad.outcome == "timeout":
        return "Give launches more time (--launch-timeout), or fewer steps."
    return (
        f"Look at launches/{bad.id}/output.txt, mend it, and go on with "
        "farandole study --resume DIR."
    )


def split_answer(table: SplitTable) -> Answer:
    """Answer a study of how to share the cores, in which each number of workers has its threads."""
    assert table.best is not None
    workers, threads = table.best
    where = f" ({table.label})" if table.label else ""
    return Answer(
        workers=workers,
        baseline_workers=None,
        speedup=None,
        interval=None,
        efficiency=None,
        accuracy="not_measured",
        limited_by="unknown",
        void=None,
        next=f"Use it: farandole run -np {workers} --threads {threads} ...",
        headline=f"{table.sentence[:-1]}{where}.",
    )


def void_answer(voids: Sequence[Void]) -> Answer:
    """Answer a study whose workers did not train together, or whose work nobody saw."""
    first = min(voids, key=lambda void: void.cell.workers)
    return Answer(
        workers=None,
        baseline_workers=None,
        speedup=None,
        interval=None,
        efficiency=None,
        accuracy="not_measured",
        limited_by="unknown",
        void=first.sentence,
        next=first.mend,
        headline=f"{first.sentence} {first.mend}",
        sentences=(f"No speedup is shown: {why_no_speedup(first.kind)}.",),
    )


def empty_answer(cells: Sequence[Measured], rows: Sequence[MetricRow]) -> Answer:
    """Answer a study without any launch whose speed counts."""
    reasons = [cell.failed or cell.void_for_speed for cell in cells]
    first = next((reason for reason in reasons if reason), "")
    # A cell that ran beside others explains more than one that failed: that has its own verdict.
    busy = any(one.busy for cell in cells if not cell.void_for_speed for one in cell.ended_well)
    if not cells:
        headline = "This study has no launches yet."
        following = (
            "Go on with it: farandole study --resume DIR, with a longer --time-limit if it had one."
        )
    elif all(cell.imported for cell in cells):
        headline = "This table has no times and no throughput, so there is no speedup."
        following = "Add a column throughput, epoch_s, step_s or job_s."
    elif busy:
        shares = [one.foreign_share for cell in cells for one in cell.launches if one.busy]
        known = [share for share in shares if share is not None]
        took = f" (they took up to {max(known):.0%} of the cores)" if known else ""
        headline = f"No launch counts for speed: the machine was busy with other programs{took}."
        if rows:
            headline = f"{headline[:-1]}; accuracy was measured all the same."
        # Only launches for speed are made again by --resume.
        timed = any(one.purpose == "speed" for cell in cells for one in cell.launches)
        following = "Run it again on a quiet machine" + (
            ": farandole study --resume DIR." if timed else ", into a new folder."
        )
    elif rows and not any(cell.failed for cell in cells):
        headline = "Accuracy was measured, but no launch counts for speed" + (
            f" ({first})." if first else "."
        )
        following = "Run it with --measure both."
    else:
        why = f" ({first})" if first else ""
        headline = f"No launch counts: {plural(len(cells), 'cell')}, none with a figure{why}."
        failed = next((cell for cell in cells if cell.failed), None)
        following = "Run it with --measure speed." if failed is None else mend_line(failed)
    return Answer(
        workers=None,
        baseline_workers=None,
        speedup=None,
        interval=None,
        efficiency=None,
        accuracy="inconclusive" if rows else "not_measured",
        limited_by="unknown",
        void=None,
        next=following,
        headline=headline,
    )
