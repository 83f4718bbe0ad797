"""Rows of the labs' tables: cells and settings of studies, published figures, and their columns.

Every lab has one kind of row. `cell_rows` makes them of a study's cells, also of the lab's
published ones, `setting_rows` of the ways in which a script was run, by its own command.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from statistics import fmean, median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from farandole.errors import FarandoleError
from farandole.format import (
    BUSY,
    NOT_APPLICABLE,
    NOT_MEASURED,
    NOT_PUBLISHED,
    between,
    known,
    listed,
    number,
    optional,
    percent,
    plural,
    seconds,
    size,
    times,
    whole,
)
from farandole.labs.lab import Found, published_path
from farandole.labs.plan import LAB_RECIPES
from farandole.model.jobs import training_steps
from farandole.model.metrics import (
    Gap,
    finals_by_seed,
    mean_of_seeds,
    paired_gap,
    smallest_difference,
)
from farandole.model.statistics import (
    ACCURACY_MARGIN,
    LEAST_SEEDS,
    Estimate,
    ratio,
    relation,
    scaled,
    speed_relation,
)
from farandole.report.table import Column
from farandole.study.records import Launch, Study

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo
    from farandole.model.split import StepSplit
    from farandole.model.utilisation import UtilisationRow

HERE, LAB = "here", "the lab"
"""Where a row's figures come from."""
METRIC = "val_accuracy"


class Row(SimpleNamespace):
    """One setting with everything known about it; an attribute that is not known is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def but(self, **changes: Any) -> Row:
        """Return the row with changes."""
        return Row(**{**vars(self), **changes})


def table_rows(keys: str, *rows: Sequence[Any]) -> tuple[Row, ...]:
    """Return rows written as tuples under these keys: "samples epochs seeds"."""
    return tuple(Row(**dict(zip(keys.split(), row, strict=True))) for row in rows)


def having(rows: Iterable[Row], *keys: str, **values: Any) -> list[Row]:
    """Return the rows that have these figures, and these values."""
    return [
        row
        for row in rows
        if all(getattr(row, key) is not None for key in keys)
        and all(getattr(row, key) == value for key, value in values.items())
    ]


def first(rows: Iterable[Row], *keys: str, **values: Any) -> Row | None:
    """Return the first row that has these figures and values; None when none has."""
    return next(iter(having(rows, *keys, **values)), None)


# Rows of studies.

_OF_CELL = ("workers", "hosts", "threads", "batch", "device", "today")
_OF_JOB = ("job_s", "epoch_s", "epochs", "startup_s", "fixed_s", "fixed_share")
_OF_USE = ("cpu", "gpu", "memory_bytes")


def cell_rows(info: ScalingInfo | None, source: str = HERE) -> list[Row]:
    """Return one row per cell of a study, with everything that is known about the cell.

    Charts have hollow marks for what was not measured here.
    """
    rows = []
    for one in info.rows if info else ():
        cell, job, use, point = one.cell, one.job, one.utilisation, one.point
        main = one.metric(info.main_metric) if info else None
        counts = point if point and point.valid else None
        outcome, _, reason = one.failed.partition(": ")
        own = [each for each in info.launches if each.cell == cell] if info else []
        row = Row(**dict(cell.params)).but(**{f.name: getattr(one, f.name) for f in fields(one)})
        for part, names in ((cell, _OF_CELL), (job, _OF_JOB), (use, _OF_USE)):
            row = row.but(**{name: getattr(part, name, None) for name in names})
        rows.append(
            row.but(
                source=source,
                hollow=source != HERE,
                use=use,
                outcome=outcome or "ran",
                reason=reason,
                note=one.failed or one.void_for_speed,
                busy=any(each.why.startswith("the machine was busy") for each in own),
                rates=[each.throughput for each in own if each.kept and each.throughput],
                speedup=counts.speedup if counts else None,
                efficiency=counts.efficiency if counts else None,
                final=main.final if main else None,
                seeds=main.seeds if main else None,
                metrics={found.metric: found for found in one.metrics},
            )
        )
    return rows


def published_rows(found: Found, *names: str, **facts: Any) -> list[Row]:
    """Return the cells of the lab's tables, with what holds for all of them."""
    return [row.but(**facts) for name in names for row in cell_rows(found.published.get(name), LAB)]


def setting_rows(found: Found, *studies: str, metric: str = METRIC) -> list[Row]:
    """Return one row per way in which the script was run, with all that is known about its cell.

    Study by study, by recipe, workers and samples. `final` is the metric at the end of training,
    over the seeds that ran to their end; `records` has the launches.
    """
    rows, recipes = [], list(LAB_RECIPES)
    for study in studies:
        made = found.records[study].launches if study in found.records else ()
        settings = [
            _setting_row(found, launches, row.but(study=study), metric)
            for row in having(cell_rows(found.studies.get(study)), "batch", today=False)
            if (launches := [one for one in made if one.cell == row.cell])
            if launches[0].params.get("recipe") in recipes
        ]
        settings.sort(key=lambda row: (recipes.index(row.recipe), row.workers, row.samples))
        rows += settings
    return rows


def _setting_row(found: Found, launches: Sequence[Launch], cell: Row, metric: str) -> Row:
    """Add to a cell's row what its script was given, and how its launches ended."""
    given, workers, batch = launches[0].params, cell.workers, cell.batch
    recipe, base_rate = LAB_RECIPES[given["recipe"]], given.get("lr", math.nan)
    epochs = recipe.epochs(given.get("epochs", 1))
    samples = given.get("samples") or found.data.train
    return cell.but(
        records=launches,
        global_batch=batch * workers,
        recipe=recipe.name,
        longer=recipe.longer != 1.0,
        norm=given.get("norm"),
        order=given.get("order"),
        samples=samples,
        test_samples=given.get("test_samples") or found.data.test,
        epochs=epochs,
        base_rate=base_rate,
        rate=base_rate * (workers if recipe.scaled else 1),
        steps=training_steps(epochs, samples, batch, workers),
        # Each epoch ends with what is left of every worker's share.
        whole_steps=epochs * math.ceil(samples // workers / batch),
        counted=steps_made(launches),
        seeds=len({one.seed for one in launches if one.outcome == "ok"}),
        by_seed=finals_by_seed(launches, metric),
        final=final_mean(launches, metric),
    )


def final_mean(launches: Iterable[Launch], metric: str) -> Estimate | None:
    """Return a metric at the end, its mean over seeds with a 95 % interval; None when none has."""
    values = [value for value in finals_by_seed(launches, metric).values() if value == value]
    return mean_of_seeds(metric, values) if values else None


def steps_made(launches: Iterable[Launch]) -> int | None:
    """Return how many steps a run to its end made, the median over launches; None without any."""
    ended = [launch for launch in launches if launch.outcome == "ok" and launch.ranks]
    counts = [max(len(rank.steps) for rank in launch.ranks) for launch in ended]
    return round(median(counts)) if counts else None


def gap(row: Row, base: Row | None) -> Gap | None:
    """Return how far a setting's metric lies above another's, seed by seed; None for itself."""
    return None if row is base or not base else paired_gap(row.by_seed, base.by_seed)


def compared(rows: Iterable[Row]) -> list[Row]:
    """Return the settings that ended with an accuracy, beside the one with the fewest workers.

    That is the first row.
    """
    scored = having(rows, "final")
    own = [row for row in scored if row.study == "workers"]
    base = min(own, key=lambda row: int(row.workers), default=None)
    return sorted(against(base, scored), key=lambda row: not row.base)


def against(base: Row | None, rows: Iterable[Row]) -> list[Row]:
    """Return settings that ended with an accuracy, each beside the one that is the base.

    `gap` is the difference to it, seed by seed, `resolvable` the smallest that the test samples can
    tell from none, `verdict` what the two show, and `change` says all of it.
    """
    compared = []
    for row in rows:
        one, found = row.but(base=row is base), gap(row, base)
        one.not_applicable = ("difference", "resolvable") if one.base else ()
        one.gap, one.difference = found, found and found.difference
        one.resolvable = smallest(row)
        one.verdict = _verdict(found, one.resolvable)
        change = points(found.difference) if found else ""
        one.change = change if one.verdict in change else f"{change}: {one.verdict}"
        compared.append(one)
    return compared


def smallest(row: Row) -> float:
    """Return the smallest difference to another accuracy that a row's test samples can resolve."""
    return smallest_difference(row.test_samples, row.final.value, max(1, row.seeds))


def _verdict(gap: Gap | None, least: float) -> str:
    """Say what a difference shows, by its interval over seeds and by what can be resolved."""
    if gap is None:
        return ""
    difference = gap.difference
    if gap.diverged:
        return "diverged in some runs"
    if difference.low is None or difference.high is None:
        return "one seed: no interval"
    if abs(difference.value) < least:
        return "not resolved"
    if difference.low <= 0 <= difference.high:
        return "no difference shown"
    return "loses" if difference.high < 0 else "gains"


def judge(
    what: str, rows: Sequence[Row], key: str, *, least: float = 0.0, margin: float = ACCURACY_MARGIN
) -> str:
    """Say whether a figure changes from the first row to the last, by the model's test over runs.

    Rows are by workers and have the figure's value in each run under `key`; differences below
    `least` are not resolved, those within `margin` do not matter.
    """
    reference, values = (getattr(row, key) for row in (rows[0], rows[-1])) if rows else ([], [])
    runs, told = min(len(values), len(reference)), "cannot_tell"
    if len(rows) < 2 or not runs:
        return ""
    if abs(fmean(values) - fmean(reference)) >= least:
        told = relation(values, reference, margin=margin, least=LEAST_SEEDS)
    if told == "cannot_tell":
        needed = f"{LEAST_SEEDS} or more" if runs < LEAST_SEEDS else "more seeds or test samples"
        made = plural(runs, "run")
        return f"Whether workers change {what} cannot be told from {made} each; {needed} would."
    than = "the same as" if told == "same" else f"{told} than"
    return f"With {rows[-1].workers} workers, {what} is {than} with {rows[0].workers}."


def project_rows(study: Study | None, info: ScalingInfo | None, **asked: Any) -> list[Row]:
    """Return the rows of `farandole project`, or one that says why there are none.

    `kind` is "measured" or "projected", `middle` marks the link that a headline speaks of. Epochs
    are those to stability: what every job was given is no finding. `asked` are fields of the
    projection's question: workers, only, per_host.
    """
    from farandole.model.projection.advice import project  # imports SciPy
    from farandole.model.projection.question import Question

    if study is None or info is None:
        return [Row(kind="not projected", link="", why="there is no study")]
    try:
        made = project(study, info, Question(**asked))
    except FarandoleError as error:
        return [Row(kind="not projected", link="", why=str(error).rstrip("."))]
    stable = made.goal is not None and made.goal.kind == "stable"
    projected = [row for row in made.rows if not row.measured]
    rows = []
    for row in made.rows:
        figures = {
            key: Estimate(value=one.value, low=one.low, high=one.high)
            for key in ("throughput", "speedup", "step_s", "epoch_s", "epochs", "metric")
            if (one := getattr(row, key)) is not None and (stable or key != "epochs")
        }
        if "speedup" in figures:
            figures["efficiency"] = scaled(figures["speedup"], 1 / row.workers)
        kind = "measured" if row.measured else "projected"
        middle = bool(projected) and row is projected[len(projected) // 2]
        setting = Row(workers=row.workers, batch=row.batch, link=row.link or "")
        hollow = not row.measured
        rows.append(setting.but(kind=kind, middle=middle, hollow=hollow, **figures))
    return rows


def job_of(epoch_s: Estimate | None, epochs: float, fixed_s: float) -> Estimate | None:
    """Return the time of a job whose epochs take this long, beside which it has a fixed time."""
    if epoch_s is None:
        return None
    ends = (epoch_s.value, epoch_s.low, epoch_s.high)
    value, low, high = (None if end is None else epochs * end + fixed_s for end in ends)
    assert value is not None
    return Estimate(value=value, low=low, high=high)


def faster(row: Row, first: Row, key: str) -> float | None:
    """Return how many times as fast a row is as the first by one of its times: job_s, epoch_s."""
    return first[key].value / row[key].value if row[key] and first[key] else None


def exchanged(row: Row) -> Row:
    """Return a setting with what the workers of its last launch that ended well exchanged.

    `together`: every step moved gradients, and all ranks ended with the same weights.
    """
    ended = [launch for launch in row.records if launch.outcome == "ok"]
    if not ended:
        return row
    trained = [rank for rank in ended[-1].ranks if len(rank.steps)]
    sent = [rank.bytes_sent.get("gradients", 0) / len(rank.steps) for rank in trained]
    payload = [b for rank in trained if (b := rank.gradient_bytes_per_step) is not None]
    one = row.but(ranks=len(ended[-1].ranks), model_bytes=max(payload, default=None))
    one.steps = min((len(rank.steps) for rank in trained), default=0)
    one.gradient_bytes = median(sent) if sent else None
    one.fingerprints = len({rank.weights for rank in trained if rank.weights is not None})
    one.together = bool(one.gradient_bytes) and one.fingerprints == 1
    return one


# Columns: a key with its unit for files, a title for people.


def absent(row: Row, column: Column) -> str:
    """Say why a row has no figure in a column; every table of a lab uses these words."""
    if column.key in (row.not_applicable or ()):
        return NOT_APPLICABLE
    if column.key in (row.not_reached or ()):
        return "not reached"
    if "lab" in (row.source or ""):
        return NOT_PUBLISHED
    if row.void_for_speed:
        return NOT_APPLICABLE
    return BUSY if row.busy else NOT_MEASURED


def _shown(show: Callable[[float], str]) -> Callable[[float | None], str]:
    """Return how to show a figure that need not be known."""
    return lambda value: show(value) if value is not None and known(value) else NOT_MEASURED


four = _shown("{:.4f}".format)
"""Accuracies, as the labs do."""
five = _shown("{:.5f}".format)
signed = _shown(lambda value: f"{100 * value:+.2f}")
"""Differences of shares, in points."""
in_points = _shown(lambda value: f"{100 * value:.2f}")
"""Shares, in points."""
plain = _shown("{:g}".format)
"""Learning rates."""


def column(key: str, title: str, show: Callable[[Any], str] = number, get: Any = None) -> Column:
    """Return a column of figures."""
    return Column(key=key, title=title, show=show, get=get)


def measure(key: str, title: str, show: Callable[[Any], str] = number, get: Any = None) -> Column:
    """Return a column of figures with intervals."""
    return Column(key=key, title=title, show=show, get=get, interval=True)


def text(key: str, title: str, get: Any = None) -> Column:
    """Return a column of words."""
    return Column(key=key, title=title, text=True, get=get)


SOURCE, DEVICE, RECIPE = text("source", "measured"), text("device", "device"), text(*["recipe"] * 2)
WORKERS = column("workers", "workers", whole)
ACCURACY = measure("accuracy", "accuracy", four, "final")
COLUMNS = (
    *(SOURCE, DEVICE, RECIPE, WORKERS, ACCURACY),
    text("setting", "setting"),
    column("batch", "batch per worker", whole),
    column("global_batch", "global batch", whole),
    column("samples", "samples", whole),
    column("epochs", "epochs", whole),
    column("rate", "learning rate", plain),
    column("steps", "steps", whole),
    column("runs", "runs", whole, "seeds"),
    column("seeds", "seeds", whole),
    column("rank", "rank", whole),
    column("nodes", "nodes", whole),
    measure("samples_per_s", "samples/s", get="throughput"),
    measure("step_s", "step", seconds),
    measure("epoch_s", "epoch", seconds),
    measure("job_s", "job", seconds),
    measure("speedup", "speedup", times),
    column("job_speedup", "speedup of the job", times),
    measure("efficiency", "efficiency", percent),
    measure("difference", "difference (points)", signed),
    column("resolvable", "resolvable (points)", in_points),
    text("verdict", "verdict"),
    column("cpu", "CPU utilisation", percent),
    column("memory_bytes", "memory", size),
    column("gradient_bytes", "gradients sent per step and rank", size),
    column("fixed_s", "fixed", seconds),
    column("fixed_share", "fixed share", percent),
    column("counted", "counted", optional),
    text("optimizer", "optimizer"),
    column("epoch_speedup", "speedup of the epoch", times),
    measure("training", "training accuracy", four),
    measure("validation", "validation accuracy", four),
    measure("loss", "training loss"),
    measure("lost", "difference (points)", signed),
    column("diverged", "diverged", whole),
    column("fingerprints", "different weights", whole),
)
_BY_KEY = {one.key: one for one in COLUMNS}


def columns(*parts: str | Column) -> tuple[Column, ...]:
    """Return columns: shared ones by their keys ("source workers"), others as they are."""
    chosen: list[Column] = []
    for part in parts:
        chosen += [_BY_KEY[key] for key in part.split()] if isinstance(part, str) else [part]
    return tuple(chosen)


def estimate(value: float | None) -> Estimate | None:
    """Return a figure without an interval."""
    return None if value is None else Estimate(value=value, low=None, high=None)


# Words for sentences.


def points(estimate: Estimate) -> str:
    """Return a difference of shares in points: "-1.20 points (-2.10 to -0.30)"."""
    shown = f"{100 * estimate.value:+.2f} points"
    if estimate.low is None or estimate.high is None:
        return f"{shown} (one seed: no interval)"
    return f"{shown} ({100 * estimate.low:+.2f} to {100 * estimate.high:+.2f})"


_RELATIONS = {
    "higher": "The {what} of {first} is {ratio} that of {second}.",
    "lower": "The {what} of {first} is {ratio} that of {second}.",
    "same": "{first} and {second} have the same {what}.",
    "cannot_tell": "These launches cannot tell the {what} of {first} from that of {second}; more "
    "launches would.",
}


def relation_words(rows: Iterable[Row], what: str, name: str) -> str:
    """Say what the model's test finds between the rates of two rows; empty for fewer.

    `what` is "speed" or "speedup", `name` a setting's name as a pattern: "batch {batch}".
    """
    rates = {name.format_map(vars(row)): row.rates for row in rows}
    if len(rates) != 2 or not all(rates.values()):
        return ""
    (first, ours), (second, theirs) = rates.items()
    gain = ratio(ours, theirs)
    shown = times(gain.value)
    if gain.low is not None and gain.high is not None:
        shown += f" ({between(gain.low, gain.high, decimals=2)})"
    words = {"what": what, "first": first, "second": second, "ratio": shown}
    return _RELATIONS[speed_relation(ours, theirs)].format(**words)


def busy_sentence(found: Found) -> str:
    """Say once for a whole lab what other programs took of the machine; empty without any."""
    launches = [launch for study in found.records.values() for launch in study.launches]
    if not (busy := [launch for launch in launches if launch.busy]):
        return ""
    most = max((one.foreign_share or 0.0) + (one.steal_share or 0.0) for one in busy)
    return (
        f"Busy machine: other programs took up to {percent(most)} of the cores during {len(busy)} "
        f"of {plural(len(launches), 'launch')}. Times are rough; repeat the lab on a quiet machine "
        "before you quote them."
    )


def limits(found: Found, study: str) -> list[str]:
    """Say what limits a study's figures: workers beyond the cores, single runs."""
    record, info, cores = found.records.get(study), found.studies.get(study), found.asked.cores
    if record is None or info is None:
        return []
    said = []
    void = sorted({row.cell.workers for row in info.rows if row.cell.workers > cores})
    if void:
        words = f"{listed(list(map(str, void)))} workers share {plural(cores, 'core')}"
        said.append(f"{words}: their times are void, their results count.")
    if any(row.launches for row in info.rows) and all(row.launches < 2 for row in info.rows):
        said.append("One run per setting: differences may be noise.")
    return said


_LEAST_SHARE = 0.005
_PARTS = {
    "data": "waiting for data",
    "compute": "computing",
    "transfer": "the transfer of gradients",
    "waiting": "waiting for the slowest worker",
    "optimizer": "the update",
}


def use_words(row: UtilisationRow) -> str:
    """Say how busy the workers of a cell were, and what memory each took."""
    shares = [cpu for _, cpu, _, _ in row.by_rank if cpu is not None]
    memory = [taken for *_, taken in row.by_rank if taken is not None]
    several, workers = row.cell.workers > 1, plural(row.cell.workers, "worker")
    parts = [f"{_span(shares, percent)} of {'their' if several else 'its'} cores busy"]
    parts = [f"{'each keep' if several else 'keeps'} {part}" for part in parts if shares]
    parts += [f"{'take' if several else 'takes'} {_span(memory, size)} of memory"] * bool(memory)
    return f"{workers} {listed(parts)}." if parts else f"Nobody measured what {workers} used."


def _span(values: Sequence[float], show: Callable[[float], str]) -> str:
    return " to ".join(dict.fromkeys((show(min(values)), show(max(values)))))


def split_words(split: StepSplit) -> str:
    """Say what a typical step of a cell consists of, the largest part first."""
    parts = [(part / split.step_s, name) for name, part in split.parts().items() if part]
    shown = [
        f"{percent(share)} {_PARTS[name]}"
        for share, name in sorted(parts, reverse=True)
        if share >= _LEAST_SHARE
    ]
    workers = plural(split.cell.workers, "worker")
    return f"A step of {seconds(split.step_s)} on {workers} is {listed(shown)}."


def exchange_words(rows: Iterable[Row]) -> str:
    """Say what the workers of these settings averaged, by the one with most of them."""
    several = [row for row in rows if row.ranks > 1]
    if not several:
        return "No launch on several workers ran to its end: nothing was exchanged."
    most, apart = max(several, key=lambda row: int(row.ranks)), not all(r.together for r in several)
    said = "Not all workers trained together" if apart else "Gradients are averaged in every step"
    ends = "the same weights" if most.fingerprints == 1 else "different weights"
    sent, workers = size(most.gradient_bytes or 0.0), plural(most.ranks, "worker")
    return (
        f"{said}: on {workers} each rank sent {sent} of gradients in each of "
        f"{plural(most.steps, 'step')}, and all ranks end with {ends}."
    )


# Figures that a lab derived from its own, and references.


def claims_of(lab: str) -> tuple[Row, ...]:
    """Return a lab's derived figures, each beside what its own inputs give.

    `claimed` is as published, since its digits say how exact it means to be; `kind` is "ratio" for
    first / second, "less" for 1 - second / first.
    """
    return tuple(check_claim(**row) for row in _read("claims") if row.pop("lab") == lab)


def references_of(lab: str) -> tuple[str, ...]:
    """Return what a lab's report refers to."""
    return tuple(row["reference"] for row in _read("references") if lab in row["labs"].split())


def _read(name: str) -> Iterable[dict[str, str]]:
    lines = published_path(name).read_text(encoding="utf-8").splitlines()
    return csv.DictReader(line for line in lines if not line.startswith("#"))


def check_claim(what: str, kind: str, first: str, second: str, claimed: str) -> Row:
    """Derive a figure again and compare it to the digits given."""
    ratio, formula = float(first) / float(second), f"{float(first):.10g} / {float(second):.10g}"
    if kind == "less":
        ratio, formula = 1 - 1 / ratio, f"1 - {float(second):.10g} / {float(first):.10g}"
    digits = len(claimed.partition(".")[2])
    # Half a unit of the last digit, and a hair for the binary fraction.
    agrees = abs(ratio - float(claimed)) <= 0.5 * 10**-digits * (1 + 1e-9)
    sentence = f"{what[:1].upper()}{what[1:]}: {formula} is {ratio:.{max(digits, 2)}f}"
    sentence += ", as published." if agrees else f", not {claimed}."
    return Row(what=what, claimed=claimed, value=ratio, agrees=agrees, sentence=sentence)
