"""The labs on transfer learning, fruits and caltech: their plan, questions and corrections.

Both labs ask the same questions of different data. A `TransferLab` holds what differs, and
`transfer_lab` makes a `Lab` of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from farandole.format import brief, listed, plural, seconds, whole
from farandole.labs import plan as plans
from farandole.labs import rows as shared
from farandole.labs.data import describe_caltech, describe_fruits
from farandole.labs.lab import Asked, Correction, DataFacts, Found, Lab, Plan, Planned, Rate
from farandole.labs.networks import NONE, PRETRAINED, check_weights, choose_weights
from farandole.labs.plan import ORIGINAL, Training, Workload
from farandole.labs.questions import (
    UTILISATION,
    Question,
    bars,
    compare_recipes,
    correct,
    lines,
    sentences,
)
from farandole.labs.rows import HERE, LAB, Row, column, columns, having, measure, setting_rows, text
from farandole.model import metrics
from farandole.model.accuracy import when_stable
from farandole.model.statistics import ACCURACY_MARGIN, known_mean, mean, relation
from farandole.model.verdicts import GAP_MARGINS

TRAINING, VALIDATION = "accuracy", "val_accuracy"
"""Keras's names of the metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLab:
    """One lab on transfer learning: what the original was, and how much of it is run."""

    name: str
    rate: float
    original_rate: float
    """Of one worker: a rate that trains, and the lab's."""
    guess_rate: Rate
    """Of the smallest images, where no pilot has measured."""
    readings: tuple[str, ...]
    """Optimizers that the lab may have used; where there are several, it does not name one."""
    epochs: int
    train: str
    test: str
    train_images: int
    test_images: int
    workers: str
    devices: tuple[str, ...]
    projected: str
    """The device whose runs are projected to 16 workers."""
    guess: Row | None = None
    """What the author expected of these: epoch_s, epochs, job_s."""
    seen: str
    trained: str
    """Sentences: what the lab saw in its curves, and what it shows of its learning rate."""
    efforts: tuple[Row, ...]
    """The smallest is the quick one, the last the lab's protocol."""

    @property
    def original_studies(self) -> dict[str, str]:
        """Names of the studies at the lab's own rate, with their optimizers."""
        first, *others = self.readings
        return {ORIGINAL.name: first} | {f"{ORIGINAL.name}_{one}": one for one in others}


def efforts(*rows: Sequence[Any]) -> tuple[Row, ...]:
    """Return how much of a lab is run: a larger effort has no smaller figure.

    0 samples are all, `recipes` says how many of RECIPES, `original` which workers try the lab's
    rate, `same_batch` whether two workers also share the batch of one.
    """
    keys = "samples test_samples epochs seeds workers recipes original same_batch"
    return shared.table_rows(keys, *rows)


def transfer_lab(
    spec: TransferLab, code: Question, corrections: Sequence[Sequence[str]], **texts: Any
) -> Lab:
    """Return a lab as `farandole lab` knows it; `texts` are further fields of `Lab`.

    `code` asks how its code differs from the code that it began with, `corrections` are templates.
    """
    texts["introduction"] += (
        " This report repeats it here and says which differences its runs can show."
    )
    return Lab(
        name=spec.name,
        questions=questions(spec, code),
        published=(spec.name,),
        efforts=len(spec.efforts) - 1,
        data={"fruits": describe_fruits, "caltech": describe_caltech}[spec.name],
        pilot=lambda asked: (_workload(spec, asked).pilot(asked),),
        plan=partial(plan, spec),
        corrections=lambda found: corrected(spec, found, corrections),
        original=True,
        check_weights=check_weights,
        references=shared.references_of(spec.name),
        **texts,
    )


# The plan.

RECIPES = ("linear", "warmup", "fixed", "longer")
"""The labs' own first: they multiplied the rate by the workers, without a warm-up."""
IMAGE_SIZES = {"quick": 64, "budget": 96, "full": 224}
"""Pixels of a side. Networks of ImageNet take 224; on a CPU that costs several times as much."""


def plan(
    spec: TransferLab, asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int
) -> Plan:
    """Return the studies of a size."""
    here = plans.chosen(asked, (*spec.efforts[:1], *spec.efforts), effort)
    work, pixels = _workload(spec, asked), IMAGE_SIZES[asked.size]
    training = Training(work, asked, data, rates.get(work.name, work.guess), here)
    workers = plans.counts(asked, here.workers)
    chosen = tuple(name for name in asked.recipes if name != ORIGINAL.name)
    recipes = plans.recipes(replace(asked, recipes=chosen), RECIPES[: here.recipes])
    rate = f"Adam, {plans.recipe_words(spec.rate, recipes)}"
    if asked.recipes and not chosen:
        recipes = (ORIGINAL.name,)
        rate = f"{spec.readings[0].title()}, {spec.original_rate:.1f} x workers"
    optimizer = spec.readings[0].title() if len(spec.readings) == 1 else "optimizer not named"
    weights = choose_weights(asked.weights)
    known = {NONE: "random weights", PRETRAINED: "pretrained on ImageNet"}
    base = f"EfficientNet-Lite0, {known.get(weights, Path(weights).name)}"
    epochs = plans.epochs_words(here.epochs, recipes)
    return Plan(
        studies=tuple(_studies(spec, training, workers, recipes)),
        choices=plans.choices(
            ("device", f"{listed([*spec.devices])} GPUs", f"{asked.cores} cores, one per worker"),
            ("base network", "not named", base),
            ("images as trained", "size not said", f"{pixels} x {pixels} pixels"),
            plans.samples_choice("training samples", spec.train, here.samples, data.train),
            plans.samples_choice("test samples", spec.test, here.test_samples, data.test),
            ("epochs", f"{spec.epochs}", epochs, "to fit the time"),
            ("workers", spec.workers, plans.words(workers), plans.beyond(workers, asked.cores)),
            ("learning rate", f"{optimizer}, {spec.original_rate:.1f} x size()", rate),
            plans.DECAY,
        ),
    )


def _studies(
    spec: TransferLab,
    training: Training,
    workers: tuple[int, ...],
    recipes: tuple[str, ...],
) -> list[Planned]:
    work, asked, here = training.workload, training.asked, training.effort

    def changed(effort: Row = here, **script: Any) -> Training:
        return replace(training, effort=effort, workload=replace(work, **script))

    own = {
        name: changed(
            learning_rate=spec.original_rate,
            arguments=(*work.arguments, "--optimizer", optimizer),
        )
        for name, optimizer in spec.original_studies.items()
        if not asked.recipes or ORIGINAL.name in asked.recipes
    }
    several = tuple(number for number in workers if number > 1)
    first = own.pop(ORIGINAL.name) if recipes == (ORIGINAL.name,) else training
    studies = first.by_workers("Accuracy", recipes, workers, most=4)
    # Two workers make the steps of one, which must have the same rate and epochs.
    if here.same_batch and recipes[0] not in ("longer", ORIGINAL.name) and {1, 2} <= {*workers}:
        title = "Accuracy of 2 workers that share the batch of one"
        half = changed(batch=work.batch // 2)
        studies.append(half.study("same_batch", title, recipes=("fixed",), workers=(2,)))
    # What the rest shows needs no narrow interval to be seen.
    counts, once = plans.counts(asked, here.original), []
    for name, one in own.items():
        rate = f"{spec.original_rate:g} x workers, {spec.original_studies[name].title()}"
        one = replace(one, effort=here.but(seeds=min(here.seeds, 2)))
        title = f"The lab's rate, {rate}"
        once.append(one.study(name, title, recipes=(ORIGINAL.name,), workers=counts))
    if several:
        alone = changed(here.but(seeds=1, epochs=1), arguments=(*work.arguments, "--unwrapped"))
        title = "Without a DistributedOptimizer"
        once.append(alone.study("unwrapped", title, recipes=("fixed",), workers=several[:1]))
    return [*studies, *(replace(study, worth_repeating=False) for study in once)]


def _workload(spec: TransferLab, asked: Asked) -> Workload:
    """Return the script with the images' size, and the weights that were asked for."""
    weights = () if asked.weights is None else ("--weights", asked.weights)
    larger = IMAGE_SIZES[asked.size] / IMAGE_SIZES["quick"]
    return Workload(
        name=spec.name,
        script=f"{spec.name}.py",
        batch=32,
        learning_rate=spec.rate,
        guess=replace(spec.guess_rate, samples_per_s=spec.guess_rate.samples_per_s * larger**-2),
        few_test_samples=32,
        arguments=("--image-size", str(IMAGE_SIZES[asked.size]), *weights),
    )


# Rows: one per configuration, this machine's before the lab's.

LIMIT = GAP_MARGINS * ACCURACY_MARGIN
"""From this gap on a network counts as overfitted, here as in every study."""


def configurations(spec: TransferLab, found: Found) -> list[Row]:
    """Return what is known of every number of workers here, and of the lab's devices."""
    here = [row.but(device="CPU") for row in setting_rows(found, "workers")]
    lab = shared.published_rows(found, spec.name, seeds=1, test_samples=spec.test_images)
    fewest: dict[str, Row] = {}
    for row in (*here, *lab):
        metric, training = (row.metrics.get(name) or Row() for name in (VALIDATION, TRAINING))
        row.series = f"{row.source}, {row.device}"
        row.place = f"{row.workers} {row.device}"
        if row.source == HERE:
            row.place = plural(row.workers, "worker")
        row.configuration = f"{row.source}, {row.place}"
        first = fewest.setdefault(row.series, row) if row.epoch_s else row
        row.job_speedup = shared.faster(row, first, "job_s")
        row.epoch_speedup = shared.faster(row, first, "epoch_s")
        if (row.fixed_share or 0.0) < 0:
            row.fixed_share = None  # a contradiction in the lab's table, not a cost
        row.training = training.final.value if training.final else None
        row.validation = metric.final.value if metric.final else None
        if row.training is not None and row.validation is not None:
            # To the digits shown: 0.8 - 0.75 is above 0.05.
            row.gap = round(row.training - row.validation, 4)
        row.stable_epoch, row.epochs_made = metric.stable_epoch, epochs_of(row)
        # From the first step on: recorded, or else epochs x epoch time.
        recorded = having(row.epochs_made, "time_s", epoch=metric.stable_epoch)
        startup_s = row.startup_s or 0.0
        reached_s = recorded[0].time_s - startup_s if recorded else metric.stable_s
        row.reached_s = reached_s if row.job else None
    for row in here:
        ends = metrics.finals_by_seed(row.records, TRAINING)
        row.gaps = [ends[seed] - end for seed, end in row.by_seed.items() if seed in ends]
        row.never = (row.metrics.get(VALIDATION) or Row()).censored
        row.not_reached = ("epochs", "reached_s") if row.never else ()
        by_accuracy = {(one.validation.value, -one.epoch): one.epoch for one in row.epochs_made}
        (row.best, _), row.best_epoch = max(by_accuracy.items(), default=((None, None), None))
    for row in lab:
        row.images = spec.train_images / row.epoch_s.value / row.workers
        # It ran each configuration once: together they are its runs.
        row.gaps, row.never = [one.gap for one in having(lab, "gap")], 0
    for row in having((*here, *lab), "validation"):
        seeds, samples = max(1, row.seeds), row.test_samples
        row.resolvable = metrics.smallest_difference(samples, row.validation, seeds)
        row.overfitted, row.gap_words = overfits(row.gaps, row.resolvable), shared.signed(row.gap)
    return [*here, *lab]


def epochs_of(row: Row) -> list[Row]:
    """Return both accuracies of a setting by epoch."""
    curves = {one.metric: {p.epoch: p for p in one.points} for one in row.metric_curves or ()}
    training, rows = curves.get(TRAINING, {}), []
    for epoch, point in curves.get(VALIDATION, {}).items():
        made = Row(workers=row.workers, epoch=epoch, time_s=point.time_s, seeds=point.seeds)
        made.training = training[epoch].value if epoch in training else None
        rows.append(made.but(validation=point.value))
    return rows


def overfits(gaps: Sequence[float], least: float) -> str:
    """Tell whether runs end with a gap above the limit, by their interval and by `least`.

    That is the smallest difference which the test samples can resolve.
    """
    found = mean(gaps, confidence=metrics.GAP_CONFIDENCE) if gaps else Row()
    if found.low is None or found.high is None:
        return "cannot tell" if gaps else "not known"
    if min(found.low, found.value - least) > LIMIT:
        return "yes"
    return "no" if max(found.high, found.value + least) < LIMIT else "cannot tell"


def steadiness(row: Row) -> Row:
    """Return a setting with its first epoch, largest fall, spread and stability, run by run."""
    ended = [metrics.series_of(launch) for launch in row.records if launch.outcome == "ok"]
    runs = [(one[TRAINING], one[VALIDATION]) for one in ended if {TRAINING, VALIDATION} <= {*one}]
    falls = [
        (before - after, epoch)
        for run, _ in runs
        for (before, after), epoch in zip(pairwise(run.values), run.epochs[1:], strict=True)
    ]
    fall, epoch = max(falls, default=(0.0, 0.0))
    stable = [when_stable(run, True, ACCURACY_MARGIN).epoch for _, run in runs]
    return row.but(
        starts=[run.values[0] for _, run in runs],
        spreads=[metrics.evaluation_spread(run.values) for _, run in runs],
        # Of runs some of which never got there, the others alone would mislead.
        stable=[] if None in stable else stable,
        first_training=known_mean(run.values[0] for run, _ in runs),
        first=known_mean(run.values[0] for _, run in runs),
        spread=known_mean(metrics.evaluation_spread(run.values) for _, run in runs),
        fall=f"{shared.in_points(fall)} points (epoch {epoch:g})" if fall > 0 else "none",
    )


def rate_rows(spec: TransferLab, found: Found) -> list[Row]:
    """Return every number of workers at the rate that trains, then at the lab's."""
    rows = setting_rows(found, "workers", *spec.original_studies, metric=VALIDATION)
    used = {row.workers: row for row in rows if row.recipe != ORIGINAL.name}
    for row in rows:
        row.optimizer = row.records[0].params.get("optimizer", "adam")
        row.setting = f"{row.optimizer}, {plural(row.workers, 'worker')}, rate {row.rate:g}"
        row.training, row.validation = shared.final_mean(row.records, TRAINING), row.final
        row.loss = shared.final_mean(row.records, "loss")
        row.lost = (shared.gap(row, used.get(row.workers)) or Row()).difference
        row.not_applicable = () if row.recipe == ORIGINAL.name else ("lost",)
        losses = metrics.finals_by_seed(row.records, "loss").values()
        row.diverged = sum(not math.isfinite(loss) for loss in losses)
    return sorted(rows, key=lambda row: (row.recipe == ORIGINAL.name, row.workers))


def fitting(tried: Sequence[Row], published: Sequence[float]) -> str:
    """Say which optimizer's training accuracy fits the lab's, where samples tell them apart."""
    known = having(tried, "training", "validation")
    if not published or len({row.optimizer for row in known}) < 2:
        return ""
    known.sort(key=lambda row: abs(row.training.value - mean(published).value))
    near, far = known[0], known[-1]
    runs = [[*row.by_seed.values()] for row in (near, far)]
    told = near.seeds == 1 or relation(*runs, margin=ACCURACY_MARGIN) in ("higher", "lower")
    if abs(near.validation.value - far.validation.value) < shared.smallest(near) or not told:
        return "Which optimizer fits that, these runs cannot tell."
    once = "In one run each, " if near.seeds == 1 else ""
    return f"{once}{near.optimizer.title()} fits that, and {far.optimizer.title()} does not."


_WRAPPED = {
    "workers": "wrapped",
    "same_batch": "wrapped, sharing one worker's batch",
    "unwrapped": "not wrapped",
}


def wrapped_rows(found: Found) -> list[Row]:
    """Return every setting with a launch that ended, with what its workers exchanged."""
    return [
        row.but(optimizer=_WRAPPED[row.study], validation=row.final)
        for one in setting_rows(found, *_WRAPPED, metric=VALIDATION)
        if (row := shared.exchanged(one)).ranks
    ]


def sixteen_rows(spec: TransferLab, found: Found) -> list[Row]:
    """Return what was measured, what is projected from it over each link, and the guess."""
    device = (("device", spec.projected),) if len(spec.devices) > 1 else ()
    here = found.records.get("workers"), found.studies.get("workers")
    lab = found.published_records[spec.name], found.published[spec.name]
    configured, rows = configurations(spec, found), []
    sources = ((f"{HERE}, CPU", here, ()), (f"{LAB}, {spec.projected}", lab, device))
    for series, both, only in sources:
        cells = {row.workers: row for row in having(configured, series=series)}
        # Less than nothing is a contradiction in a table, not a cost.
        fixed_s = {n: max(0.0, row.fixed_s) for n, row in cells.items() if row.fixed_s is not None}
        last_s = fixed_s[max(fixed_s)] if fixed_s else 0.0
        for row in shared.project_rows(*both, workers=(16,), only=only):
            measured = row.kind == "measured"
            cell = cells.get(row.workers, Row()) if measured else Row()
            row.source, row.workers = series, row.workers or 16
            row.hollow = row.hollow or both is lab
            row.series = series if measured else f"projected from {series}"
            row.job_s = cell.job_s if cell.epochs == spec.epochs else None
            rest_s = fixed_s.get(row.workers, last_s)
            row.job_s = row.job_s or shared.job_of(row.epoch_s, spec.epochs, rest_s)
            row.validation = shared.estimate(cell.validation) if measured else row.metric
            row.epochs = row.epochs or (shared.estimate(cell.stable_epoch) if measured else None)
            row.not_applicable = () if measured else ("epochs", "validation")
            row.drawn = row.epoch_s if measured or row.middle else None
            rows.append(row)
    if spec.guess:
        guessed = {key: shared.estimate(value) for key, value in vars(spec.guess).items()}
        row = Row(source=f"the author's guess, {spec.projected}", series="the author's guess")
        row = row.but(link="", not_applicable=("validation",), hollow=True)
        rows.append(row.but(kind="guessed", workers=16, drawn=guessed["epoch_s"], **guessed))
    return rows


def everything(spec: TransferLab, found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    """Return what the templates of questions and corrections see."""
    steady = having([steadiness(row) for row in setting_rows(found, "workers")], "first", "final")
    first, varies = "validation accuracy after the first epoch", "its spread between epochs"
    least = shared.smallest(steady[0]) if steady else 0.0
    changes = [
        shared.judge(first, steady, "starts", least=least),
        shared.judge(varies, steady, "spreads"),
    ]
    if all(one.startswith("Whether") for one in changes):
        changes = [shared.judge(f"{first}, or {varies},", steady, "starts", least=least)]
    rates, wrapped = rate_rows(spec, found), wrapped_rows(found)
    tried = having(rates, recipe=ORIGINAL.name)
    tried = having(tried, workers=max((row.workers for row in tried), default=0))
    alone = shared.first(wrapped, study="workers", workers=1)
    ends = having(configurations(spec, found), "validation", source=LAB)
    values = [row.validation for row in ends]
    centre = mean(values)
    # Of one more run like the lab's: its own spread comes on top of the mean's.
    half = ((centre.high or 0.0) - centre.value) * math.sqrt(len(values) + 1)
    return {
        "spec": spec,
        "pixels": IMAGE_SIZES[found.asked.size],
        "verdicts": found.published[spec.name].verdicts,
        "steady": steady,
        "changes": changes,
        "later": shared.judge("the number of epochs to stability", steady, "stable", margin=1.0),
        "tried": tried,
        "fits": fitting(tried, [row.training for row in having(ends, "training")]),
        "sent": shared.exchange_words(having(wrapped, study="workers")),
        "unwrapped": having(wrapped, study="unwrapped"),
        "averaged": [
            row.but(lost=lost.difference)
            for row in having(wrapped, study="same_batch")
            if (lost := shared.gap(row, alone))
        ],
        "ends": ends,
        "span": max(values) - min(values),
        "least": metrics.smallest_difference(spec.test_images, centre.value, 1),
        "next": (centre.value - half, centre.value + half) if len(values) > 2 else None,
    }


# The questions.

SERIES, CONFIGURATION = text("series", "measured"), text("configuration", "configuration")
FINAL = column("validation", "validation accuracy at the end", shared.four)
STABLE_EPOCH = column("epochs", "epochs to stability", brief, "stable_epoch")
REACHED = column("reached_s", "time to stability", seconds)
RULE = (
    f"Stable: the first epoch from which the median of {metrics.WINDOW} evaluations is at the "
    "level where the run ends, less the noise of its own evaluations. The lab judged by eye."
)
RATES = """
{% for row in tried %}
{{ row.optimizer | capitalize }} at {{ "%g" | format(row.base_rate) }} x {{ row.workers }} = \
{{ "%g" | format(row.rate) }} ends at {{ row.training.value | four if row.training }} in training \
and {{ row.validation.value | four if row.validation }} in validation\
{{ ", %s from the rate used here" | format(row.lost | points) if row.lost }}.
{% else %}
The lab's rate was not tried here.
{% endfor %}
"""
WITHOUT = """
Without the wrapper: {{ unwrapped | each("each rank sent {gradient_bytes:size} of gradients, and \
the {workers} ranks ended with {fingerprints} different sets of weights") }}.
"""
AVERAGED = """
{% for row in averaged %}
Averaging alone: {{ row.workers }} workers that share a batch of {{ row.global_batch }} end \
{{ row.lost | points }} away from one worker with the same batch and as many steps.
{% endfor %}
"""


def questions(spec: TransferLab, code: Question) -> tuple[Question, ...]:
    """Return what both labs ask, in the order of the report."""
    configured = partial(configurations, spec)
    logs: dict[str, Any] = {"x_log": True, "log": True}
    ask = partial(Question, facts=partial(everything, spec))
    times_question = ask(
        key="times",
        text="How long do a job and an epoch take, by workers and kind of device?",
        title="Job and epoch time by workers and device",
        rows=configured,
        columns=columns(
            "source device workers job_s job_speedup epoch_s epoch_speedup efficiency epochs",
            "fixed_share runs",
        ),
        notes=("Speedups are over the fewest workers of the same device.",),
        say="""
{% set known = here | having("epoch_s", "job_s") %}
{% if known | length < 2 %}
No two numbers of workers have a time that counts here: there is no speedup.
{% else %}{% set few, many = known[0], known[-1] %}
With {{ many.workers | workers }} an epoch is {{ many.epoch_speedup | times }} as fast as with \
{{ few.workers }} ({{ many.epoch_s | interval_seconds }}), and the job {{ many.job_speedup | times
}} as fast ({{ many.job_s.value | seconds }}): start-up, loading and validation are \
{{ many.fixed_share | percent }} of it.
{% endif %}
The lab's jobs and epochs took {{ lab | each("{job_s.value:seconds} and {epoch_s.value:seconds} \
on {workers} {device}") }}.
{% for one in verdicts if one.kind == "contradicting_times" %}
{{ one.sentence }}
{% endfor %}
{% for one in verdicts if one.kind == "faster_device_gains_nothing" %}
{{ one.sentence }} {{ one.action }}
Each GPU trained {{ lab | having(workers=4) | each("{images:whole} images/s on \
{workers} {device}") }}; one core here trains {{ known[:1] | each("{throughput.value:whole}") }} \
images/s of {{ pixels }} pixels.
{% endfor %}
""",
        why="Start-up usually takes as long on any number of workers.",
        study="workers",
        figures=tuple(
            lines(
                f"{what}-by-workers",
                f"{what.capitalize()} time by workers and device",
                f"{caption} On logarithmic axes; more workers than cores have no time.",
                *(SERIES, "workers", measure("time_s", what, seconds, f"{what}_s")),
                **logs,
            )
            for what, caption in (
                ("epoch", "One pass over the training data of each, which differ."),
                ("job", "From the launch to the end, each with its own epochs."),
            )
        ),
    )
    accuracy = ask(
        key="accuracy",
        text="How does accuracy grow by epoch, in training and in validation?",
        title="Accuracy by epoch and workers",
        rows=lambda found: [
            epoch for row in setting_rows(found, "workers") for epoch in epochs_of(row)
        ],
        columns=columns("workers", column("epoch", "epoch", brief), "training validation seeds"),
        notes=(
            "Training: during the epoch, on augmented images. Validation: after it, on plain ones.",
        ),
        say="""
{% set edges = steady[:1] + steady[1:][-1:] %}
After the first epoch, accuracy is {{ edges | each("{first_training:four} in training and \
{first:four} in validation with {workers:workers}") }}.
The largest fall of training accuracy between two epochs: {{ edges | each("{fall} with \
{workers:workers}") }}; late validation accuracies vary by {{ edges | each("{spread:in_points} \
points with {workers:workers}") }}.
{{ changes | join("\n") }}
{{ spec.seen }} Its validation accuracy ends at {{ ends | each("{validation:four} on {workers} \
{device}") }}.
""",
        figures=tuple(
            lines(
                f"{key}-by-epoch",
                f"{key.capitalize()} accuracy by epoch",
                caption,
                f"workers epoch {key}",
                y_title=f"{key} accuracy",
                x_log=False,
                zero=False,
            )
            for key, caption in (
                ("training", "During the epoch, on augmented images."),
                ("validation", "After the epoch, on images that were not trained on."),
            )
        ),
    )
    overfitting = ask(
        key="overfitting",
        text="Does the network overfit?",
        title="Training and validation accuracy at the end",
        rows=lambda found: having(configured(found), "validation"),
        columns=columns(
            CONFIGURATION,
            *(column(key, key, shared.four) for key in ("training", "validation")),
            column("gap", "gap (points)", shared.signed),
            column("best_epoch", "best epoch", brief),
            column("best", "validation there", shared.four),
            text("overfitted", "overfitted"),
            "resolvable",
        ),
        notes=("Overfitted: the gap is above 5 points beyond what runs and samples resolve.",),
        say="""
{% set known = here | selectattr("gaps") | list %}
Training minus validation accuracy ends at {{ known | each("{gap_words} points with \
{workers:workers}") }}; more than 5 points count as overfitting.
{% for verdict, rows in known | groupby("overfitted") %}
{{ {"yes": "It overfits", "no": "It does not overfit"}.get(verdict, "These runs cannot tell \
whether it overfits") }} with {{ rows | each("{workers:workers}") }}: \
{{ rows[0].seeds | count("run") }} of {{ rows[0].test_samples | whole }} test images only resolve \
differences above {{ rows[-1].resolvable | in_points }} points\
{{ "; more seeds and test images would tell" if verdict == "cannot tell" }}.
{% endfor %}
{% set gaps = lab | map(attribute="gap") | select | list %}
{% if gaps %}
The lab's network overfits: its {{ gaps | length }} runs end with gaps of {{ gaps | min | in_points
}} to {{ gaps | max | in_points }} points.
{% else %}
The lab gives no training accuracy, so its gap is not known.
{% endif %}
""",
        why="More data, stronger augmentation or fewer epochs usually narrow the gap.",
        figures=(
            bars(
                "gap-by-configuration",
                "Training accuracy minus validation accuracy",
                "At the end, in points. Below zero: augmented images are harder than plain ones.",
                CONFIGURATION,
                column("gap", "gap (points)", brief, lambda row: row.gap and 100 * row.gap),
            ),
        ),
    )
    stable = ask(
        key="stable",
        text="After how many epochs is the validation accuracy stable, by workers?",
        title="Epochs to a stable validation accuracy",
        rows=configured,
        columns=columns(
            "source device workers",
            STABLE_EPOCH,
            column("of_epochs", "of", whole, "epochs"),
            FINAL,
            "seeds",
            column("never", "never stable", whole),
        ),
        notes=(RULE,),
        say="""
{% set never = here | selectattr("stable_epoch", "none") | list %}
Validation accuracy is stable after {{ here | selectattr("stable_epoch") | each(
"{stable_epoch:epochs} with {workers:workers}") }}{{ "; it is not with %s, in so few epochs"
   | format(never | each("{workers:workers}")) if never }}.
{{ later }}
{% set named = lab | selectattr("stable_epoch") | list %}
{% if named %}
The lab, judging by eye, one run each: {{ named | each("{stable_epoch:brief} on {workers} \
{device}") }}.
{% else %}
The lab gives no epochs to stability for this data set.
{% endif %}
""",
        why="A larger global batch makes fewer updates in an epoch, and usually needs more epochs.",
        figures=(
            lines(
                "stable-by-workers",
                "Epochs to a stable validation accuracy by workers",
                *(RULE, SERIES, "workers", STABLE_EPOCH),
            ),
        ),
    )
    soonest = ask(
        key="soonest",
        text="Which configuration reaches a stable validation accuracy soonest?",
        title="Time to a stable validation accuracy",
        rows=lambda found: sorted(
            configured(found), key=lambda row: (row.source == LAB, row.reached_s or math.inf)
        ),
        columns=columns(
            *(CONFIGURATION, STABLE_EPOCH),
            column("epoch_s", "epoch", seconds, lambda row: row.epoch_s and row.epoch_s.value),
            *(REACHED, FINAL),
        ),
        notes=("Here from the first step on, with validation; in the lab epochs x epoch time.",),
        say="""
{% set one = "{place}, {reached_s:seconds} ({stable_epoch:epochs})" %}
{% for where, all in (("here", here), ("in the lab", lab)) %}
{% set timed = all | having("reached_s") %}
{% if timed | length > 1 and timed[-1].reached_s < 1.1 * timed[0].reached_s %}
Too close to tell {{ where }}: {{ timed | each(one) }}.
{% elif timed | length > 1 %}
Soonest {{ where }}{{ ", in one run each" if timed[0].seeds == 1 }}: {{ timed[:1] | each(one) }}; \
last: {{ timed[-1:] | each(one) }}.
{% else %}
No two configurations {{ where }} have both a stable accuracy and a time.
{% endif %}{% endfor %}
""",
        why="More workers usually shorten an epoch but need more epochs: the product decides.",
        figures=(
            bars(
                "time-to-stability",
                "Time to a stable validation accuracy",
                "The soonest first, this machine's before the lab's; logarithmic axis.",
                *(CONFIGURATION, REACHED),
                log=True,
            ),
        ),
    )
    keeping = compare_recipes(
        "keeping_accuracy", "How much accuracy do more workers lose, and what prevents it?"
    )
    original = ask(
        key="original",
        text="What does the lab's learning rate do?",
        title="Accuracy at a rate that trains, and at the lab's",
        rows=partial(rate_rows, spec),
        columns=columns(
            "recipe workers rate training validation loss lost diverged seeds optimizer"
        ),
        notes=("Differences: to the other recipe, by seeds. Diverged: the loss is not finite.",),
        say=RATES
        + """
{{ spec.trained }} {{ fits }}
""",
        why="Adam's steps are about as large as its rate, so that 0.001 or less is usual. "
        "Adadelta scales its own steps; a rate of 1.0 is the method as published.",
        figures=(
            bars(
                "accuracy-by-rate",
                "Validation accuracy by optimizer, workers and learning rate",
                "At the end of training; rates are multiplied by the workers.",
                "setting validation",
                rows=list,
            ),
        ),
    )
    wrapped = ask(
        key="wrapped",
        text="What does the DistributedOptimizer do, and what happens without it?",
        title="Gradients sent, and different weights at the end",
        rows=wrapped_rows,
        columns=columns(
            "optimizer workers global_batch steps gradient_bytes fingerprints validation epochs"
        ),
        notes=("Weights are compared by a fingerprint of all parameters after the last step.",),
        say="{{ sent }}\n" + WITHOUT + AVERAGED,
    )
    sixteen = ask(
        key="sixteen",
        text="What would 16 workers do?",
        title="16 workers, projected",
        rows=partial(sixteen_rows, spec),
        columns=columns(
            text("source", "from"),
            "workers",
            text("kind", "figures"),
            text("link", "link"),
            "epoch_s",
            measure("epochs", "epochs to stability", brief),
            measure("job_s", f"job of {spec.epochs} epochs", seconds),
            "validation",
        ),
        notes=(
            "An epoch here is its steps at their median time; question 1 has whole epochs. A "
            "projected job is its epochs plus the rest of the largest measured job; "
            f"`farandole project published/{spec.name} --only device={spec.projected} -np 16` says "
            "the same.",
        ),
        say="""
{% macro placed(what, one, guess) %}{{ what }} {{ "inside" if one.low <= guess <= one.high
else "outside" }}{% endmacro %}
{% for own in rows if own.middle and own.source != "here, CPU" %}
16 {{ spec.projected }} would take {{ own.epoch_s | interval_seconds }} per epoch\
{{ ", %s epochs to stability" | format(own.epochs | interval) if own.epochs }} and \
{{ own.job_s | interval_seconds }} for {{ spec.epochs }} epochs, projected from the lab's \
{{ rows | having(source=own.source, kind="measured") | each("{workers}") }} {{ spec.projected }} \
({{ own.link or "same" }} link, 90 % intervals).
{% if spec.guess %}
The author guessed {{ spec.guess.epoch_s | seconds }} per epoch, {{ spec.guess.epochs | brief }} \
epochs, slightly more than {{ spec.guess.job_s | seconds }} and similar accuracies; against these \
intervals: {{ placed("epoch", own.epoch_s, spec.guess.epoch_s) }}, \
{{ placed("epochs", own.epochs, spec.guess.epochs) }}, \
{{ placed("job", own.job_s, spec.guess.job_s) }}.
{% else %}
The author of this lab made no guess for 16 workers.
{% endif %}{% endfor %}
{% if next %}
Accuracy on 16 is not projected: if workers have no effect, one more run like the lab's \
{{ ends | length }} ends between {{ next[0] | four }} and {{ next[1] | four }} (95 %).
{% endif %}
{% for row in rows if row.source == "here, CPU" and row.why %}
No projection from the runs here: {{ row.why.partition(". ")[0] }}.
{% endfor %}
""",
        figures=(
            lines(
                "epoch-at-sixteen",
                "Epoch time up to 16 workers",
                "Filled marks: measured here. Hollow marks: the lab's, the author's guess, and "
                "projections with 90 % intervals. Logarithmic axes.",
                text("series", "figures"),
                "workers",
                measure("epoch_s", "epoch", seconds, "drawn"),
                **logs,
            ),
        ),
    )
    return (
        *(times_question, accuracy, UTILISATION, overfitting, stable, soonest, keeping),
        *(original, wrapped, code, sixteen),
    )


def code_question(
    asked: str, before: str, rows: Sequence[Sequence[str]], say: str, why: str
) -> Question:
    """Ask how a lab's code differs from the code before it."""
    return Question(
        key="code",
        text=asked,
        title="The code, part by part",
        rows=lambda found: shared.table_rows("part before lab", *rows),
        columns=(text("part", ""), text("before", before), text("lab", "the lab")),
        say=say,
        why=why,
    )


def corrected(
    spec: TransferLab, found: Found, templates: Sequence[Sequence[str]]
) -> tuple[Correction, ...]:
    """Return corrections from templates of what was said, what is right, and what shows it."""
    rows = configurations(spec, found)
    facts = everything(spec, found, rows)
    for name, template in (("without", WITHOUT), ("rates", RATES), ("averaged_alone", AVERAGED)):
        facts[name] = " ".join(sentences(template, **facts))
    facts["timed"] = having(rows, "epoch_s", source=HERE)
    return correct(templates, rows=rows, **facts)
