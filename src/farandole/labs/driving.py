"""The driving lab: a data set too small to scale, and from which size on workers would pay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.format import brief, listed, optional, percent, plural, seconds, whole
from farandole.labs import plan as plans
from farandole.labs import questions as ask
from farandole.labs.data import describe_driving
from farandole.labs.lab import Asked, Choice, Correction, DataFacts, Found, Lab, Plan, Rate
from farandole.labs.plan import Training, Workload
from farandole.labs.questions import AVERAGING, Question, sentences
from farandole.labs.rows import (
    HERE,
    Row,
    cell_rows,
    columns,
    counts_in_words,
    estimate,
    exchange_words,
    final_mean,
    limits,
    plain,
    setting_rows,
)
from farandole.labs.rows import LAB as THE_LAB
from farandole.model.jobs import LEAST_STEPS, SAVED, Speed, break_even, enough_steps, fixed_time
from farandole.model.statistics import SPEED_MARGIN
from farandole.report.table import Column, Table, tabulate
from farandole.study.folder import LAUNCHES, OUTPUT_FILE
from farandole.study.records import Launch

if TYPE_CHECKING:
    from farandole.model.verdicts import Verdict

METRIC, CONSTANT, RANK_LOSS = "val_loss", "constant_mse", "rank_loss"
WORK = Workload(
    name="driving",
    script="driving.py",
    batch=32,
    learning_rate=0.0001,
    guess=Rate(samples_per_s=220.0, startup_s=6.0),
    few_test_samples=64,
)
LAB_EPOCHS = 10
RECIPES = ("linear", "fixed", "warmup", "longer")
"""The lab's own first: it scaled the rate."""


# The plan.


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of the lab is run; a larger effort has no smaller figure."""

    samples: int  # to train on; 0: all
    test_samples: int
    epochs: int
    seeds: int
    workers: tuple[int, ...]
    recipes: int = 2  # how many of RECIPES
    sizes: bool = False  # whether smaller data sets are timed, too


_TWO, _FOUR, _EIGHT = (1, 2), (1, 2, 4), (1, 2, 4, 8)

QUICK = Effort(768, 200, 4, 1, _TWO)
LADDER = (
    Effort(256, 128, 3, 1, _TWO),
    Effort(384, 128, 4, 1, _FOUR),
    Effort(512, 200, 6, 1, _FOUR),
    Effort(768, 200, LAB_EPOCHS, 1, _FOUR),
    Effort(1024, 400, LAB_EPOCHS, 2, _FOUR),
    Effort(1024, 400, LAB_EPOCHS, 3, _FOUR),
    Effort(0, 0, LAB_EPOCHS, 3, _FOUR),
    Effort(0, 0, LAB_EPOCHS, 3, _FOUR, sizes=True),
    Effort(0, 0, LAB_EPOCHS, 3, _EIGHT, sizes=True),
    Effort(0, 0, LAB_EPOCHS, 3, _EIGHT, recipes=4, sizes=True),
    Effort(0, 0, LAB_EPOCHS, 5, _EIGHT, recipes=4, sizes=True),
)
FULL = Effort(0, 0, LAB_EPOCHS, 3, _EIGHT, recipes=4, sizes=True)


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size."""
    here = {"quick": QUICK, "full": FULL}.get(asked.size) or LADDER[effort]
    first, *rest = plans.recipes(asked, RECIPES[: here.recipes])
    workers = plans.counts(asked, here.workers)
    training = Training(
        workload=WORK,
        asked=asked,
        data=data,
        rate=rates.get(WORK.name, WORK.guess),
        samples=here.samples,
        test_samples=here.test_samples,
        epochs=here.epochs,
        seeds=here.seeds,
    )
    title = f"Time and loss by workers, recipe {first}"
    studies = [training.study(name="workers", title=title, recipes=(first,), workers=workers)]
    several = tuple(count for count in workers if count > 1)
    if rest and several:
        title = f"Loss by workers, {listed(rest)}"
        studies.append(
            training.study(name="recipes", title=title, recipes=tuple(rest), workers=several)
        )
    timed = tuple(count for count in workers if count <= asked.cores)
    if here.sizes and timed:
        samples = plans.taken(here.samples, data.train)
        studies.append(
            training.study(
                name="size",
                title="Job time by size of the data set",
                recipes=(first,),
                workers=timed,
                sizes=tuple(sorted({max(1, samples // part) for part in (4, 2)})),
            )
        )
    return Plan(
        studies=tuple(studies), choices=_choices(asked, data, here, workers, (first, *rest))
    )


def _choices(
    asked: Asked, data: DataFacts, here: Effort, workers: tuple[int, ...], named: tuple[str, ...]
) -> tuple[Choice, ...]:
    rates = plans.recipe_words(WORK.learning_rate, named)
    both = "fixed beside linear tells fewer steps from the scaled rate"
    why = both if {"fixed", "linear"} <= set(named) else ""
    fewer = "to fit the time" if here.epochs < LAB_EPOCHS else ""
    beyond = plans.beyond(workers, asked.cores)
    return plans.choices(
        *[
            _choice("device", "GPUs, T4 and DGX", f"{asked.cores} CPU cores, a thread per worker"),
            _choice("data set", "a car's camera, not named", data.source),
            _choice("network", "not named", "NVIDIA's PilotNet"),
            plans.samples_choice("training samples", "not said", here.samples, data.train),
            plans.samples_choice("test samples", "not said", here.test_samples, data.test),
            _choice("epochs", f"{LAB_EPOCHS}", f"{here.epochs}", fewer),
            _choice("workers", "2, 4 and 8", plans.words(workers), beyond),
            _choice("learning rate", "scaled by the workers, as it seems", rates, why),
            plans.DECAY,
        ]
    )


def _choice(what: str, lab: str, here: str, why: str = "") -> Choice:
    return Choice(what=what, lab=lab, here=here, why=why)


# The questions.

_COLUMNS = (
    Column(key="job_s", title="job", show=seconds, interval=True),
    Column(key="steps_per_epoch", title="steps per epoch", show=whole),
    Column(key="loss", title="loss (MSE)", interval=True),
    Column(key="constant_mse", title="loss of a constant"),
    Column(key="share", title="of the constant's", show=percent),
    Column(key="runs", title="runs", show=whole, get="seeds"),
    Column(key="steps", title="steps of the job", show=whole, get="counted"),
    Column(key="rate", title="learning rate", show=plain),
    Column(key="fixed_s", title="fixed", show=seconds),
    Column(key="fixed_share", title="fixed share", show=percent),
)


def choose(keys: str) -> tuple[Column, ...]:
    own = {one.key: one for one in _COLUMNS}
    return tuple(own.get(key) or columns(key)[0] for key in keys.split())


_LAB_DEVICES = [f"{THE_LAB}, {device}" for device in ("GPU", "T4", "DGX")]


def _settings(found: Found, *studies: str) -> list[Row]:
    """Return one row per setting, with its loss beside that of the best constant prediction."""
    rows = []
    for row in setting_rows(found, *studies, metric=METRIC):
        constant = final_mean(row.records, CONSTANT)
        rows.append(
            row.but(
                device="CPU",
                steps_per_epoch=(row.counted or row.whole_steps) // row.epochs,
                loss=row.final,
                constant_mse=constant.value if constant else None,
                share=row.final.value / constant.value if row.final and constant else None,
                fixed_s=row.job.fixed_s if row.job else None,
                fixed_share=row.job.fixed_share if row.job else None,
            )
        )
    return rows


def _own(rows: Iterable[Row]) -> list[Row]:
    """Return the rows by the lab's own recipe, which the study of workers has."""
    return [row for row in rows if row.study == "workers"]


def _worker_rows(found: Found) -> list[Row]:
    lab = cell_rows(found.published.get("driving"), THE_LAB)
    return [
        *_settings(found, "workers", "recipes"),
        *(row.but(recipe="not said", loss=row.final, seeds=1) for row in lab if row.job),
    ]


def _time_lines(rows: Sequence[Row]) -> list[Row]:
    lab = [row.but(source=f"{THE_LAB}, {row.device}") for row in rows if row.source == THE_LAB]
    return [row for row in (*_own(rows), *lab) if row.job_s]


def _loss_lines(rows: Sequence[Row]) -> list[Row]:
    """Return a line per recipe, each of which begins with the fewest workers."""
    here = [row for row in rows if row.source == HERE]
    base = min(_own(here), key=lambda row: int(row.workers), default=None)
    lines = []
    for name in dict.fromkeys(row.recipe for row in here):
        first = [base] if base and base.recipe != name else []
        of_recipe = [*first, *(row for row in here if row.recipe == name)]
        lines += [row.but(source=f"{HERE}, {name}") for row in of_recipe]
    constants = {row.workers: estimate(row.constant_mse) for row in here}
    lines += [Row(source="a constant", workers=n, loss=constants[n]) for n in sorted(constants)]
    return [row for row in (*lines, *(row for row in rows if row.source == THE_LAB)) if row.loss]


def _worker_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    own = _own(rows)
    beaten = [row.workers for row in own if row.loss and row.share is not None and row.share < 1]
    return {
        "timed": [row for row in own if row.job_s],
        "scored": [row for row in own if row.loss],
        "beaten": counts_in_words(beaten) if beaten else "no number of workers",
        "limits": limits(found, "workers"),
    }


WORKERS = Question(
    key="workers",
    text="What do time and loss become as workers are added?",
    title="Job time and loss by workers",
    rows=_worker_rows,
    columns=(
        *choose("source device recipe workers job_s steps_per_epoch loss"),
        *choose("constant_mse share runs"),
    ),
    notes=(
        "The loss here is the mean squared error on the test set; the loss of a constant is what "
        "the best constant prediction gets there. Which loss the lab gives is not said.",
    ),
    facts=_worker_facts,
    say="""
{% if timed | length > 1 %}
{% set few, many = timed[0], timed[-1] %}
{% set change = many.job_s.value / few.job_s.value - 1 %}
The whole job takes {{ few.job_s.value | seconds }} on {{ few.workers | count("worker") }} and \
{{ many.job_s.value | seconds }} on {{ many.workers | count("worker") }}: \
{{ change | abs | percent }} {{ "less" if change < 0 else "more" }} with \
{{ (many.workers / few.workers) | brief }} times the workers.
{% elif timed %}
Only the job on {{ timed[0].workers | count("worker") }} was timed: \
{{ timed[0].job_s.value | seconds }}.
{% else %}
No job time was measured that counts.
{% endif %}
{% call(row) each(scored, "The loss on the test set ends at %s.") %}
{{ row.loss.value | number }} on {{ row.workers | count("worker") }}
{% endcall +%}
{% if not scored %}
The loss was not measured: no launch ran to its end.
{% elif scored[0].constant_mse is not none %}
The best constant prediction gets {{ scored[0].constant_mse | number }}, beaten by {{ beaten }}.
{% endif %}
{% call(row) each(lab | selectattr("job_s"), "The lab's jobs take %s.") %}
{{ row.job_s.value | seconds }} on {{ row.workers }} workers ({{ row.device }})
{% endcall +%}
{% set ends = lab | selectattr("loss") | sort(attribute="workers") %}
{% if ends | length > 1 %}
The lab's loss goes from {{ ends[0].loss.value | number }} on {{ ends[0].workers }} workers to \
{{ ends[-1].loss.value | number }} on {{ ends[-1].workers }}.
{% endif %}
{{ limits | join("\n") }}
""",
    figures=(
        ask.Lines(
            name="time-by-workers",
            title="Job time by workers",
            caption="From the launch to the end. More workers than cores have no time to show.",
            rows=_time_lines,
            columns=choose("source workers job_s"),
            options={
                "x": "workers",
                "y": "job_s",
                "series": "source",
                "published": [f"{THE_LAB}, {device}" for device in ("GPU", "T4", "DGX")],
            },
        ),
        ask.Lines(
            name="loss-by-workers",
            title="Loss by workers",
            caption="At the end of training, on a logarithmic axis.",
            rows=_loss_lines,
            columns=choose("source workers loss"),
            options={
                "x": "workers",
                "y": "loss",
                "series": "source",
                "log": True,
                "published": (THE_LAB,),
            },
        ),
    ),
)


def _verdicts(found: Found) -> list[tuple[str, Verdict]]:
    """Return what the model says of the study here, and of the lab's table."""
    infos = {"workers": found.studies.get("workers"), "lab": found.published.get("driving")}
    return [
        (study, one)
        for study, info in infos.items()
        for one in (info.verdicts if info else ())
        if one.kind in ("data_too_small", "fixed_cost", "no_significant_difference")
    ]


def _rules(found: Found, rows: Sequence[Row]) -> list[Table]:
    fired = [
        Row(study=study, rule=one.kind, sentence=one.sentence, action=one.action)
        for study, one in _verdicts(found)
    ]
    titles = {"study": "study", "rule": "rule", "sentence": "verdict", "action": "what to do"}
    texts = [Column(key=key, title=title, text=True) for key, title in titles.items()]
    return [tabulate("verdict-rules", "The rules that fired", fired, texts)] if fired else []


def _verdict_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    """Judge time and loss of the most workers whose time counts, or else of the most."""
    own = _own(rows)
    timed = [row for row in own if row.job_s]
    few = own[0] if own else Row()
    many = timed[-1] if len(timed) > 1 else own[-1] if own else few
    saved = 1 - timed[-1].job_s.value / timed[0].job_s.value if len(timed) > 1 else None
    both = bool(few.loss and many.loss)
    losses = {(row.workers, row.recipe): row.loss.value for row in rows if row.loss}
    verdicts = _verdicts(found)
    return {
        "own": own,
        "few": few,
        "many": None if many is few else many,
        "saved": saved,
        "enough": SAVED,
        "faster": saved is not None and saved >= SAVED,
        "both": both,
        "kept": both and many.loss.value <= few.loss.value * (1 + SPEED_MARGIN),
        "small": [row.workers for row in own if row.steps_per_epoch < LEAST_STEPS],
        "least": LEAST_STEPS,
        "start": few.loss.value if few.loss else None,
        "parts": [
            Row(workers=n, fixed=losses[n, "fixed"], linear=losses[n, "linear"])
            for n in sorted({row.workers for row in rows if own and row.workers > few.workers})
            if {(n, "fixed"), (n, "linear")} <= losses.keys()
        ],
        "timing": [
            one.sentence
            for study, one in verdicts
            if study == "workers" and one.kind != "data_too_small"
        ],
        "lab_rules": [one.sentence for study, one in verdicts if study == "lab"],
    }


VERDICT = Question(
    key="verdict",
    text="Does it pay to add workers, and why not?",
    title="What adding workers does to a job",
    rows=lambda found: _settings(found, "workers", "recipes"),
    columns=(
        *choose("recipe workers steps_per_epoch steps rate job_s"),
        *choose("fixed_s fixed_share loss"),
    ),
    notes=("Fixed: what of a job is not a pass over the training data.",),
    tables=_rules,
    facts=_verdict_facts,
    say="""
{% set losses %}
{% if both %}
the loss {{ "goes" if kept else "rises" }} from {{ few.loss.value | number }} to \
{{ many.loss.value | number }}
{%- endif %}
{% endset %}
{% if not many %}
There is no verdict: it takes two numbers of workers that ran to their end.
{% elif saved is not none %}
{{ "Adding workers pays" if faster and (kept or not both)
   else "Adding workers does not pay" if not faster and not kept else "Mixed" }}: \
{{ many.workers | count("worker") }} {{ "cut" if saved >= 0 else "lengthen" }} job time by \
{{ saved | abs | percent }}{{ " (%s would pay)" | format(enough | percent) if not faster }}\
{{ ", %s " | format("but" if faster and not kept else "and") ~ losses if both }}.
{% elif both %}
Job times that count are missing, so it is not known whether adding workers pays: with \
{{ many.workers | count("worker") }} {{ losses }}.
{% else %}
There is no verdict: no launch ran to its end.
{% endif %}
{% if own %}
An epoch of {{ own[0].samples | whole }} samples at batch {{ own[0].batch }} per worker has \
{% call(row) each(own) %}
{{ row.steps_per_epoch | count("step") }} on {{ row.workers | count("worker") }}
{% endcall %}, {{ "fewer than %s from %s on: the data set is too small"
   | format(least, small | min | count("worker")) if small else "at least %s everywhere"
   | format(least) }}.
{% else %}
No launch here ran: the verdict is that of the lab's table.
{% endif %}
{{ timing | join("\n") }}
{% for row in parts if start is not none %}
On {{ row.workers | count("worker") }} the loss goes from {{ start | number }} to \
{{ row.fixed | number }} by fewer steps alone (unscaled rate, \
{{ "%+.2g" | format(row.fixed - start) }}), and to {{ row.linear | number }} with the scaled rate \
({{ "%+.2g" | format(row.linear - row.fixed) }}).
{% else %}
{% if start is not none %}
To tell whether fewer steps or the scaled rate change the loss, run both recipes, fixed and \
linear, on several workers.
{% endif %}
{% endfor %}
{% for sentence in lab_rules %}
The lab's own times: {{ sentence }}
{% endfor %}
""",
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
    timed = [row for row in rows if row.speed]
    for row in timed[1:]:
        base = timed[0]
        sizes = break_even(base.speed, row.speed, epochs=base.epochs, batch=base.batch)
        row.even, row.time, row.pays_from = sizes.even, sizes.time, sizes.samples
    return rows


def _computed(rows: Sequence[Row]) -> list[Row]:
    timed = [row for row in rows if row.speed]
    return [
        Row(
            setting=plural(row.workers, "worker"),
            samples=size,
            job_s=row.speed.job_s(size, timed[0].epochs),
        )
        for row in timed
        for size in (round(timed[0].samples * factor) for factor in _FACTORS)
    ]


def _check(found: Found, rows: Sequence[Row]) -> list[Table]:
    """Compare computed job times with launches on smaller data sets, where there are some."""
    speeds = {row.workers: row.speed for row in rows if row.speed}
    launched = [
        row.but(computed_s=speeds[row.workers].job_s(row.samples, row.epochs))
        for row in _settings(found, "size")
        if row.job_s and row.workers in speeds
    ]
    own = (
        Column(key="samples", title="training samples", show=whole),
        Column(key="job_s", title="job, launched", show=seconds, interval=True),
        Column(key="computed_s", title="computed", show=seconds),
    )
    title = "The same on smaller data sets: launched and computed"
    known = (*choose("source workers"), *own)
    return [tabulate("size-check", title, launched, known)] if launched else []


SIZE = Question(
    key="size",
    text="From which size of the data set on would more workers pay?",
    title="From which number of training samples on more workers pay",
    rows=_size_rows,
    columns=(
        *columns("workers"),
        Column(key="fixed_s", title="fixed time of a job", show=seconds),
        Column(key="samples_per_s", title="samples/s"),
        Column(key="even", title="not longer from", show=optional),
        Column(key="time", title=f"{percent(SAVED)} shorter from", show=optional),
        Column(key="steps", title="enough steps from", show=optional, get="enough_steps"),
        Column(key="samples", title="pays from", show=optional, get="pays_from"),
        Column(key="here", title="samples here", show=whole, get="samples"),
    ),
    notes=(_ASSUMED,),
    tables=_check,
    facts=lambda found, rows: {
        "timed": [row for row in rows if row.speed],
        "saved": SAVED,
        "assumed": _ASSUMED,
    },
    say="""
{% set base = timed[0] %}
{% for row in timed[1:] %}
{% set size = row.pays_from %}
{% if size is none %}
{{ row.workers | count("worker") }} would not pay at any size: they train \
{{ (row.samples_per_s / base.samples_per_s) | times }} as fast as \
{{ base.workers | count("worker") }}, which never saves {{ saved | percent }}.
{% else %}
{{ row.workers | count("worker") }} pay from about {{ size | whole }} training samples on \
({{ "%s times the" | format((size / base.samples) | number) if size > base.samples else "the" }} \
{{ base.samples | whole }} of this run{{ " are enough" if size <= base.samples }}); \
{{ "time decides" if size == row.time else "steps per epoch decide" }}.
{% endif %}
{% else %}
Job times cannot tell: that takes two numbers of workers whose times count.
{% call(row) each(rows, "Enough steps per epoch take %s.") %}
{{ row.enough_steps | count("sample") }} on {{ row.workers | count("worker") }}
{% endcall +%}
{% endfor %}
{% if timed | length > 1 %}
A job of {{ base.epochs }} epochs has a fixed time of {{ base.fixed_s | seconds }} on \
{{ base.workers | count("worker") }} and {{ timed[-1].fixed_s | seconds }} on \
{{ timed[-1].workers | count("worker") }}; more workers pay when they save {{ saved | percent }} \
of the job and an epoch still has enough steps.
{{ assumed }}
{% endif %}
""",
    figures=(
        ask.Lines(
            name="time-by-size",
            title="Job time by size of the data set",
            caption=f"From fixed time and speed as measured; not launches. {_ASSUMED}",
            rows=_computed,
            columns=(
                Column(key="setting", title="setting", text=True),
                Column(key="samples", title="training samples", show=whole),
                Column(key="job_s", title="job", show=seconds),
            ),
            options={"x": "samples", "y": "job_s", "series": "setting", "x_log": True, "log": True},
        ),
    ),
)

_MOST_LINES = 8


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
    tagged = [line for line in text.splitlines() if line.startswith("[")]
    return tuple(([line for line in tagged if "loss" in line] or tagged)[-most:])


def _most(found: Found) -> Launch | None:
    """Return a launch with rank losses that has the most workers."""
    study = found.records.get("workers")
    ended = [one for one in (study.launches if study else ()) if one.outcome == "ok"]
    known = [one for one in ended if rank_losses(one)]
    return max(known, key=lambda one: one.cell.workers, default=None)


def _rank_rows(found: Found) -> list[Row]:
    launch = _most(found)
    losses = rank_losses(launch) if launch else {}
    return [
        Row(workers=launch.cell.workers, epoch=epoch, rank=rank, rank_loss=value)
        for (epoch, rank), value in sorted(losses.items())
        if launch
    ]


def _output(found: Found, rows: Sequence[Row]) -> list[Table]:
    """Show lines of the launch's output; a study without a folder has none."""
    study, launch = found.records.get("workers"), _most(found)
    if study is None or launch is None:
        return []
    try:
        path = Path(study.path) / LAUNCHES / launch.id / OUTPUT_FILE
        text = path.read_text(errors="replace")
    except OSError:
        return []
    title = "What the workers printed, as the launcher tags it"
    lines = [Row(line=line) for line in tagged_lines(text)]
    column = Column(key="line", title="line", text=True)
    return [tabulate("ranks-output", title, lines, (column,))] if lines else []


RANKS = Question(
    key="ranks",
    text="What loss does every rank see, as its tagged output tells?",
    title="The training loss that each rank saw, by epoch",
    rows=_rank_rows,
    columns=(
        *columns("workers"),
        Column(key="epoch", title="epoch", show=brief),
        Column(key="rank", title="rank", show=whole),
        Column(key="rank_loss", title="its own loss"),
    ),
    tables=_output,
    facts=lambda found, rows: {"printed": [len(one.rows) for one in _output(found, rows)]},
    say="""
{% set last = rows | selectattr("epoch", "eq", (rows | last).epoch) | list if rows else [] %}
{% if last | length > 1 %}
In the last epoch on {{ last[0].workers | count("worker") }} the ranks' own losses range from \
{{ last | map(attribute="rank_loss") | min | number }} to \
{{ last | map(attribute="rank_loss") | max | number }}: each rank sees other samples with the same \
weights, so losses differ and weights do not.
{% elif last %}
The one rank ends with a loss of {{ last[0].rank_loss | number }}.
{% else %}
No rank recorded its own loss: no launch ran to its end.
{% endif %}
{% if printed %}
{{ printed[0] | count("line") }} of that launch are shown as printed; the number in brackets is \
the rank.
{% endif %}
""",
    figures=(
        ask.Lines(
            name="loss-by-rank",
            title="Training loss by rank",
            caption="Each rank's own loss, over its own samples, on a logarithmic axis.",
            options={"x": "epoch", "y": "rank_loss", "series": "rank", "x_log": False, "log": True},
        ),
    ),
)

QUESTIONS = (WORKERS, VERDICT, SIZE, RANKS, AVERAGING)


# What the lab got wrong.

_ERRORS = """
{% set scored = here | selectattr("loss") | list %}
{% set constants = here | rejectattr("constant_mse", "none") | list %}
{% call(row) each(scored, "Mean squared errors here: %s") %}
{{ row.loss.value | number }} on {{ row.workers | count("worker") }}
{% endcall %}
{{ ", beside %s of the best constant" | format(constants[0].constant_mse | number)
   if scored and constants }}{{ "." if scored else "No launch ran to its end here." }}
"""


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the run that shows the right account."""
    several = [row for row in AVERAGING.rows(found) if row.ranks > 1] if AVERAGING.rows else []
    most = max(several, key=lambda row: int(row.ranks), default=None)
    return (
        Correction(
            said="The weights of all workers are averaged once an epoch.",
            right="Gradients are averaged, in every step, before the update: all workers always "
            "have the same weights, and averaging these would change nothing.",
            shown_by=f"Here, {exchange_words(most)}."
            if most
            else "No launch on several workers ran to its end here.",
        ),
        Correction(
            said="The model's accuracy is given beside its loss.",
            right="Accuracy counts exact hits among classes and means nothing for a steering "
            "angle. A regression is judged by its error, beside that of the best constant.",
            shown_by=" ".join(sentences(_ERRORS, rows=_settings(found, "workers"))),
        ),
    )


LAB = Lab(
    name="driving",
    title="driving: a data set too small to scale",
    line="time and loss by workers, why more do not pay, and from which size on they would",
    questions=QUESTIONS,
    published=("driving",),
    leading=("verdict", "size", "workers"),
    efforts=len(LADDER),
    data=describe_driving,
    pilot=lambda asked: (WORK.pilot(asked),),
    plan=plan,
    corrections=corrections,
)
