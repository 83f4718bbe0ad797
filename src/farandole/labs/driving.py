"""The driving lab: a data set too small to scale, and from which size on workers would pay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from farandole.format import brief, optional, percent, plural, seconds, times, whole
from farandole.labs import plan as plans
from farandole.labs import rows as shared
from farandole.labs.data import describe_driving
from farandole.labs.lab import Asked, Correction, DataFacts, Found, Lab, Plan, Planned, Rate
from farandole.labs.plan import EIGHT, FOUR, TWO, Training, Workload
from farandole.labs.questions import (
    AVERAGING,
    UTILISATION,
    Question,
    correct,
    lines,
    recipe_lines,
)
from farandole.labs.rows import HERE, Row, column, columns, having, measure, text
from farandole.labs.rows import LAB as THE_LAB
from farandole.model.jobs import LEAST_STEPS, SAVED, Speed, break_even, enough_steps, fixed_time
from farandole.model.metrics import smallest_error_change
from farandole.model.statistics import ratio
from farandole.study.folder import LAUNCHES, OUTPUT_FILE
from farandole.study.records import Launch

METRIC, CONSTANT = "val_loss", "constant_mse"
RANK_LOSS, RANK_VAL_LOSS = "rank_loss", "rank_val_loss"
WORK = Workload(
    name="driving",
    script="driving.py",
    batch=32,
    learning_rate=0.0001,
    guess=Rate(samples_per_s=220.0, startup_s=7.0),
    few_test_samples=64,
)
LAB_EPOCHS, LAB_MOST = 10, 8
RECIPES = ("linear", "fixed", "warmup", "longer")
"""The lab's own first: it scaled the rate."""
RATES = (0.003, 0.024)
"""A rate that one worker trains with, near the largest, and 8 times that."""


# The plan.

# Quick, by budget, full. 0 samples are all; `recipes` says how many, `sizes` whether smaller data
# sets are timed, too.
EFFORTS = shared.table_rows(
    "samples test_samples epochs seeds workers recipes sizes",
    (512, 100, 3, 1, TWO, 2, False),
    (256, 128, 3, 1, TWO, 2, False),
    (384, 128, 4, 1, FOUR, 2, False),
    (512, 200, 6, 1, FOUR, 2, False),
    (768, 200, LAB_EPOCHS, 1, FOUR, 2, False),
    (1024, 400, LAB_EPOCHS, 2, FOUR, 2, False),
    (1024, 400, LAB_EPOCHS, 3, FOUR, 2, False),
    (0, 0, LAB_EPOCHS, 3, FOUR, 2, False),
    (0, 0, LAB_EPOCHS, 3, FOUR, 2, True),
    (0, 0, LAB_EPOCHS, 3, EIGHT, 2, True),
    (0, 0, LAB_EPOCHS, 3, EIGHT, 4, True),
    (0, 0, LAB_EPOCHS, 5, EIGHT, 4, True),
    (0, 0, LAB_EPOCHS, 3, EIGHT, 4, True),
)


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size."""
    here = plans.chosen(asked, EFFORTS, effort)
    names = plans.recipes(asked, RECIPES[: here.recipes])
    workers = plans.counts(asked, here.workers)
    training = Training(WORK, asked, data, rates.get(WORK.name, WORK.guess), here)
    studies = [
        *training.by_workers("Loss", names, workers),
        _steps_of_eight(training),
    ]
    timed = tuple(count for count in workers if count <= asked.cores)
    if here.sizes and timed:
        samples = plans.taken(here.samples, data.train)
        sizes = tuple(sorted({max(1, samples // part) for part in (4, 2)}))
        title = "Job time by size of the data set"
        sized = training.study("size", title, recipes=names[:1], workers=timed, samples=sizes)
        studies.append(sized)
    both = "linear and fixed together separate fewer steps from a scaled rate"
    why = both if {"fixed", "linear"} <= set(names) else ""
    words = plans.recipe_words(WORK.learning_rate, names)
    fewer = "to fit the time" if here.epochs < LAB_EPOCHS else ""
    return Plan(
        studies=tuple(studies),
        choices=plans.choices(
            ("device", "GPUs, T4 and DGX", f"{asked.cores} CPU cores, a thread per worker"),
            ("data set", "a car's camera, not named", data.source),
            ("network", "not named", "NVIDIA's PilotNet"),
            plans.samples_choice("training samples", "not said", here.samples, data.train),
            plans.samples_choice("test samples", "not said", here.test_samples, data.test),
            ("epochs", f"{LAB_EPOCHS}", f"{here.epochs}", fewer),
            ("workers", "2, 4 and 8", plans.words(workers), plans.beyond(workers, asked.cores)),
            ("learning rate", "apparently scaled by the workers", words, why),
            plans.DECAY,
        ),
    )


def _steps_of_eight(training: Training) -> Planned:
    """Return a study of one worker that makes the steps of 8, with the rate scaled and not."""
    work = replace(WORK, batch=LAB_MOST * WORK.batch)
    title = (
        f"The steps of {LAB_MOST} workers, made by one: loss at one worker's rate and 8 times it"
    )
    both = replace(
        training, workload=work, rate=plans.on_cores(training.rate, training.asked.cores)
    )
    one = both.study("eight", title, recipes=("fixed",), workers=(1,), lr=RATES)
    options, estimate_s = {**one.options, "threads": training.asked.cores}, one.estimate_s
    estimate_s *= len(RATES)
    return replace(one, options=options, estimate_s=estimate_s, worth_repeating=False)


# The questions.

_LOSS = measure("loss", "loss (MSE)")
_BASE_LOSS = column("constant_mse", "loss of a constant")
_SHARE = column("share", "of the constant's", lambda one: (percent if one < 10 else times)(one))
_STEPS = column("steps_per_epoch", "steps per epoch", whole)


def _against_constant(row: Row) -> Row:
    """Return a setting with its loss beside that of the best constant prediction, and a verdict.

    A loss within what test samples and seeds resolve of the constant's has learned nothing that
    they can show; one that lies below is claimed from two seeds on.
    """
    constant = shared.final_mean(row.records, CONSTANT)
    if not row.final or not constant:
        return row.but(loss=row.final, learned="not measured")
    final, seeds = row.final, max(1, row.seeds)
    share, least = final.value / constant.value, smallest_error_change(row.test_samples, seeds)
    learned = "cannot tell from one run" if final.low is None else "cannot tell"
    if abs(share - 1) <= least:
        learned = "not shown to beat the constant"
    elif final.low is not None and not final.low <= constant.value <= final.high:
        learned = "better than the constant" if share < 1 else "worse than the constant"
    constant_mse = constant.value
    return row.but(loss=final, constant_mse=constant_mse, share=share, least=least, learned=learned)


def _settings(found: Found, *studies: str) -> list[Row]:
    rows = [_against_constant(row) for row in shared.setting_rows(found, *studies, metric=METRIC)]
    for row in rows:
        row.device, row.steps_per_epoch = "CPU", (row.counted or row.whole_steps) // row.epochs
    return rows


def _worker_rows(found: Found) -> list[Row]:
    lab = having(shared.published_rows(found, "driving", recipe="not said", seeds=1), "job")
    here = _settings(found, "workers", "recipes")
    return [
        *(row.but(base=row is here[0]) for row in here),
        *(row.but(loss=row.final) for row in lab),
    ]


def _loss_lines(rows: Sequence[Row]) -> list[Row]:
    """Return a line per recipe, one of the best constant, and the lab's."""
    here = having(rows, source=HERE)
    constants = {row.workers: shared.estimate(row.constant_mse) for row in here}
    return [
        *(row.but(source=f"{HERE}, {row.recipe}") for row in recipe_lines(here)),
        *(Row(source="a constant", workers=n, loss=constants[n]) for n in sorted(constants)),
        *_by_device(rows),
    ]


def _by_device(rows: Sequence[Row]) -> list[Row]:
    """Return the lab's rows with a line for each kind of device: it has 4 GPUs of two kinds."""
    return [row.but(source=f"{THE_LAB}, {row.device}") for row in having(rows, source=THE_LAB)]


WORKERS = Question(
    key="workers",
    text="How do job time and loss change as workers are added?",
    title="Job time and loss by workers",
    rows=_worker_rows,
    columns=columns(
        *("source device recipe workers job_s", _STEPS, _LOSS, _BASE_LOSS, _SHARE),
        *(text("learned", "against the constant"), "runs"),
    ),
    notes=(
        "The loss here is the mean squared error on the test set; the loss of a constant is what "
        "the best constant prediction gets there. Which loss the lab gives is not said.",
    ),
    say="""
{% set scored = rows | having("loss", study="workers") %}
The job takes {{ rows | having("job_s", study="workers") | each("{job_s.value:seconds} on \
{workers:workers}") }}; its loss on the test set ends at \
{{ scored | each("{loss.value:number} on {workers:workers} ({learned})") }}.
The lab's jobs take {{ lab | each("{job_s.value:seconds} on {workers} {device} (loss \
{loss.value:number})") }}.
{% for row in scored[:1] if row.least %}
The best constant prediction gets {{ row.constant_mse | number }}; {{ row.test_samples | whole }} \
test samples and {{ row.seeds | count("seed") }} only resolve changes of the loss above \
{{ row.least | percent }}.
{% endfor %}
""",
    why="A loss means little on its own: most of a drive goes straight ahead, so a network that "
    "always predicts straight ahead has a small loss and has learned nothing. More test samples "
    "and seeds resolve smaller differences.",
    study="workers",
    figures=(
        lines(
            "time-by-workers",
            "Job time by workers",
            "From the launch to the end. More workers than cores have no time to show.",
            "source workers job_s",
            rows=lambda rows: [*having(rows, study="workers"), *_by_device(rows)],
        ),
        lines(
            "loss-by-workers",
            "Loss by workers",
            "At the end of training, on a logarithmic axis.",
            "source workers loss",
            rows=_loss_lines,
            log=True,
        ),
    ),
)


def _rules(found: Found) -> list[Row]:
    """Return what the model says of the study here, and of the lab's table."""
    infos = {"workers": found.studies.get("workers"), "lab": found.published.get("driving")}
    return [
        Row(study=study, rule=one.kind, sentence=one.sentence, action=one.action)
        for study, info in infos.items()
        for one in (info.verdicts if info else ())
        if one.kind in ("data_too_small", "fixed_cost", "no_significant_difference")
    ]


def _verdict_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    """Judge time and loss of the most workers whose time counts, by intervals over launches."""
    own = having(rows, study="workers")
    timed = having(own, "job_s")
    few, many = (timed[0], timed[-1]) if len(timed) > 1 else (None, None)
    facts = {
        "own": own,
        "few": few,
        "many": many,
        "small": [row.workers for row in own if row.steps_per_epoch < LEAST_STEPS],
        "rules": [row for row in _rules(found) if row.rule != "data_too_small"],
        "others": having(rows, "loss", study="recipes", recipe="fixed"),
        "enough": SAVED,
        "least": LEAST_STEPS,
    }
    if few is None or many is None:
        return facts
    took = ratio(_job_times(many), _job_times(few))
    change = shared.gap(many, few)
    rises = bool(change and change.difference.low is not None and change.difference.low > 0)
    verdict = "Cannot tell whether adding workers pays"
    if took.low is not None and took.high is not None:
        if 1 - took.high >= SAVED:
            verdict = "Mixed" if rises else "Adding workers pays in time"
        elif 1 - took.low < SAVED:
            verdict = "Adding workers does not pay in time"
    shown = "more than chance" if rises else "a change that these runs cannot resolve"
    shown = shown if many.loss else "training diverged"
    return facts | {"saved": 1 - took.value, "verdict": verdict, "shown": shown}


def _job_times(row: Row) -> list[float]:
    ended = [one.wall_s for one in row.records if one.outcome == "ok" and one.wall_s]
    return ended or [row.job_s.value]


VERDICT = Question(
    key="verdict",
    text="Do more workers pay, and if not, why?",
    title="What adding workers does to a job",
    rows=lambda found: _settings(found, "workers", "recipes"),
    columns=columns(
        *("recipe workers", _STEPS, column("steps", "steps of the job", whole, "counted")),
        *("rate job_s fixed_s fixed_share", _LOSS),
    ),
    notes=("Fixed: what of a job is not a pass over the training data.",),
    tables=(
        Question(
            key="verdict-rules",
            title="The rules that fired",
            rows=_rules,
            columns=(
                *(text("study", "study"), text("rule", "rule"), text("sentence", "verdict")),
                text("action", "what to do"),
            ),
        ),
    ),
    facts=_verdict_facts,
    say="""
{% if many %}
{{ verdict }}: {{ many.workers | workers }} take {{ saved | abs | percent }} \
{{ "less" if saved >= 0 else "more" }} time than {{ few.workers | workers }} (25 % less would \
pay), and the loss goes from {{ few | end }} to {{ many | end }}, {{ shown }}.
{% else %}
There is no verdict: it takes two numbers of workers whose times count.
{% endif %}
{% if own %}
An epoch of {{ own[0].samples | whole }} samples at batch {{ own[0].batch }} per worker has \
{{ own | each("{steps_per_epoch} steps on {workers:workers}") }}\
{{ ", fewer than %s from %s on: the data set is too small" | format(least, small | min | workers)
   if small }}.
{% endif %}
{% for rule in rules %}
{{ "The lab's own times: " if rule.study == "lab" }}{{ rule.sentence }}
{% endfor %}
{% if others %}
With the rate of one worker, so with fewer steps and nothing else changed, the loss ends at \
{{ others | each("{loss.value:number} on {workers:workers}") }}.
{% endif %}
""",
    why="More workers share the passes over the data and nothing else: starting, loading and "
    "testing take as long as before. An epoch has fewer steps, so training usually converges more "
    "slowly per epoch, and a scaled rate makes up for that only in part.",
)


def _eight_rows(found: Found) -> list[Row]:
    rows = having(shared.cell_rows(found.studies.get("eight")), "lr")
    for row in rows:
        row.rate = float(row.lr)
        row.loss, constant = row.final, row.metrics.get(CONSTANT)
        if row.loss and constant:
            row.constant_mse = constant.final.value
            row.share = row.loss.value / row.constant_mse
    return rows


DIVERGENCE = Question(
    key="divergence",
    text="Why does the loss jump to 0.8 on 8 workers?",
    title="The steps of 8 workers, made by one worker: loss by learning rate",
    rows=_eight_rows,
    columns=columns("batch rate", _LOSS, _BASE_LOSS, _SHARE),
    notes=(
        "One worker with a batch of 256 makes the steps of 8 workers with 32 each: the averaged "
        "gradient is the same.",
    ),
    say="""
{% if rows | length > 1 %}
With the steps of 8 workers the loss ends at {{ rows[0] | end }} at a rate of \
{{ rows[0].rate | brief }}, and at {{ rows[-1] | end }} at 8 times that rate; a constant gets \
{{ rows[-1].constant_mse | number }}.
{% else %}
It was not run here: the study of 8 workers' steps has no figures.
{% endif %}
The lab's loss goes from 0.019 on 2 GPUs to 0.046 on 4 T4, 0.047 on 4 DGX and 0.8 on 8 DGX; it \
does not say at which rate.
""",
    why="Eight workers make an eighth of the steps, at 8 times the rate from the first step on. A "
    "step that is too long usually makes the next gradient larger, and few steps are left to "
    "recover. A warm-up, or a rate that is not scaled, usually avoids it.",
)

_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Sizes of the data set in the figure, as multiples of this run's."""
_ASSUMED = (
    "Assumed: fixed time, time per sample, epochs, test set and batch per worker stay as they are "
    "when the training data grow."
)


def _size_rows(found: Found) -> list[Row]:
    """Return what each count needs, as far as its job and its steps count for time."""
    rows = _settings(found, "workers")
    for row in rows:
        # Steps need no time to be known, unlike the rest.
        row.enough_steps, row.fixed_s = enough_steps(row.batch, row.workers), None
        if row.job_s and row.throughput and row.unit == "samples/s":
            rate = row.samples_per_s = row.throughput.value
            row.fixed_s = fixed_time(row.job_s.value, row.epochs, row.samples, rate)
            row.speed = Speed(workers=row.workers, fixed_s=row.fixed_s, samples_per_s=rate)
    timed = having(rows, "speed")
    for row in timed[1:]:
        base = timed[0]
        sizes = break_even(base.speed, row.speed, epochs=base.epochs, batch=base.batch)
        row.even, row.time, row.pays_from = sizes.even, sizes.time, sizes.samples
    return rows


def _computed(rows: Sequence[Row]) -> list[Row]:
    timed = having(rows, "speed")
    sizes = [round(timed[0].samples * factor) for factor in _FACTORS] if timed else []
    return [
        Row(setting=plural(row.workers, "worker"), samples=size).but(
            job_s=row.speed.job_s(size, timed[0].epochs)
        )
        for row in timed
        for size in sizes
    ]


def _launched(found: Found) -> list[Row]:
    """Return launches on smaller data sets, with their computed job times."""
    speeds = {row.workers: row.speed for row in having(_size_rows(found), "speed")}
    return [
        row.but(computed_s=speeds[row.workers].job_s(row.samples, row.epochs))
        for row in having(_settings(found, "size"), "job_s")
        if row.workers in speeds
    ]


_SAMPLES, _JOB = column("samples", "training samples", whole), column("job_s", "job", seconds)


SIZE = Question(
    key="size",
    text="How large must the data set be for more workers to pay?",
    title="Training samples from which more workers pay",
    rows=_size_rows,
    columns=columns(
        "workers",
        column("fixed_s", "fixed time of a job", seconds),
        column("samples_per_s", "samples/s"),
        column("even", "not longer from", optional),
        column("time", f"{percent(SAVED)} shorter from", optional),
        column("steps", "enough steps from", optional, "enough_steps"),
        column("samples", "pays from", optional, "pays_from"),
        column("here", "samples here", whole, "samples"),
    ),
    notes=(_ASSUMED, "Fixed time: of the job, less its samples at the speed of training."),
    tables=(
        Question(
            key="size-check",
            title="The same on smaller data sets: launched and computed",
            rows=_launched,
            columns=columns(
                *("source workers", _SAMPLES, measure("job_s", "job, launched", seconds)),
                column("computed_s", "computed", seconds),
            ),
        ),
    ),
    say="""
{% set timed = rows | having("speed") %}
{% set more = timed[1:] %}
{% set once = "" if timed | selectattr("launches", "ge", 2) | list else "By one run each, " %}
{% for row in more %}
{% set base = timed[0] %}
{% if row.pays_from is none %}
{{ once }}{{ row.workers | workers }} would not pay at any size: they train \
{{ (row.samples_per_s / base.samples_per_s) | times }} as fast as {{ base.workers | workers }}.
{% else %}
{{ once }}{{ row.workers | workers }} save 25 % of the job from {{ row.time | whole }} training \
samples on, and have 20 steps an epoch from {{ row.enough_steps | whole }}: they pay from \
{{ row.pays_from | whole }} (this run has {{ base.samples | whole }}).
{% endif %}
{% else %}
Job times cannot tell: it takes two numbers of workers whose times count.
{% endfor %}
{% if more %}
A job has a fixed time of {{ timed | each("{fixed_s:seconds} on {workers:workers}") }}, which more \
workers do not shorten.
{% endif %}
""",
    why="The lab expects more workers to pay on a larger data set. That usually holds: the fixed "
    "time stays the same, and the part that workers share grows with the data.",
    figures=(
        lines(
            "time-by-size",
            "Job time by size of the data set",
            f"From fixed time and speed as measured; not launches. {_ASSUMED}",
            *("setting", _SAMPLES, _JOB),
            rows=_computed,
            x_log=True,
            log=True,
        ),
    ),
)


def _projected(found: Found) -> list[Row]:
    """Project speed to the lab's 4 and 8 workers, on one host with as many cores."""
    timed = having(_settings(found, "workers"), "job_s", "fixed_s", "throughput")
    if not timed:
        return []
    last, studies = timed[-1], (found.records.get("workers"), found.studies.get("workers"))
    counts = tuple(count for count in (2, 4, LAB_MOST) if count > last.workers)
    made = shared.project_rows(*studies, workers=counts, per_host=LAB_MOST)
    for row in made:
        row.source, row.job_s = row.kind, shared.job_of(row.epoch_s, last.epochs, last.fixed_s)
    measured = [row.but(source="measured", why=made[0].why) for row in timed]
    return [*measured, *having(made, kind="projected")]


PROJECTION = Question(
    key="projection",
    text="How long would 4 and 8 workers take?",
    title="Speed and job time by workers: measured, and projected with 90 % intervals",
    rows=_projected,
    columns=columns("source workers samples_per_s speedup efficiency job_s"),
    notes=(
        "A projected job has the fixed time of the most workers measured, and as many epochs. "
        "Losses are not projected: they depend on the learning rate.",
    ),
    say="""
{% set ahead = rows | having(source="projected") %}
{% if ahead %}
{{ "From one run each: t" if rows | having(launches=1) else "T" }}raining would be \
{{ ahead | each("{speedup:interval_times} as fast on {workers:workers}") }}, and the job would \
take {{ ahead | each("{job_s:interval_seconds}") }}, on a machine with as many cores.
However many workers there are, a job still has its fixed time.
{% else %}
Not projected: {{ rows[0].why if rows else "no study of workers has times that count" }}.
{% endif %}
""",
    why="A projection keeps what was measured: the fixed time of a job stays, and a step takes as "
    "long as before, with an exchange that grows a little with the workers.",
)

_MOST_LINES = 8


def rank_metric(launch: Launch, name: str) -> dict[tuple[float, int], float]:
    """Return what each rank told by itself, by epoch, the first being 1, and rank."""
    found = {
        (float(place) if metric.epoch is None else metric.epoch, rank.rank): metric.value
        for rank in launch.ranks
        for place, metric in enumerate(one for one in rank.metrics if one.name == name)
    }
    # Keras counts epochs from 0, people from 1.
    first = 1 - min((epoch for epoch, _ in found), default=1.0)
    return {(epoch + first, rank): value for (epoch, rank), value in found.items()}


def tagged_lines(output: str, *, most: int = _MOST_LINES) -> tuple[str, ...]:
    """Choose lines of a launch's output, "[1]<stdout>: ...", in which ranks tell their losses."""
    tagged = [line for line in output.splitlines() if line.startswith("[")]
    return tuple(([line for line in tagged if "loss" in line] or tagged)[-most:])


def _most(found: Found) -> Launch | None:
    """Return a launch with rank losses that has the most workers."""
    study = found.records.get("workers")
    ended = [one for one in (study.launches if study else ()) if one.outcome == "ok"]
    known = [one for one in ended if rank_metric(one, RANK_LOSS)]
    return max(known, key=lambda one: one.cell.workers, default=None)


def _rank_rows(found: Found) -> list[Row]:
    launch = _most(found)
    if launch is None:
        return []
    # Records of older scripts have the validation loss of all workers only.
    own = rank_metric(launch, RANK_VAL_LOSS)
    known = own or rank_metric(launch, METRIC)
    return [
        Row(
            workers=launch.cell.workers,
            epoch=epoch,
            rank=rank,
            rank_loss=value,
            rank_val_loss=known.get((epoch, rank)),
            shared=not own,
        )
        for (epoch, rank), value in sorted(rank_metric(launch, RANK_LOSS).items())
    ]


def _output(found: Found) -> list[Row]:
    """Return lines of the launch's output; a study without a folder has none."""
    study, launch = found.records.get("workers"), _most(found)
    path = Path(study.path) / LAUNCHES / launch.id / OUTPUT_FILE if study and launch else None
    lines = tagged_lines(path.read_text(errors="replace")) if path and path.is_file() else ()
    return [Row(line=line) for line in lines]


RANKS = Question(
    key="ranks",
    text="Which losses do the ranks print in their tagged output?",
    title="Training and validation loss that each rank saw, by epoch",
    rows=_rank_rows,
    columns=columns(
        *("workers", column("epoch", "epoch", brief), "rank"),
        *(column("rank_loss", "its own loss"), column("rank_val_loss", "validation loss")),
    ),
    tables=(
        Question(
            key="ranks-output",
            title="What the workers printed, as the launcher tags it",
            rows=_output,
            columns=(text("line", "line"),),
        ),
    ),
    say="""
{% set last = rows | having(epoch=rows[-1].epoch) if rows else [] %}
{% if last %}
In the last epoch on {{ last[0].workers | workers }} the ranks' own losses are \
{{ last | each("{rank_loss:number}") }}: each sees other samples with the same weights. The \
validation loss is {{ last[:1 if last[0].shared else None] | each("{rank_val_loss:number}") }}, \
{{ "of all workers" if last[0].shared else "each on its part of the test set" }}.
{% else %}
No rank recorded its own loss: no launch ran to its end.
{% endif %}
""",
    why="Tagged output puts the rank in front of each line; the appendix shows lines of this run.",
    figures=(
        lines(
            "loss-by-rank",
            "Training loss by rank",
            "Each rank's own loss, over its own samples, on a logarithmic axis.",
            "rank epoch rank_loss",
            x_log=False,
            log=True,
        ),
    ),
)


BUSY = replace(
    UTILISATION,
    why="The lab has a screenshot of the utilisation of two GPUs; here it is sampled twice a "
    "second on every rank.",
)


# What the lab got wrong: said, right, and what shows it, as templates.

_CORRECTIONS = (
    (
        "Averaging: the weights of all workers are averaged once an epoch.",
        "Gradients are averaged, in every step, before the update: all workers always have the "
        "same weights, and averaging those would change nothing.",
        "Measured here. {{ exchanged }}",
    ),
    (
        "Accuracy is given next to the loss.",
        "Accuracy counts exact hits among classes and means nothing for a steering angle. A "
        "regression is judged by its error, compared with that of the best constant.",
        """Mean squared errors here:
{{ scored | each("{loss.value:number} on {workers:workers}") }}; the best constant gets
{{ scored[:1] | each("{constant_mse:number}") }}.""",
    ),
)


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the run that shows the right account."""
    return correct(
        _CORRECTIONS,
        exchanged=shared.exchange_words(AVERAGING.rows(found)),
        scored=having(_settings(found, "workers"), "loss", "constant_mse"),
    )


LAB = Lab(
    name="driving",
    title="driving: a data set too small to scale",
    line="time and loss by workers, why more do not pay, and from which size on they would",
    questions=(WORKERS, VERDICT, DIVERGENCE, SIZE, PROJECTION, RANKS, BUSY, AVERAGING),
    published=("driving",),
    leading=("verdict", "size", "workers"),
    efforts=len(EFFORTS) - 2,
    data=describe_driving,
    pilot=lambda asked: (WORK.pilot(asked),),
    plan=plan,
    corrections=corrections,
    introduction="A network learns to steer a car from the images of its camera. The lab trains it "
    "for 10 epochs with a batch of 32 on 2, 4 and 8 GPUs of two kinds, and finds that the job does "
    "not get shorter while the loss grows. It asks for time and loss by workers, for what every "
    "rank sees, and for projections; its verdict is that the data set is too small. This report "
    "repeats it on the machine at hand and looks for the reasons: fixed cost, steps per epoch, the "
    "scaled learning rate, and how large the data set would have to be.",
    lab_found={
        "projection": "Projections are one of its aims; it gives none.",
        "averaging": "Weights are averaged once an epoch, which the appendix corrects.",
    },
    original_data={
        "source": "a car's camera, not named",
        "training samples": "not said",
        "test samples": "not said",
    },
    method=(
        ("batch per worker", "32", "32"),
        ("launch", "tagged output, [1,0]<stdout>", "the same: [0]<stdout>"),
    ),
    conclusion="""
{{ answers["verdict"].sentences[0] }}
The lab's own times support its verdict: 8 GPUs took 8.5 minutes where 2 took 8, so nothing of the \
job was shared. Its losses grow from 0.019 to 0.8, in one run each and without the loss of a \
constant to compare with; the jump on 8 GPUs fits a rate scaled by 8 and few steps per epoch.
A larger data set would change the verdict on time. For the loss it takes enough steps, and a rate \
that fits the global batch.
""",
    references=shared.references_of("driving"),
)
