"""The answer: one sentence that is true, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farandole.format import fill, interval, number, percent, plural
from farandole.model.accuracy import AccuracyVerdict, MetricRow, accuracy_time
from farandole.model.curves import Curve, CurvePoint, group_of
from farandole.model.measured import TOO_BUSY, Measured
from farandole.model.rows import CellRow
from farandole.model.split import StepSplit
from farandole.model.sweeps import SplitTable
from farandole.model.verdicts import Bound, Verdict, limited_by, others_wait, share, undecided
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

    headline: str
    """One sentence: "2 workers: 1.83x faster (1.79 to 1.87), same accuracy; ..."."""
    next: str
    """The command or change to try next; never empty."""
    workers: int | None = None
    """How many to use; None when no launch counts or the study is void."""
    baseline_workers: int | None = None
    """What the speedup refers to: 1, or the smallest count that was measured."""
    speedup: float | None = None
    """None when void or when there is nothing to compare."""
    interval: tuple[float, float] | None = None
    """95 % interval of the speedup; None with one launch on either side."""
    efficiency: float | None = None
    accuracy: AccuracyVerdict = "not_measured"
    limited_by: Bound = "unknown"
    void: str | None = None
    """Why no speedup may be printed."""
    sentences: tuple[str, ...] = ()
    """What follows the headline: other groups, missing parts."""


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
    label = rows[limiting.cell].label
    fired = {v.kind for v in verdicts if label in v.labels or v.kind == "fixed_cost"}
    bound = limited_by(split, fired)
    speedup = None if single else point.speedup
    bounds = None
    if speedup is not None and speedup.low is not None and speedup.high is not None:
        bounds = (speedup.low, speedup.high)
    words = _ACCURACY_WORDS[accuracy]
    if accuracy == "not_measured" and not all(cell.imported for cell in cells):
        takes = accuracy_time(cells, main, {cell: row.job for cell, row in rows.items()}, seeds)
        words += f" (--measure both{f', {takes}' if takes else ''})"
    elif accuracy == "inconclusive" and point is not base:
        row = next((one for one in accuracy_rows if _alike(one.cell, point.cell)), None)
        if row is not None and row.smallest_difference is not None:
            words = fill(
                "accuracy inconclusive (differences below {smallest:number} cannot be detected)",
                smallest=row.smallest_difference,
            )
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
        used = f"others used up to {percent(taken)} of the machine"
        if not 0 < taken <= TOO_BUSY:
            used = "not quotable: busy machine" + f" ({used})" * bool(taken)
        headline = f"{headline[:-1]}; {used}."
    return Answer(
        workers=point.workers,
        baseline_workers=main.baseline_workers,
        speedup=speedup.value if speedup else None,
        interval=bounds if point is not base else None,
        efficiency=point.efficiency.value if point.efficiency and not single else None,
        accuracy=accuracy,
        limited_by=bound,
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
    if silent is not None or len(curve.points) == 1:
        why = "only one worker count was measured"
        if silent is not None:
            reason = silent.failed or silent.crashed or "the machine was busy"
            why = f"no launch with {plural(silent.cell.workers, 'worker')} counts ({reason})"
        return fill(
            "{group}{point.workers:worker}: {point.throughput.value:number} {unit}; {why}, so "
            "there is no speedup yet.",
            group=group,
            point=base,
            unit=curve.unit,
            why=why,
        )
    best = _fastest_other(curve) if point is base else point
    assert best.speedup is not None
    once = "" if best.speedup.low is not None else ", no interval after a single launch"
    words = {"group": group, "best": best, "base": base, "once": once, "limit": limit}
    if point is base:
        return fill(
            "{group}{pays}: {best.workers:worker} reach {best.speedup:interval} of "
            "{base.workers:worker}{once}{accuracy}; {limit}.",
            pays=_do_more_pay(best),
            accuracy=f", {accuracy}" if accuracy else "",
            **words,
        )
    against = "" if base.workers == 1 else f" than {plural(base.workers, 'worker')}"
    bounds = interval(best.speedup).partition(" ")
    return fill(
        "{group}{best.workers:worker}: {times} faster{against}{bounds}{once}, {accuracy}; {limit}.",
        times=bounds[0],
        bounds="".join(bounds[1:]),
        against=against,
        accuracy=accuracy,
        **words,
    )


def _do_more_pay(best: CurvePoint) -> str:
    if best.speedup is not None and undecided(best.speedup):
        return "Cannot tell yet whether more workers pay"
    return "More workers do not pay"


def _limit(bound: Bound, split: StepSplit | None) -> str:
    if split is not None and split.exposed_s is not None and split.cell.workers > 1:
        taken = f"communication takes {percent(share(split.exposed_s, split))}"
        if bound in ("communication", "compute"):
            return taken
        if bound == "input":
            return f"waiting for data takes {percent(share(split.data_s, split))}"
        if bound == "fixed_cost":
            return f"{taken} of a step, but fixed cost most of the job"
        if bound == "straggler":
            return f"the others wait for the slowest for {percent(others_wait(split))} of a step"
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
        if silent.failed or silent.crashed:
            return mend_line(silent)
        return "Run it again on a quiet machine: farandole study --resume DIR."
    if len(curve.points) == 1:
        more = 2 * point.workers
        return f"Measure more workers: farandole study -np {point.workers},{more} ..."
    noisy = ("too_noisy", "no_intervals")
    for verdict in (
        *(one for one in verdicts if one.kind == "disturbed"),
        *(one for one in verdicts if one.kind in noisy and curve.label in one.labels),
        *(one for one in verdicts if one.kind.removesuffix("_bound") == bound != "compute"),
    ):
        return verdict.action
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
            fill(
                "Whole job: {base:seconds} with {fewest:worker}, {job:seconds} with "
                "{workers:worker} ({ratio:times} as fast).",
                base=base.job_s.value,
                fewest=main.points[0].workers,
                job=job.job_s.value,
                workers=point.workers,
                ratio=base.job_s.value / job.job_s.value,
            )
        )
    for curve in curves[1:]:
        last, name = _chosen(curve), f"{curve.label} ({curve.scaling})"
        if len(curve.points) > 1 and last is curve.points[0]:
            pays = _do_more_pay(_fastest_other(curve))
            sentences.append(f"{name}: {pays[0].lower()}{pays[1:]}.")
        elif last.speedup is not None and len(curve.points) > 1:
            sentences.append(f"{name}: {plural(last.workers, 'worker')} {interval(last.speedup)}.")
    cost = rows[point.cell].cost
    if cost is not None:
        known = (("job", cost.job), ("target", cost.to_target), ("epoch", cost.per_epoch))
        words = [f"{name} {number(value)}" for name, value in known if value is not None]
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
        next=f"Use it: farandole run -np {workers} --threads {threads} ...",
        headline=f"{table.sentence[:-1]}{where}.",
    )


def void_answer(voids: Sequence[Void]) -> Answer:
    """Answer a study whose workers did not train together, or whose work nobody saw."""
    first = min(voids, key=lambda void: void.cell.workers)
    return Answer(
        void=first.sentence,
        next=first.mend,
        headline=f"{first.sentence} {first.mend}",
        sentences=(f"No speedup is shown: {why_no_speedup(first.kind)}.",),
    )


def empty_answer(cells: Sequence[Measured], rows: Sequence[MetricRow]) -> Answer:
    """Answer a study without any launch whose speed counts."""
    reasons = [cell.failed or cell.crashed or cell.void_for_speed for cell in cells]
    first = next((reason for reason in reasons if reason), "")
    if not cells:
        headline = "This study has no launches yet."
        following = (
            "Go on with it: farandole study --resume DIR, with a longer --time-limit if it had one."
        )
    elif all(cell.imported for cell in cells):
        headline = "This table has no times and no throughput, so there is no speedup."
        following = "Add a column throughput, epoch_s, step_s or job_s."
    elif rows and not any(cell.failed or cell.crashed for cell in cells):
        headline = "Accuracy was measured, but no launch counts for speed" + (
            f" ({first})." if first else "."
        )
        following = "Run it with --measure both."
    else:
        why = f" ({first})" if first else ""
        headline = f"No launch counts: {plural(len(cells), 'cell')}, none with a figure{why}."
        failed = next((cell for cell in cells if cell.failed or cell.crashed), None)
        following = "Run it with --measure speed." if failed is None else mend_line(failed)
    return Answer(
        accuracy="inconclusive" if rows else "not_measured",
        next=following,
        headline=headline,
    )
