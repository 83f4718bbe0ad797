"""The answer: one sentence that is true, and what to do next."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from farandole.format import interval, listed, number, percent, plural, seconds, times
from farandole.model.accuracy import AccuracyVerdict, MetricRow
from farandole.model.curves import (
    NEAR,
    RECOMMENDED,
    Curve,
    CurvePoint,
    Prefer,
    SplitTable,
    group_of,
    recommend,
)
from farandole.model.measured import TOO_BUSY
from farandole.model.rows import CellRow
from farandole.model.verdicts import Bound, Verdict, Void, limited_by, undecided
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
# --epochs 10, --num-epochs=10, trainer.max_epochs=10
_EPOCHS = re.compile(r"(?:-*|[\w.]+\.)(?:num|max|n|train)?[-_]?epochs(?:=(\d+))?")

# What argparse, click and others say of a command line.
_WRONG_FLAG = re.compile(
    r"error: (?:unrecognized arguments|argument |the following arguments are required|ambiguous)"
    r"|[Nn]o such option|unrecognized option"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The one thing that a reader takes home."""

    headline: str
    """One short sentence: "Use 2 workers: 1.83x faster (1.79 to 1.87)."."""
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
    limit: str = ""
    """What limits it, in a few words: "communication takes 6 %"."""
    accuracy_words: str = ""
    """What is known of accuracy: "same accuracy"; empty where nothing is to be said."""
    sentences: tuple[str, ...] = ()
    """What follows the headline: other groups, missing parts."""


def give_answer(
    rows: Sequence[CellRow],
    curves: Sequence[Curve],
    *,
    main_metric: str | None,
    voids: Sequence[Void],
    verdicts: Sequence[Verdict],
    seeds: int,
    prefer: Prefer,
    split_tables: Sequence[SplitTable] = (),
) -> Answer:
    """Put the answer together from what was computed."""
    main = curves[0] if curves else None
    drawn = {point.cell for point in main.points} if main else {void.cell for void in voids}
    table = next((table for table in split_tables if table.best is not None), None)
    if relevant := [void for void in voids if void.cell in drawn]:
        return _void_answer(relevant)
    if main is None:
        return _empty_answer(rows, main_metric)
    if table is not None and all(len(curve.points) == 1 for curve in curves):
        return _split_answer(table)
    by_cell = {row.cell: row for row in rows}
    point, base = _chosen(main), main.points[0]
    single = len(main.points) == 1
    metric = _same_training(rows, point.cell, main_metric)
    accuracy: AccuracyVerdict = "not_measured"
    if metric is not None:
        accuracy = metric.verdict or "inconclusive"  # of this count alone: nothing to compare with
        if point is base and not single and not metric.diverged:
            accuracy = "same"
    # Where fewer are best, what limits is what keeps the others from being better.
    limiting = by_cell[(_fastest_other(main) if point is base else point).cell]
    fired = {v.kind for v in verdicts if limiting.label in v.labels or v.kind == "fixed_cost"}
    bound = limited_by(limiting.split, fired)
    imported = all(row.measured.imported for row in rows)
    missing = _without_figure(rows, main) if single else None
    headline = _only_one(main, missing) if single else _headline(main, point, accuracy, prefer)
    alike = [curve for curve in curves if curve.group == main.group]
    which = f"{main.label} ({main.scaling})" if len(alike) > 1 else main.group
    remarks = _remarks(main, verdicts)
    answer = Answer(
        headline="; ".join([f"{headline}, {which}" if which else headline, *remarks]) + ".",
        next=_next_row(main, accuracy, main_metric)
        if imported
        else _next(main, accuracy, bound, verdicts, missing),
        workers=point.workers,
        baseline_workers=main.baseline_workers,
        accuracy=accuracy,
        limited_by=bound,
        sentences=tuple(_sentences(curves, point, by_cell, prefer)),
    )
    if single:
        return answer
    words = "accuracy not measured"
    if accuracy == "not_measured" and not imported:
        takes = accuracy_time([by_cell[one.cell] for one in main.points], seeds)
        words += f" (--measure both{f', {takes}' if takes else ''})"
    elif accuracy != "not_measured":
        words = "" if point is base else _accuracy_words(accuracy, metric)
    bounds, speedup = None, point.speedup
    if speedup and speedup.low is not None and speedup.high is not None and point is not base:
        bounds = (speedup.low, speedup.high)
    return replace(
        answer,
        speedup=speedup.value if speedup else None,
        interval=bounds,
        efficiency=point.efficiency.value if point.efficiency else None,
        limit=_limit(bound, limiting),
        accuracy_words=words,
    )


# Accuracy


def _same_training(rows: Sequence[CellRow], cell: Cell, metric: str | None) -> MetricRow | None:
    """Return the metric of a cell, or of one that differs from it in nothing but speed."""
    alike = [
        found
        for row in rows
        if (found := row.metric(metric))
        and row.cell.workers == cell.workers
        and row.cell.params == cell.params
        and (row.cell.batch is None or cell.batch is None or row.cell.batch == cell.batch)
    ]
    return min(alike, key=lambda found: found.cell != cell, default=None)


def _accuracy_words(verdict: AccuracyVerdict, row: MetricRow | None) -> str:
    if verdict != "inconclusive":
        return f"{verdict} accuracy"
    if row is None or row.smallest_difference is None:
        return "accuracy inconclusive"
    smallest = number(row.smallest_difference)
    return f"accuracy inconclusive (differences below {smallest} cannot be detected)"


def accuracy_time(rows: Sequence[CellRow], seeds: int) -> str:
    """Say what accuracy runs of these cells would take: `about 14 min`, `about 20 s per epoch`.

    A script that came to its end tells by itself. Of one that was ended after an epoch its command
    may say how many there are; otherwise only what each of them takes is known. Empty when not even
    that is.
    """
    each: list[float | None] = []
    whole: list[float | None] = []
    for row in rows:
        job, launches = row.job, row.measured.launches
        epoch_s = None
        if job and job.job_s and job.epochs:
            # With the validation and the checkpoint that belong to an epoch.
            epoch_s = (job.job_s.value - (job.startup_s or 0.0)) / job.epochs
        lengths = [one.wall_s for one in launches if one.outcome == "ok" and one.wall_s]
        epochs = next((number for one in launches if (number := epochs_in(one.argv))), None)
        if not lengths and epochs and epoch_s is not None and job:
            lengths = [(job.startup_s or 0.0) + epochs * epoch_s]
        each.append(epoch_s)
        whole.append(max(lengths, default=None))
    known = [time_s for time_s in whole if time_s is not None]
    if len(known) == len(rows):
        return f"about {max(1, round(seeds * sum(known) / 60))} min"
    known = [time_s for time_s in each if time_s is not None]
    if len(known) < len(rows):
        return ""
    total_s = seeds * sum(known)
    if total_s < 90:
        return f"about {max(1, round(total_s))} s per epoch"
    return f"about {round(total_s / 60)} min per epoch"


def epochs_in(argv: Sequence[str]) -> int | None:
    """Return how many epochs a command asks for by a flag of the usual names."""
    for part, following in itertools.pairwise([*argv, ""]):
        match = _EPOCHS.fullmatch(part.lower())
        if match is None:
            continue
        text = match[1] or (following if part.startswith("-") else "")
        if text.isdecimal() and int(text):
            return int(text)
    return None


# The headline


def _chosen(curve: Curve) -> CurvePoint:
    good = [point for point in curve.points if point.valid] or curve.points[:1]
    return next((point for point in good if point.workers == curve.best_workers), good[0])


def _fastest_other(curve: Curve) -> CurvePoint:
    """Return the fastest point beside the baseline, which itself stands in when it is alone."""
    return max(
        (point for point in curve.points[1:] if point.speedup is not None),
        key=lambda point: point.throughput.value,
        default=curve.points[0],
    )


def _without_figure(rows: Sequence[CellRow], curve: Curve) -> CellRow | None:
    """Return a cell with another number of workers that was launched, but has no figure."""
    for row in rows:
        found, cell = row.measured, row.cell
        same = group_of(cell) == group_of(curve.points[0].cell) and not cell.today
        silent = not found.paces and not found.void_for_speed
        launched = bool(found.failed) or not found.imported
        if same and silent and launched and cell.workers != curve.baseline_workers:
            return row
    return None


def _only_one(curve: Curve, missing: CellRow | None) -> str:
    point, why = curve.points[0], "only one worker count was measured"
    if missing is not None:
        reason = missing.failed or missing.measured.crashed or "the machine was busy"
        why = f"no usable launch with {plural(missing.cell.workers, 'worker')} ({reason})"
    speed = f"{number(point.throughput.value)} {curve.unit}"
    return f"{plural(point.workers, 'worker')}: {speed}; no speedup: {why}"


def _headline(curve: Curve, point: CurvePoint, accuracy: AccuracyVerdict, prefer: Prefer) -> str:
    base = curve.points[0]
    best = _fastest_other(curve) if point is base else point
    assert best.speedup is not None
    fewest, workers = plural(base.workers, "worker"), plural(best.workers, "worker")
    factor, space, bounds = interval(best.speedup).partition(" ")
    once = "" if best.speedup.low is not None else ", one launch each"
    if point is base and undecided(best.speedup):
        return f"Cannot tell yet: {workers} are {factor} as fast as {fewest}{space}{bounds}{once}"
    if point is base and prefer == "money" and best.efficiency and best.speedup.value > 1 + NEAR:
        cost = times(1 / best.efficiency.value)
        return f"Use {fewest}: {workers} are {factor} faster{once}, but cost {cost} as much"
    if point is base:
        return f"Use {fewest}: {workers} reach only {factor}{space}{bounds}{once}"
    against = "" if base.workers == 1 else f" than {fewest}"
    changed = f", but {accuracy} accuracy" if accuracy in ("worse", "better") else ""
    return f"Use {workers}: {factor} faster{against}{space}{bounds}{once}{changed}"


def _limit(bound: Bound, row: CellRow) -> str:
    split = row.split
    if split is None or split.exposed_s is None or row.cell.workers < 2:
        return _BOUND_WORDS[bound]
    communication = f"communication takes {percent(split.share(split.exposed_s))}"
    return {
        "communication": communication,
        "compute": communication,
        "input": f"waiting for data takes {percent(split.share(split.data_s))}",
        "fixed_cost": f"{communication} of a step; fixed cost takes most of the job",
        "straggler": f"the others wait for the slowest for {percent(split.others_wait)} of a step",
    }.get(bound, _BOUND_WORDS[bound])


def _remarks(curve: Curve, verdicts: Sequence[Verdict]) -> list[str]:
    """Return why the headline's number is not to be taken as it is."""
    remarks = []
    if any(v.kind == "more_than_linear" and curve.label in v.labels for v in verdicts):
        remarks.append("superlinear, so check the baseline first")
    for verdict in verdicts:
        if verdict.kind == "disturbed":
            taken = float(verdict.evidence["largest share"])
            used = f"others used up to {percent(taken)} of the machine"
            remarks.append(used if 0 < taken <= TOO_BUSY else "not quotable: busy machine")
    return remarks


# What follows


def _next(
    curve: Curve,
    accuracy: AccuracyVerdict,
    bound: Bound,
    verdicts: Sequence[Verdict],
    missing: CellRow | None,
) -> str:
    if missing is not None:
        if missing.failed or missing.measured.crashed:
            return _after_failure(missing)
        return "Run it again on a quiet machine: farandole study --resume DIR."
    if len(curve.points) == 1:
        workers = curve.points[0].workers
        return f"Measure more workers: farandole study -np {workers},{2 * workers} ..."
    noisy = ("too_noisy", "no_intervals")
    for verdict in (
        *(one for one in verdicts if one.kind == "disturbed"),
        *(one for one in verdicts if one.kind in noisy and curve.label in one.labels),
        *(one for one in verdicts if one.kind.removesuffix("_bound") == bound != "compute"),
    ):
        return verdict.action
    if accuracy == "not_measured":
        return "Measure accuracy as well: --measure both."
    if accuracy == "inconclusive":
        return "Measure accuracy with more seeds: --measure both --seeds 5."
    more = 2 * curve.points[-1].workers
    return (
        f"For more workers, run farandole study -np {more},{2 * more} on a machine with that many "
        "cores or GPUs."
    )


def _next_row(curve: Curve, accuracy: AccuracyVerdict, metric: str | None) -> str:
    """Say what a table lacks: nothing can be launched for it."""
    if len(curve.points) == 1:
        return "Add rows with other numbers of workers to the table."
    if any(point.launches < 2 for point in curve.points):
        return "Add rows of repeated runs to the table to get intervals."
    if accuracy == "not_measured" and metric is not None:
        return f"Fill in {metric} where the table has none."
    if accuracy == "not_measured":
        return "Add a column with a metric, such as val_accuracy, to the table."
    if accuracy == "inconclusive":
        return "Add rows of more seeds to the table."
    return "Measure it where you are: farandole study -- COMMAND"


def _sentences(
    curves: Sequence[Curve], point: CurvePoint, rows: Mapping[Cell, CellRow], prefer: Prefer
) -> list[str]:
    main, *others = curves
    sentences = [main.sentence]
    speeds = {one.workers: one.throughput.value for one in main.points if one.valid}
    if len(speeds) > 1 and recommend(speeds, prefer) == point.workers:
        verb = "is" if point.workers == 1 else "are"
        rule = f"{plural(point.workers, 'worker')} {verb} {RECOMMENDED[prefer]}"
        fastest = max(speeds, key=lambda workers: speeds[workers])
        faster = speeds[fastest] / speeds[point.workers] - 1
        much = f"{percent(faster)} faster" if faster < 1 else f"{times(1 + faster)} as fast"
        more = f"; {plural(fastest, 'worker')} would be {much}" if faster else ""
        sentences.append(f"{rule} (--prefer {prefer}){more}.")
    if main.unit == "epochs/s" != rows[point.cell].unit:
        sentences.append(
            f"This speedup is of the time per epoch; {rows[point.cell].unit} disagree with it."
        )
    base, job = rows[main.points[0].cell].job, rows[point.cell].job
    if base and job and base is not job and base.job_s and job.job_s and main.unit != "jobs/s":
        before_s, after_s = base.job_s.value, job.job_s.value
        sentences.append(
            f"Whole job: {seconds(before_s)} with {plural(main.points[0].workers, 'worker')}, "
            f"{seconds(after_s)} with {plural(point.workers, 'worker')} "
            f"({times(before_s / after_s)} as fast)."
        )
    for curve in others:
        chosen, other = _chosen(curve), _fastest_other(curve).speedup
        if len(curve.points) < 2 or chosen.speedup is None:
            continue
        words = f"{plural(chosen.workers, 'worker')} {interval(chosen.speedup)}"
        if chosen is curve.points[0]:
            words = "more workers do not pay off"
            if other is not None and undecided(other):
                words = "cannot tell yet whether more workers pay off"
        sentences.append(f"{curve.label} ({curve.scaling}): {words}.")
    cost = rows[point.cell].cost
    if cost is not None:
        known = (
            ("the job", cost.job),
            ("the target", cost.to_target),
            ("an epoch", cost.per_epoch),
        )
        prices = [f"{number(value)} for {what}" for what, value in known if value is not None]
        if prices:
            sentences.append(
                f"At {cost.price_per_worker_hour:g} per worker-hour, "
                f"{plural(point.workers, 'worker')} cost {listed(prices)}."
            )
    return sentences


# Studies without a speedup


def _split_answer(table: SplitTable) -> Answer:
    """Answer a study of how to share the cores, in which each number of workers has its threads."""
    assert table.best is not None
    workers, threads = table.best
    where = f" ({table.label})" if table.label else ""
    return Answer(
        workers=workers,
        next=f"Use them: farandole run -np {workers} --threads {threads} ...",
        headline=f"{table.sentence[:-1]}{where}.",
    )


def _void_answer(voids: Sequence[Void]) -> Answer:
    """Answer a study whose workers did not train together, or whose work nobody saw."""
    first = min(voids, key=lambda void: void.cell.workers)
    more = f" (farandole doctor --explain {first.evidence['id']})" if "id" in first.evidence else ""
    return Answer(
        void=first.sentence,
        next=first.mend,
        headline=f"{first.sentence} {first.mend}",
        sentences=(f"No speedup is shown: {first.why}{more}.",),
    )


def _empty_answer(rows: Sequence[CellRow], metric: str | None) -> Answer:
    """Answer a study without any launch whose speed counts."""
    failed = [row for row in rows if row.failed or row.measured.crashed]
    reasons = [row.failed or row.measured.crashed or row.void_for_speed for row in rows]
    first = next(filter(None, reasons), "")
    why = f" ({first})" if first else ""
    trained = any(row.metric(metric) for row in rows)
    if not rows:
        headline = "This study has no launches yet."
        following = (
            "Continue it: farandole study --resume DIR, with a longer --time-limit if it had one."
        )
    elif all(row.measured.imported for row in rows):
        headline = "This table has no times and no throughput, so there is no speedup."
        following = "Add a column throughput, epoch_s, step_s or job_s."
    elif trained and not failed:
        headline = f"Accuracy was measured, but no launch counts for speed{why}."
        following = "Run it with --measure both."
    else:
        headline = f"No usable launch in {plural(len(rows), 'cell')}{why}."
        following = _after_failure(failed[0]) if failed else "Run it with --measure speed."
    return Answer(
        accuracy="inconclusive" if trained else "not_measured",
        next=following,
        headline=headline,
    )


def _after_failure(row: CellRow) -> str:
    """Say where to look after a failure, and how to go on."""
    launches = row.measured.launches
    bad = next(one for one in launches if one.outcome not in ("ok", "stopped"))
    if bad.outcome == "out_of_memory":
        return "Use a smaller batch, or give each worker more memory (--memory)."
    if bad.outcome == "timeout":
        return "Give launches more time (--launch-timeout), or fewer steps."
    if any(_WRONG_FLAG.search(line) for line in (bad.reason, *bad.last_output)):
        return (
            "Correct the command's flags and start a new study: --resume does not change the "
            f"command. The output is in launches/{bad.id}/output.txt."
        )
    return (
        f"Read launches/{bad.id}/output.txt, fix the cause, and continue with "
        "farandole study --resume DIR."
    )
