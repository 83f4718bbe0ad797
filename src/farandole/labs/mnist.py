"""The mnist lab: utilisation by batch, speed and accuracy by workers, two nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farandole.format import listed, optional, percent, plural, seconds, size, times, whole
from farandole.labs import plan as plans
from farandole.labs import questions as ask
from farandole.labs.lab import (
    Asked,
    Choice,
    Correction,
    DataFacts,
    Found,
    Lab,
    Plan,
    Planned,
    Rate,
    on_use,
)
from farandole.labs.plan import Training, Workload, busy_flags, speed_flags, steps_s
from farandole.labs.questions import Question
from farandole.labs.rows import (
    HERE,
    Row,
    cell_rows,
    claims_of,
    columns,
    estimate,
    four,
    in_points,
    limits,
    plain,
    setting_rows,
    split_words,
    use_words,
    without_intervals,
)
from farandole.labs.rows import LAB as THE_LAB
from farandole.model.jobs import training_steps
from farandole.model.metrics import smallest_difference
from farandole.model.statistics import SPEED_MARGIN
from farandole.recipes import recipe
from farandole.report.table import Column

METRIC = "val_accuracy"
WORK = Workload(
    name="mnist",
    script="mnist.py",
    batch=128,
    learning_rate=0.001,
    guess=Rate(samples_per_s=450.0, startup_s=6.0),
    few_test_samples=256,
)
LAB_EPOCHS, LAB_SAMPLES, LAB_TEST_SAMPLES = 40, 60_000, 10_000
LAB_TWO_NODES = 3120
"""Steps that the lab names for its run on two nodes."""
NODES = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 3), (2, 4))
"""Nodes and workers on each, as in the lab."""
RATES = {
    "linear": "0.001 x workers",
    "fixed": "0.001 (fixed)",
    "warmup": "0.001 x workers after a warm-up",
    "longer": "0.001 for twice the epochs (longer)",
}
"""Learning rates by recipe; the lab's own recipe first."""
RECIPES = tuple(RATES)


# The plan.

_FEWEST_EPOCHS = 3
"""Of a run on a part of the data: fewer leave no room for a warm-up."""
_RECIPE_WORKERS = 4
"""The most that recipes beside the first are tried on, unless the user asks for more."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of the lab is run; a larger effort has no smaller figure."""

    visits: int | None
    """Samples that a run sees, over all its epochs; None: the lab's 40 epochs of all of them."""
    test_samples: int  # 0: all
    seeds: int
    workers: tuple[int, ...]
    recipes: int  # how many of RECIPES
    batches: tuple[int, ...]  # that one worker with all cores tries, with so many
    steps: int
    repeats: int

    def samples(self, available: int) -> int:
        """Return how many samples to train on: new ones are worth more than the same again."""
        if self.visits is None:
            return available
        return min(available, max(1, self.visits // _FEWEST_EPOCHS))

    def epochs(self, available: int) -> int:
        """Return for how many epochs."""
        if self.visits is None:
            return LAB_EPOCHS
        return min(LAB_EPOCHS, max(_FEWEST_EPOCHS, self.visits // self.samples(available)))

    def fitting_batches(self, data: DataFacts) -> tuple[int, ...]:
        """Leave out batches that the data do not fill a few times; one is always left."""
        return tuple(b for b in self.batches if 4 * b <= data.train) or self.batches[:1]


_TWO, _FOUR, _EIGHT = (1, 2), (1, 2, 4), (1, 2, 4, 8)
_THREE_BATCHES, _FOUR_BATCHES = (32, 128, 512), (32, 128, 512, 1024)

QUICK = Effort(3072, 360, 1, _TWO, 2, (32, 128), 10, 1)
LADDER = (
    Effort(2304, 360, 1, _TWO, 2, (32, 128), 10, 1),
    Effort(3072, 1000, 1, _FOUR, 2, _THREE_BATCHES, 12, 1),
    Effort(6144, 1000, 1, _FOUR, 3, _THREE_BATCHES, 12, 1),
    Effort(6144, 2000, 2, _FOUR, 3, _THREE_BATCHES, 12, 1),
    Effort(6144, 2000, 3, _FOUR, 3, _THREE_BATCHES, 16, 2),
    Effort(9216, 2000, 3, _FOUR, 3, _THREE_BATCHES, 16, 2),
    Effort(12_288, 2000, 3, _FOUR, 3, _THREE_BATCHES, 16, 2),
    Effort(18_000, 5000, 3, _FOUR, 4, _THREE_BATCHES, 16, 2),
    Effort(30_000, 0, 3, _FOUR, 4, _FOUR_BATCHES, 20, 3),
    Effort(60_000, 0, 3, _FOUR, 4, _FOUR_BATCHES, 20, 3),
    Effort(90_000, 0, 3, _FOUR, 4, _FOUR_BATCHES, 20, 3),
    Effort(120_000, 0, 3, _FOUR, 4, _FOUR_BATCHES, 20, 3),
    Effort(180_000, 0, 3, _FOUR, 4, _FOUR_BATCHES, 20, 3),
    Effort(240_000, 0, 3, _EIGHT, 4, _FOUR_BATCHES, 20, 3),
    Effort(360_000, 0, 3, _EIGHT, 4, _FOUR_BATCHES, 20, 3),
    Effort(600_000, 0, 3, _EIGHT, 4, _FOUR_BATCHES, 20, 3),
)
# One host with as many workers as the lab's two nodes had GPUs takes the same steps.
FULL = Effort(None, 0, 1, (1, 2, 4, 6, 8), 4, (128, 256, 512, 1024), 40, 3)


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size."""
    here = {"quick": QUICK, "full": FULL}.get(asked.size) or LADDER[effort]
    rate = rates.get(WORK.name, WORK.guess)
    training = Training(
        workload=WORK,
        asked=asked,
        data=data,
        rate=rate,
        samples=here.samples(data.train),
        test_samples=here.test_samples,
        epochs=here.epochs(data.train),
        seeds=here.seeds,
    )
    workers = plans.counts(asked, here.workers)
    first, *rest = plans.recipes(asked, RECIPES[: here.recipes])
    studies = [
        _batch_study(asked, data, rate, here),
        training.study(
            name="workers",
            title=f"Time and accuracy by workers, recipe {first}",
            recipes=(first,),
            workers=workers,
        ),
    ]
    # With one worker all recipes are the same.
    several = tuple(n for n in workers if n > 1 and (asked.workers or n <= _RECIPE_WORKERS))
    if rest and several:
        title = f"Accuracy by workers, {listed(rest)}"
        studies.append(
            training.study(name="recipes", title=title, recipes=tuple(rest), workers=several)
        )
    return Plan(
        studies=tuple(studies), choices=_choices(asked, data, here, workers, (first, *rest))
    )


def _batch_study(asked: Asked, data: DataFacts, rate: Rate, here: Effort) -> Planned:
    batches = here.fitting_batches(data)
    once_s = steps_s(rate, threads=asked.cores, batches=batches, steps=here.steps)
    title = "Utilisation and throughput of one worker with all cores, by batch"
    counts = ("-np", "1", "-L", f"batch={plans.numbers(batches)}", "--steps", str(here.steps))
    grid = (*counts, *speed_flags(here.repeats), *busy_flags(asked))
    return WORK.speed_study(asked, "batch", title, grid=grid, seconds=here.repeats * once_s)


def _choices(
    asked: Asked, data: DataFacts, here: Effort, workers: tuple[int, ...], named: tuple[str, ...]
) -> tuple[Choice, ...]:
    samples, epochs = here.samples(data.train), here.epochs(data.train)
    longer = sorted({recipe(name).epochs(epochs) for name in named} - {epochs})
    named_epochs = f"{epochs}" + (f" ({longer[-1]} with recipe longer)" if longer else "")
    one_host = "a lab runs on one host; two_nodes works out what a second one changes"
    rates = ", ".join(RATES.get(name, name) for name in named)
    keeps = "to show what keeps accuracy" if len(named) > 1 else ""
    batches = plans.words(here.fitting_batches(data))
    beyond = plans.beyond(workers, asked.cores)
    return plans.choices(
        *[
            _choice("device", "GPUs", f"{asked.cores} CPU cores, a thread per worker"),
            _choice("hosts", "1 and 2 (sbatch -N 2)", "1", one_host),
            _choice("data set", "not named; 60,000 samples point to MNIST", data.source),
            _choice("network", "not named", "Keras's CNN for MNIST, 1.2 M parameters"),
            plans.samples_choice("training samples", f"{LAB_SAMPLES:,}", samples, data.train),
            plans.samples_choice("test samples", "not said", here.test_samples, data.test),
            _choice("epochs", "40 (and 21)", named_epochs),
            _choice("workers", "1, 2 and 4; 2, 6 and 8 on two nodes", plans.words(workers), beyond),
            _choice("learning rate", RATES["linear"], rates, keeps),
            _choice("batches of the utilisation sweep", "128 and 1,024", batches),
            plans.DECAY,
        ]
    )


def _choice(what: str, lab: str, here: str, why: str = "") -> Choice:
    return Choice(what=what, lab=lab, here=here, why=why)


# The questions.

_SAME_SHARE = 0.02
"""Shares closer than this are the same to a sampler that looks twice a second."""
_UNEVEN = ("uneven_utilisation", "uneven_memory", "straggler", "contention")
_BOUND = ("communication_bound", "input_bound", "compute_bound")
_BESIDE_LAB = {"series": "source", "published": (THE_LAB,)}

_COLUMNS = (
    Column(key="batch", title="batch", show=whole),
    Column(key="utilisation", title="utilisation", show=percent),
    Column(key="samples_per_s", title="samples/s", interval=True, get="throughput"),
    Column(key="step_s", title="step", show=seconds, interval=True),
    Column(key="epochs", title="epochs", show=whole),
    Column(key="samples", title="samples", show=whole),
    Column(key="global_batch", title="global batch", show=whole),
    Column(key="formula", title="epochs x samples / global batch", get="steps"),
    Column(key="whole_steps", title="in whole steps", show=whole),
    Column(key="counted", title="counted", show=optional),
    Column(key="job_s", title="job", show=seconds, interval=True),
    Column(key="job_speedup", title="speedup of the job", show=times),
    Column(key="speedup", title="speedup of training", show=times, interval=True),
    Column(key="efficiency", title="efficiency", show=percent, interval=True),
    Column(key="runs", title="runs", show=whole, get="seeds"),
    Column(key="seeds", title="seeds", show=whole),
    Column(key="speed", title="speed", text=True),
    Column(key="setting", title="setting", text=True),
    Column(key="rank", title="rank", show=whole),
    Column(key="cpu", title="CPU utilisation", show=percent),
    Column(key="memory_bytes", title="memory", show=size),
    Column(key="compute_s", title="computing per step", show=seconds),
    Column(key="nodes", title="nodes", show=whole),
    Column(key="per_node", title="per node", show=whole),
    Column(key="steps_per_epoch", title="steps per epoch"),
    Column(key="steps", title="steps"),
    Column(key="rate", title="rate", show=plain),
    Column(key="lab_job_s", title="lab's job", show=seconds),
    Column(key="lab_accuracy", title="lab's accuracy", show=four),
)


def choose(keys: str) -> tuple[Column, ...]:
    own = {one.key: one for one in _COLUMNS}
    return tuple(own.get(key) or columns(key)[0] for key in keys.split())


def _settings(found: Found, *studies: str) -> list[Row]:
    rows = setting_rows(found, *studies, metric=METRIC)
    return [row.but(accuracy=row.final, exact=row.counted == row.whole_steps) for row in rows]


def _published(found: Found, *names: str) -> list[Row]:
    cells = [row for name in names for row in cell_rows(found.published.get(name), THE_LAB)]
    return [row.but(accuracy=row.final, recipe="linear", nodes=row.hosts, seeds=1) for row in cells]


def _batch_rows(found: Found) -> list[Row]:
    here = [row for row in cell_rows(found.studies.get("batch")) if row.batch and not row.today]
    for row in here:
        row.device = plural(row.threads, "core") if row.threads else "CPU"
        row.utilisation = row.cpu
    lab = _published(found, "mnist_utilisation")
    return [
        *sorted(here, key=lambda row: int(row.batch)),
        *(row.but(device="1 GPU", utilisation=row.gpu) for row in lab),
    ]


def _batch_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    here = [row for row in rows if row.source == HERE]
    shares = [row.utilisation for row in here if row.utilisation is not None]
    single = without_intervals(row.throughput for row in here)
    change = "does not change"
    if shares and abs(shares[-1] - shares[0]) > _SAME_SHARE:
        # One launch of a few steps has too few samples for so small a fall to be one.
        falls = "does not rise" if single else "falls"
        change = "rises" if shares[-1] > shares[0] else falls
    info = found.studies.get("batch")
    return {
        "change": change,
        "margin": 1 + SPEED_MARGIN,
        "sweeps": [one.sentence for one in (info.batch_sweeps if info else ()) if one.best],
        "limits": limits(found, "batch"),
    }


UTILISATION = Question(
    key="utilisation",
    text="How does utilisation depend on the batch?",
    title="Utilisation and throughput of one worker by batch",
    rows=_batch_rows,
    columns=choose("source device batch utilisation samples_per_s step_s"),
    notes=("Utilisation is sampled twice a second, from the end of the first step on.",),
    facts=_batch_facts,
    say="""
{% set used = here | rejectattr("utilisation", "none") | list %}
{% set timed = here | selectattr("throughput") | list %}
{% if used | length > 1 %}
{{ "Utilisation %s as the batch grows" | format(change) if timed
   else "The machine was too busy for a comparison" }}: one worker keeps {{ used[0].device }} \
{{ used[0].utilisation | percent }} busy at batch {{ used[0].batch }} and \
{{ used[-1].utilisation | percent }} at {{ used[-1].batch | whole }}.
{% endif %}
{% if timed | length > 1 %}
{% set gain = timed[-1].throughput.value / timed[0].throughput.value %}
Throughput goes from {{ timed[0].throughput | interval }} samples/s at batch {{ timed[0].batch }} \
to {{ timed[-1].throughput | interval }} at {{ timed[-1].batch | whole }} ({{ gain | times }}): \
{{ "a larger batch usually spreads the fixed cost of a step (Python, calls into the framework, the "
   ~ "update of all weights) over more samples" if gain > margin
   else "the smaller batch usually keeps the cores busy already" }}.
{% elif used | length < 2 %}
No two batches have a launch here whose figures count, so there is nothing to compare.
{% endif %}
{{ sweeps | join("\n") }}
{% if lab | length > 1 %}
The lab's GPU was {{ lab[0].utilisation | percent }} busy at batch {{ lab[0].batch }} and \
{{ lab[-1].utilisation | percent }} at {{ lab[-1].batch | whole }}: the faster the device, the \
larger the fixed part of a step usually is.
{% endif %}
{{ limits | join("\n") }}
""",
    figures=(
        ask.Lines(
            name="utilisation-by-batch",
            title="Utilisation by batch",
            caption="Share of its cores (here) or of its GPU (the lab) that one worker keeps busy.",
            options={"x": "batch", "y": "utilisation", **_BESIDE_LAB},
        ),
        ask.Lines(
            name="throughput-by-batch",
            title="Throughput by batch",
            caption="Samples per second of one worker with all cores.",
            options={"x": "batch", "y": "samples_per_s"},
        ),
    ),
)


def full_steps(epochs: float, samples: int, batch: int, workers: int) -> int:
    """Return a job's steps when each epoch leaves its last, smaller batch out."""
    return int(epochs) * (samples // (batch * workers))


def _step_rows(found: Found) -> list[Row]:
    lab = [
        row.but(
            samples=LAB_SAMPLES,
            global_batch=row.batch * row.workers,
            steps=training_steps(row.epochs, LAB_SAMPLES, row.batch, row.workers),
            whole_steps=full_steps(row.epochs, LAB_SAMPLES, row.batch, row.workers),
            counted=LAB_TWO_NODES if row.hosts > 1 else None,
        )
        for row in _published(found, "mnist")
        if row.batch is not None and row.epochs is not None
    ]
    return [*_settings(found, "workers", "recipes"), *lab]


STEPS = Question(
    key="steps",
    text="How many steps does a job take?",
    title="Steps of a job: by the formula, in whole steps, and counted",
    rows=_step_rows,
    columns=(
        *choose("source workers recipe epochs samples global_batch"),
        *choose("formula whole_steps counted"),
    ),
    notes=(
        "In whole steps: here the last, smaller batch of an epoch is a step, too; the lab's rows "
        f"leave it out, which gives the {LAB_TWO_NODES:,} steps that it names for two nodes.",
    ),
    say=f"""
Steps = epochs x samples / (batch x workers): {LAB_EPOCHS} epochs of {LAB_SAMPLES:,} samples at \
batch {WORK.batch} take {training_steps(LAB_EPOCHS, LAB_SAMPLES, WORK.batch):,.0f} steps on one \
worker.
"""
    """
{% set counted = here | rejectattr("counted", "none") | list %}
{% if counted %}
{% set first = counted[0] %}
Counted here, {{ first.epochs }} epochs of {{ first.samples | whole }} samples at batch \
{{ first.batch }} per worker, recipe {{ first.recipe }}: \
{% call(row) each(counted | selectattr("recipe", "eq", first.recipe)) %}
{{ row.counted | whole }} on {{ row.workers | count("worker") }}
{% endcall %}.
In {{ counted | selectattr("exact") | list | length }} of \
{{ counted | length | count("setting") }} the count equals the whole steps: the last, smaller \
batch of an epoch is a step, too.
{% else %}
No launch here ran to its end, so no steps were counted.
{% endif %}
""",
)


def _worker_rows(found: Found) -> list[Row]:
    here = _settings(found, "workers")
    for row in here:
        row.compared = row.speedup
        row.speed = row.note or ("counts" if row.launches else "the machine was too busy")
        if row.job_s and here[0].job_s:
            row.job_speedup = here[0].job_s.value / row.job_s.value
    lab = [
        row.but(
            # Of whole jobs: the lab has no other times.
            job_speedup=row.speedup.value if row.speedup else None,
            compared=estimate(row.speedup.value if row.speedup else None),
            speedup=None,
            throughput=None,
            speed=f"on {plural(row.hosts, 'node')}",
        )
        for row in _published(found, "mnist")
    ]
    return [*here, *lab]


WORKERS = Question(
    key="workers",
    text="What time do 1, 2 and 4 workers take, how efficient, how accurate are they?",
    title="Time, speedup, efficiency and accuracy by workers",
    rows=_worker_rows,
    columns=choose(
        "source workers job_s job_speedup samples_per_s speedup efficiency accuracy runs speed",
    ),
    notes=("The lab has whole jobs only: its efficiency is the job's speedup / workers.",),
    facts=lambda found, rows: {
        "limits": limits(found, "workers"),
        "longer": _published(found, "mnist_21_epochs"),
    },
    say="""
{% for row in here[1:] if row.speedup and row.efficiency %}
{{ row.workers | count("worker") }} train {{ row.speedup | interval_times }} as fast as \
{{ here[0].workers | count("worker") }} (efficiency {{ row.efficiency.value | percent }})\
{{ "; the whole job, with start-up and tests, is %s as fast" | format(row.job_speedup | times)
   if row.job_speedup }}.
{% else %}
No speedup was measured: no launch on several workers counts for speed.
{% endfor %}
{{ limits | join("\n") }}
{% call(row) each(here | selectattr("accuracy"), "Final accuracy: %s.") %}
{{ row.accuracy.value | four }} on {{ row.workers | count("worker") }}
{% endcall +%}
{% if not here | selectattr("accuracy") | list %}
Accuracy was not measured: no launch ran to its end.
{% endif %}
{% set several = lab | rejectattr("workers", "eq", 1) | selectattr("job_speedup") | list %}
{% call(row) each(several, "Speedup of the lab's jobs: %s.") %}
{{ row.job_speedup | times }} on {{ row.workers }} GPUs
(efficiency {{ (row.job_speedup / row.workers) | percent }})
{% endcall +%}
{% call(row) each(longer | selectattr("accuracy"), "The lab's accuracy after 21 epochs: %s.") %}
{{ row.accuracy.value | four }} on {{ row.workers | count("GPU") }}
{% endcall +%}
""",
    figures=(
        ask.Lines(
            name="speedup-by-workers",
            title="Speedup by workers",
            caption="Samples per second over those of one worker (here), and one worker's job time "
            "over this one's (the lab). More workers than cores have no speed to show.",
            rows=lambda rows: [row for row in rows if row.compared],
            columns=(
                *choose("source workers"),
                Column(key="speedup", title="speedup", show=times, interval=True, get="compared"),
            ),
            options={"x": "workers", "y": "speedup", "ideal": True, **_BESIDE_LAB},
        ),
        ask.Lines(
            name="accuracy-by-workers",
            title="Accuracy by workers",
            caption="At the end of training; over several seeds with 95 % intervals.",
            rows=lambda rows: [row for row in rows if row.accuracy],
            columns=choose("source workers accuracy"),
            options={"x": "workers", "y": "accuracy", "zero": False, **_BESIDE_LAB},
        ),
    ),
)


def _rank_rows(found: Found) -> list[Row]:
    return [
        Row(
            setting=plural(row.workers, "worker"),
            rank=rank,
            cpu=cpu,
            memory_bytes=memory,
            compute_s=dict(row.split.compute_by_rank_s).get(rank) if row.split else None,
        )
        for row in cell_rows(found.studies.get("workers"))
        if row.use and not row.today
        for rank, cpu, _, memory in row.use.by_rank
    ]


def _rank_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    info = found.studies.get("workers")
    used = [row for row in info.each("utilisation") if not row.cell.today] if info else []
    several = [row for row in used if row.cell.workers > 1]
    verdicts = info.verdicts if info and used else ()
    splits = [one for one in info.each("split") if one.cell.workers > 1] if info and used else []
    return {
        "use": [use_words(row) for row in several or used],
        "several": several,
        "uneven": [one for one in verdicts if one.kind in _UNEVEN],
        "steps": [split_words(split) for split in splits],
        "bound": [one.sentence for one in verdicts if one.kind in _BOUND],
    }


BOTTLENECKS = Question(
    key="bottlenecks",
    text="Where are the bottlenecks: are utilisation or memory unequal?",
    title="Utilisation, memory and computing time by worker",
    rows=_rank_rows,
    columns=choose("setting rank cpu memory_bytes compute_s"),
    notes=("Utilisation is of the cores that a worker may use, from its first step on.",),
    facts=_rank_facts,
    say="""
{{ use | join("\n") or "Utilisation was not measured: no launch ended well." }}
{% for one in uneven %}
{{ one.sentence }} {{ one.action }}
{% endfor %}
{% if several and not uneven %}
Utilisation and memory of the workers differ by less than a fifth.
{% endif %}
{{ (steps + bound) | join("\n") }}
""",
    figures=(
        ask.Bars(
            name="utilisation-by-rank",
            title="Utilisation by worker",
            caption="Share of its cores that each worker kept busy; unequal bars are an imbalance.",
            rows=lambda rows: rows,
            columns=choose("setting rank cpu"),
            options={"x": "setting", "y": "cpu", "series": "rank"},
        ),
    ),
)


def _node_rows(found: Found) -> list[Row]:
    lab = _published(found, "mnist", "mnist_two_nodes")
    here = {row.workers: row.accuracy for row in _settings(found, "workers")}
    rows = []
    for nodes, per_node in NODES:
        workers = nodes * per_node
        same = [row for row in lab if (row.hosts, row.workers) == (nodes, workers)]
        rows.append(
            Row(
                nodes=nodes,
                per_node=per_node,
                workers=workers,
                global_batch=WORK.batch * workers,
                steps_per_epoch=training_steps(1, LAB_SAMPLES, WORK.batch, workers),
                steps=training_steps(LAB_EPOCHS, LAB_SAMPLES, WORK.batch, workers),
                rate=WORK.learning_rate * workers,
                lab_job_s=next((row.job_s.value for row in same if row.job_s), None),
                lab_accuracy=next((row.final.value for row in same if row.final), None),
                accuracy=here.get(workers),
            )
        )
    return rows


TWO_NODES = Question(
    key="two_nodes",
    text="What do two nodes change in batch and learning rate?",
    title=f"Batch, steps and learning rate by nodes, {WORK.batch} samples per worker",
    rows=_node_rows,
    columns=(
        *choose("nodes per_node workers global_batch steps_per_epoch steps"),
        *choose("rate lab_job_s lab_accuracy"),
        Column(key="accuracy", title="accuracy here", show=four, interval=True),
    ),
    notes=(
        f"Workers are what size() returns. Steps are of {LAB_EPOCHS} epochs of {LAB_SAMPLES:,} "
        "samples, as in the lab; the last column is this machine's accuracy, with as many workers "
        "on one host and its own number of samples.",
    ),
    facts=lambda found, rows: {"scored": _settings(found, "workers")},
    say="""
{% set one, two = rows[2], rows[5] %}
size() counts the workers of all nodes: a second node with as many workers doubles the global \
batch, halves the steps of an epoch, and doubles a rate that is scaled by size().
With {{ one.per_node }} workers per node, the batch grows from {{ one.global_batch }} to \
{{ two.global_batch | whole }} samples and the rate from {{ one.rate | brief }} to \
{{ two.rate | brief }}; an epoch shrinks from {{ one.steps_per_epoch | number }} to \
{{ two.steps_per_epoch | number }} steps.
Nothing else changes: workers take the same steps on two nodes as on one; only the time to \
exchange gradients differs.
A lab runs on one host, so the times of two nodes are the original's. To measure your own: \
farandole study -np 4,2x4 -H HOST1:4,HOST2:4 -- examples/mnist.py
{% call(row) each(scored | selectattr("accuracy"), "Accuracy on this one host: %s.") %}
{{ row.accuracy.value | four }} with {{ row.workers | count("worker") }}
{% endcall +%}
""",
)


KEEPING = ask.compare_recipes("keeping_accuracy", "How is accuracy kept as the global batch grows?")


def _best_rows(found: Found) -> list[Row]:
    """Return the best recipe of each number of workers, and the lab's runs on two nodes."""
    best: dict[int, Row] = {}
    for row in _settings(found, "workers", "recipes"):
        known = best.get(row.workers)
        if row.accuracy and (known is None or row.accuracy.value > known.accuracy.value):
            best[row.workers] = row.but(nodes=1)
    lab = [row.but(test_samples=LAB_TEST_SAMPLES) for row in _published(found, "mnist_two_nodes")]
    rows = [*(best[workers] for workers in sorted(best)), *(row for row in lab if row.accuracy)]
    for row in rows:
        runs = max(1, row.seeds)
        row.resolvable = smallest_difference(row.test_samples, row.accuracy.value, runs)
    return rows


BEST = Question(
    key="best",
    text="Which number of workers gives the best accuracy?",
    title="The best accuracy of each number of workers",
    rows=_best_rows,
    columns=choose("source nodes workers recipe accuracy seeds"),
    facts=lambda found, rows: {"points": in_points},
    say="""
{% set first, second = (here | sort(attribute="accuracy.value", reverse=true) + [none, none])[:2] %}
{% if first %}
The best accuracy here is {{ first.accuracy.value | four }}, with \
{{ first.workers | count("worker") }} and recipe {{ first.recipe }}.
{% else %}
No launch here ran to its end, so there is no accuracy to compare.
{% endif %}
{% if second %}
{% set ahead = first.accuracy.value - second.accuracy.value %}
That is {{ points(ahead) }} points above {{ second.workers | count("worker") }}, \
{{ "more" if ahead > first.resolvable else "less" }} than the {{ points(first.resolvable) }} \
points that the test samples can resolve.
{% endif %}
{% set ranked = lab | sort(attribute="accuracy.value", reverse=true) %}
{% if ranked | length > 1 %}
On the lab's two nodes, {{ ranked[0].workers }} GPUs have the best accuracy, \
{{ ranked[0].accuracy.value | four }}.
With single runs and {{ ranked[0].test_samples | whole }} test samples, only differences above \
{{ points(ranked[0].resolvable) }} points are detectable: {% call(row) each(ranked[1:]) %}
{% set behind = ranked[0].accuracy.value - row.accuracy.value %}
the {{ points(behind) }} points to {{ row.workers }} GPUs
{{ "are" if behind > ranked[0].resolvable else "are not" }}
{% endcall %}.
{% endif %}
""",
    figures=(
        ask.Lines(
            name="best-by-workers",
            title="Best accuracy by workers",
            caption="Here with the best recipe of each count; the lab's are on two nodes.",
            options={"x": "workers", "y": "accuracy", "zero": False, **_BESIDE_LAB},
        ),
    ),
)

QUESTIONS = (UTILISATION, STEPS, WORKERS, BOTTLENECKS, TWO_NODES, KEEPING, BEST)


# What the lab got wrong.

_SPEEDUP_HERE = """
{% set timed = here | selectattr("speedup") | list %}
{% if timed | length > 1 %}
Here {{ timed[-1].workers | count("worker") }} train {{ timed[-1].throughput | interval }} \
samples/s and {{ timed[0].workers | count("worker") }} {{ timed[0].throughput | interval }}: \
{{ timed[-1].speedup | interval_times }}, by the same formula.
{% else %}
No speedup was measured here.
{% endif %}
"""
_SIZE_HERE = """
{% call(row) each(here, "Counted here: %s; all workers share the steps of an epoch, whichever \
nodes they run on.") %}
{{ row.ranks | count("recorded rank") }} and {{ row.counted | count("step") }} on
{{ row.workers | count("worker") }}
{% endcall %}
"""
_STEPS_HERE = """
{% if here %}
Counted here, {{ here | selectattr("exact") | list | length }} of \
{{ here | length | count("worker count") }} take exactly the steps that whole batches of their \
shares give.
{% endif %}
"""


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""
    wrong = [claim for claim in claims_of("mnist") if not claim.agrees]
    said = [f"{claim.claimed} times faster ({claim.what})" for claim in wrong]
    right = [f"{claim.value:.2f} times ({claim.what})" for claim in wrong]
    here = [row for row in _settings(found, "workers") if row.counted is not None]
    for row in here:
        ended = [launch for launch in row.records if launch.outcome == "ok"]
        row.ranks = len(ended[0].ranks)
    alone = training_steps(LAB_EPOCHS, LAB_SAMPLES, WORK.batch)
    named = {full_steps(LAB_EPOCHS, LAB_SAMPLES, WORK.batch, n): n for n in range(1, 17)}
    gpus = named[LAB_TWO_NODES]
    return (
        Correction(
            said=f"The jobs were {listed(said)}.",
            right=f"They were {listed(right)}: a speedup is the old time over the new one.",
            shown_by=_text([claim.sentence for claim in wrong], _SPEEDUP_HERE, here),
        ),
        Correction(
            said="size() is the number of workers of one node.",
            right="size() counts the workers of all nodes; local_size() counts those of one node. "
            "A rate of 0.001 x size() and a data set shared by size() count all of them.",
            shown_by=_text([], _SIZE_HERE, here) or "No launch here ran to its end.",
        ),
        Correction(
            said=f"Two nodes took 152.0235 s with {LAB_TWO_NODES:,} steps, on an unnamed number of "
            "GPUs.",
            right=f"It very likely had {gpus} GPUs in all.",
            shown_by=_text(
                [
                    f"{alone:,.0f} steps over {gpus} workers are {alone / gpus:,.0f}; without the "
                    f"incomplete batch of each epoch they are {LAB_EPOCHS} x "
                    f"{LAB_TWO_NODES // LAB_EPOCHS} = {LAB_TWO_NODES:,}, and no other number of "
                    "workers up to 16 gives that."
                ],
                _STEPS_HERE,
                here,
            ),
        ),
    )


def _text(known: list[str], template: str, rows: list[Row]) -> str:
    return " ".join([*known, *ask.sentences(template, rows=rows)])


LAB = Lab(
    name="mnist",
    title="mnist: utilisation, efficiency, two nodes",
    line="utilisation by batch, time and accuracy on 1, 2, 4 workers, recipes that keep accuracy",
    questions=tuple(question.asked for question in QUESTIONS),
    published=("mnist", "mnist_21_epochs", "mnist_two_nodes", "mnist_utilisation"),
    leading=("workers", "keeping_accuracy", "utilisation"),
    efforts=len(LADDER),
    data=on_use("data:describe_mnist"),
    pilot=lambda asked: (WORK.pilot(asked),),
    plan=plan,
    answer=lambda found: tuple(ask.answer(question, found) for question in QUESTIONS),
    corrections=corrections,
)
