"""The mnist lab: utilisation by batch, speed and accuracy by workers, two nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farandole.format import percent, plural, seconds, times, whole
from farandole.labs import plan as plans
from farandole.labs.data import describe_mnist
from farandole.labs.lab import Asked, Correction, DataFacts, Found, Lab, Plan, Planned, Rate
from farandole.labs.plan import Training, Workload, busy_options, speed_options, steps_s
from farandole.labs.questions import Bars, Lines, Question, compare_recipes, correct
from farandole.labs.rows import (
    HERE,
    Row,
    cell_rows,
    claims_of,
    column,
    columns,
    estimate,
    four,
    having,
    measure,
    published_rows,
    setting_rows,
    smallest,
    split_words,
    table_rows,
    text,
    use_words,
)
from farandole.labs.rows import LAB as THE_LAB
from farandole.model.jobs import training_steps

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
_TWO, _FOUR, _EIGHT = (1, 2), (1, 2, 4), (1, 2, 4, 8)
_PAIR, _THREE, _MANY = (32, 128), (32, 128, 512), (32, 128, 512, 1024)

# `visits` are samples that a run sees over all epochs (None: the lab's 40 epochs of all), 0 test
# samples are all, `recipes` says how many. One worker with all cores tries the batches.
QUICK, FULL, *LADDER = table_rows(
    "visits test_samples seeds workers recipes batches steps repeats",
    (3072, 360, 1, _TWO, 2, _PAIR, 10, 1),
    # One host with as many workers as the lab's two nodes had GPUs takes the same steps.
    (None, 0, 1, (1, 2, 4, 6, 8), 4, (128, 256, 512, 1024), 40, 3),
    (2304, 360, 1, _TWO, 2, _PAIR, 10, 1),
    (3072, 1000, 1, _FOUR, 2, _THREE, 12, 1),
    (6144, 1000, 1, _FOUR, 3, _THREE, 12, 1),
    (6144, 2000, 2, _FOUR, 3, _THREE, 12, 1),
    *((visits, 2000, 3, _FOUR, 3, _THREE, 16, 2) for visits in (6144, 9216, 12_288)),
    (18_000, 5000, 3, _FOUR, 4, _THREE, 16, 2),
    *((k * 1000, 0, 3, _FOUR, 4, _MANY, 20, 3) for k in (30, 60, 90, 120, 180)),
    *((k * 1000, 0, 3, _EIGHT, 4, _MANY, 20, 3) for k in (240, 360, 600)),
)


def length(effort: Row, available: int) -> tuple[int, int]:
    """Return samples and epochs of a run: new samples are worth more than the same again."""
    if effort.visits is None:
        return available, LAB_EPOCHS
    samples = min(available, max(1, effort.visits // _FEWEST_EPOCHS))
    return samples, min(LAB_EPOCHS, max(_FEWEST_EPOCHS, effort.visits // samples))


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size."""
    here = {"quick": QUICK, "full": FULL}.get(asked.size) or LADDER[effort]
    samples, epochs = length(here, data.train)
    training = Training(
        workload=WORK,
        asked=asked,
        data=data,
        rate=rates.get(WORK.name, WORK.guess),
        samples=samples,
        test_samples=here.test_samples,
        epochs=epochs,
        seeds=here.seeds,
    )
    workers = plans.counts(asked, here.workers)
    names = plans.recipes(asked, RECIPES[: here.recipes])
    # Of batches that the data do not fill a few times, one is left.
    batches = tuple(b for b in here.batches if 4 * b <= data.train) or here.batches[:1]
    # With one worker all recipes are the same.
    several = tuple(n for n in workers if n > 1 and (asked.workers or n <= _RECIPE_WORKERS))
    one_host = "a lab runs on one host; two_nodes works out what a second one changes"
    keeps = "to show what keeps accuracy" if len(names) > 1 else ""
    return Plan(
        studies=(
            _batch_study(training, here, batches),
            *training.by_workers("Accuracy", names, workers, several),
        ),
        choices=plans.choices(
            ("device", "GPUs", f"{asked.cores} CPU cores, a thread per worker"),
            ("hosts", "1 and 2 (sbatch -N 2)", "1", one_host),
            ("data set", "not named; 60,000 samples point to MNIST", data.source),
            ("network", "not named", "Keras's CNN for MNIST, 1.2 M parameters"),
            plans.samples_choice("training samples", f"{LAB_SAMPLES:,}", samples, data.train),
            plans.samples_choice("test samples", "not said", here.test_samples, data.test),
            ("epochs", "40 (and 21)", plans.epochs_words(epochs, names)),
            (
                *("workers", "1, 2 and 4; 2, 6 and 8 on two nodes", plans.words(workers)),
                plans.beyond(workers, asked.cores),
            ),
            (
                *("learning rate", RATES["linear"]),
                *(", ".join(RATES.get(name, name) for name in names), keeps),
            ),
            ("batches of the utilisation sweep", "128 and 1,024", plans.words(batches)),
            plans.DECAY,
        ),
    )


def _batch_study(training: Training, here: Row, batches: tuple[int, ...]) -> Planned:
    asked, title = (
        training.asked,
        "Utilisation and throughput of one worker with all cores, by batch",
    )
    options = {"workers": 1, "params": {"batch": batches}, "steps": here.steps}
    once_s = steps_s(training.rate, threads=asked.cores, batches=batches, steps=here.steps)
    options |= {**speed_options(here.repeats), **busy_options(asked)}
    return WORK.speed_study(asked, "batch", title, options=options, seconds=here.repeats * once_s)


# The questions.

_BESIDE_LAB = {"series": "source", "published": (THE_LAB,)}
_SAME_SHARE = 0.02
"""Shares closer than this are the same to a sampler that looks twice a second."""


def _batch_rows(found: Found) -> list[Row]:
    here = [row for row in cell_rows(found.studies.get("batch")) if row.batch and not row.today]
    for row in here:
        row.device = plural(row.threads, "core") if row.threads else "CPU"
        row.utilisation = row.cpu
    lab = published_rows(found, "mnist_utilisation", device="1 GPU")
    ordered = sorted(here, key=lambda row: int(row.batch))
    return [*ordered, *(row.but(utilisation=row.gpu) for row in lab)]


def _batch_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    used = having(rows, "utilisation", source=HERE)
    info, change = found.studies.get("batch"), ""
    if len(used) > 1:
        rise = used[-1].utilisation - used[0].utilisation
        # One launch of a few steps has too few samples for so small a fall to be one.
        falls = "does not rise" if all(row.launches < 2 for row in used) else "falls"
        change = "does not change" if abs(rise) <= _SAME_SHARE else "rises" if rise > 0 else falls
    sweeps = [one.sentence for one in (info.batch_sweeps if info else ()) if one.best]
    return {"used": used, "change": change, "sweeps": sweeps}


UTILISATION = Question(
    key="utilisation",
    text="How does utilisation depend on the batch?",
    title="Utilisation and throughput of one worker by batch",
    rows=_batch_rows,
    columns=columns(
        "source device batch", column("utilisation", "utilisation", percent), "samples_per_s step_s"
    ),
    notes=("Utilisation is sampled twice a second, from the end of the first step on.",),
    facts=_batch_facts,
    say="""
{% if change %}
Utilisation {{ change }} as the batch grows: \
{{ used | each("{utilisation:percent} at batch {batch:whole}") }}; the lab's GPU was busy \
{{ lab | each("{utilisation:percent} at {batch:whole}") }}.
{% else %}
No two batches have a launch here whose utilisation counts.
{% endif %}
{{ sweeps | join("\n") }}
""",
    why="A larger batch usually spreads the fixed cost of a step (Python, the update of all "
    "weights) over more samples; the faster the device, the larger that part.",
    study="batch",
    figures=(
        Lines(
            name="utilisation-by-batch",
            title="Utilisation by batch",
            caption="Share of its cores (here) or of its GPU (the lab) that one worker keeps busy.",
            options={"x": "batch", "y": "utilisation", **_BESIDE_LAB},
        ),
        Lines(
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
            global_batch=row.batch * row.workers,
            steps=training_steps(row.epochs, LAB_SAMPLES, row.batch, row.workers),
            whole_steps=full_steps(row.epochs, LAB_SAMPLES, row.batch, row.workers),
            counted=LAB_TWO_NODES if row.hosts > 1 else None,
        )
        for row in published_rows(found, "mnist", recipe="linear", samples=LAB_SAMPLES)
        if row.batch is not None and row.epochs is not None
    ]
    return [*setting_rows(found, "workers", "recipes"), *lab]


STEPS = Question(
    key="steps",
    text="How many steps does a job take?",
    title="Steps of a job: by the formula, in whole steps, and counted",
    rows=_step_rows,
    columns=columns(
        "source workers recipe epochs samples global_batch",
        column("formula", "epochs x samples / global batch", get="steps"),
        column("whole_steps", "in whole steps", whole),
        "counted",
    ),
    notes=(
        "In whole steps: here the last, smaller batch of an epoch is a step, too; the lab's rows "
        f"leave it out, which gives the {LAB_TWO_NODES:,} steps that it names for two nodes.",
    ),
    facts=lambda found, rows: {"counted": having(rows, "counted", source=HERE, study="workers")},
    say=f"""
Steps = epochs x samples / (batch x workers): {LAB_EPOCHS} epochs of {LAB_SAMPLES:,} samples at \
batch {WORK.batch} take {training_steps(LAB_EPOCHS, LAB_SAMPLES, WORK.batch):,.0f} steps on one \
worker.
"""
    """
Counted here: {{ counted | each("{counted:whole} on {workers:workers}") }}.
""",
)


def _worker_rows(found: Found) -> list[Row]:
    here = setting_rows(found, "workers")
    for row in here:
        row.compared = row.speedup
        row.speed = row.note or ("counts" if row.launches else "the machine was too busy")
        if row.job_s and here[0].job_s:
            row.job_speedup = here[0].job_s.value / row.job_s.value
    lab = published_rows(found, "mnist", throughput=None, seeds=1)
    for row in lab:
        # Of whole jobs: the lab has no other times.
        row.job_speedup = row.speedup.value if row.speedup else None
        row.compared, row.speedup = estimate(row.job_speedup), None
        row.speed = f"on {plural(row.hosts, 'node')}"
    return [*here, *lab]


WORKERS = Question(
    key="workers",
    text="What time do 1, 2 and 4 workers take, how efficient, how accurate are they?",
    title="Time, speedup, efficiency and accuracy by workers",
    rows=_worker_rows,
    columns=columns(
        "source workers job_s job_speedup samples_per_s",
        measure("speedup", "speedup of training", times),
        "efficiency accuracy runs",
        text("speed", "speed"),
    ),
    notes=("The lab has whole jobs only: its efficiency is the job's speedup / workers.",),
    facts=lambda found, rows: {
        "faster": having(rows, "speedup", source=HERE)[1:],
        "ended": having(rows, "final", source=HERE),
        "jobs": [row for row in having(rows, "job_speedup", source=THE_LAB) if row.workers > 1],
        "longer": having(published_rows(found, "mnist_21_epochs"), "final"),
    },
    say="""
Training speedup here: {{ faster | each("{speedup:interval_times} on {workers:workers}") }}; \
accuracy ends at {{ ended | each("{final.value:four} on {workers:workers}") }}.
The lab's jobs are {{ jobs | each("{job_speedup:times} as fast on {workers} GPUs") }}; its \
accuracy after 21 epochs is {{ longer | each("{final.value:four} on {workers}") }}.
""",
    study="workers",
    figures=(
        Lines(
            name="speedup-by-workers",
            title="Speedup by workers",
            caption="Samples per second over those of one worker (here), and one worker's job time "
            "over this one's (the lab). More workers than cores have no speed to show.",
            rows=lambda rows: having(rows, "compared"),
            columns=columns("source workers", measure("speedup", "speedup", times, "compared")),
            options={"x": "workers", "y": "speedup", "ideal": True, **_BESIDE_LAB},
        ),
        Lines(
            name="accuracy-by-workers",
            title="Accuracy by workers",
            caption="At the end of training; over several seeds with 95 % intervals.",
            rows=lambda rows: having(rows, "final"),
            columns=columns("source workers accuracy"),
            options={"x": "workers", "y": "accuracy", "zero": False, **_BESIDE_LAB},
        ),
    ),
)

_UNEVEN = ("uneven_utilisation", "uneven_memory", "straggler", "contention")
_BOUND = ("communication_bound", "input_bound", "compute_bound")


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
    used = [row for row in cell_rows(info) if row.use and not row.today]
    verdicts = info.verdicts if info and used else ()
    most = used[-1] if used else Row()
    return {
        "several": most.workers and most.workers > 1,
        "uneven": [f"{one.sentence} {one.action}" for one in verdicts if one.kind in _UNEVEN],
        "use": use_words(most.use) if used else "",
        "step": split_words(most.split) if most.split else "",
        "bound": [one.sentence for one in verdicts if one.kind in _BOUND],
    }


BOTTLENECKS = Question(
    key="bottlenecks",
    text="Where are the bottlenecks: are utilisation or memory unequal?",
    title="Utilisation, memory and computing time by worker",
    rows=_rank_rows,
    columns=columns(
        "setting rank cpu memory_bytes", column("compute_s", "computing per step", seconds)
    ),
    notes=("Utilisation is of the cores that a worker may use, from its first step on.",),
    facts=_rank_facts,
    say="""
{{ uneven | join("\n") or ("Utilisation and memory of the workers differ by less than a fifth."
   if several) }}
{{ use or "Utilisation was not measured: no launch ended well." }}
{{ step }}
{{ bound | join("\n") }}
""",
    study="workers",
    figures=(
        Bars(
            name="utilisation-by-rank",
            title="Utilisation by worker",
            caption="Share of its cores that each worker kept busy; unequal bars are an imbalance.",
            rows=lambda rows: rows,
            columns=columns("setting rank cpu"),
            options={"x": "setting", "y": "cpu", "series": "rank"},
        ),
    ),
)


def _node_rows(found: Found) -> list[Row]:
    lab = {
        (row.hosts, row.workers): row for row in published_rows(found, "mnist_two_nodes", "mnist")
    }
    here = {row.workers: row.final for row in setting_rows(found, "workers")}
    rows = []
    for nodes, per_node in NODES:
        workers = nodes * per_node
        same = lab.get((nodes, workers), Row())
        rows += [
            Row(
                nodes=nodes,
                per_node=per_node,
                workers=workers,
                global_batch=WORK.batch * workers,
                steps_per_epoch=training_steps(1, LAB_SAMPLES, WORK.batch, workers),
                steps=training_steps(LAB_EPOCHS, LAB_SAMPLES, WORK.batch, workers),
                rate=WORK.learning_rate * workers,
                lab_job_s=same.job_s.value if same.job_s else None,
                lab_accuracy=same.final.value if same.final else None,
                final=here.get(workers),
            )
        ]
    return rows


TWO_NODES = Question(
    key="two_nodes",
    text="What do two nodes change in batch and learning rate?",
    title=f"Batch, steps and learning rate by nodes, {WORK.batch} samples per worker",
    rows=_node_rows,
    columns=columns(
        "nodes",
        column("per_node", "per node", whole),
        "workers global_batch",
        column("steps_per_epoch", "steps per epoch"),
        column("steps", "steps"),
        "rate",
        column("lab_job_s", "lab's job", seconds),
        column("lab_accuracy", "lab's accuracy", four),
        measure("accuracy", "accuracy here", four, "final"),
    ),
    notes=(
        f"Workers are what size() returns. Steps are of {LAB_EPOCHS} epochs of {LAB_SAMPLES:,} "
        "samples, as in the lab; the last column is this machine's accuracy, with as many workers "
        "on one host and its own number of samples.",
    ),
    say="""
{% set one, two = rows[2], rows[5] %}
size() counts the workers of all nodes: a second node with {{ one.per_node }} workers doubles the \
batch ({{ one.global_batch }} to {{ two.global_batch | whole }}) and a rate scaled by size() \
({{ one.rate | brief }} to {{ two.rate | brief }}), and halves the steps of an epoch \
({{ one.steps_per_epoch | number }} to {{ two.steps_per_epoch | number }}).
A lab runs on one host, so the times of two nodes are the original's. To measure your own: \
farandole study -np 4,2x4 -H HOST1:4,HOST2:4 -- examples/mnist.py
""",
)

KEEPING = compare_recipes("keeping_accuracy", "How is accuracy kept as the global batch grows?")


def _best_rows(found: Found) -> list[Row]:
    """Return the best recipe of each number of workers, and the lab's runs on two nodes."""
    scored = having(setting_rows(found, "workers", "recipes"), "final")
    scored.sort(key=lambda row: (-row.workers, row.final.value))
    best = {row.workers: row.but(nodes=1) for row in scored}
    facts = {"recipe": "linear", "seeds": 1, "test_samples": LAB_TEST_SAMPLES}
    lab = having(published_rows(found, "mnist_two_nodes", **facts), "final")
    return [*(best[n] for n in sorted(best)), *(row.but(nodes=row.hosts) for row in lab)]


def _best_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    """Rank the accuracies, and tell which of the others the test samples can tell from the best."""
    facts = {}
    for name, source in (("here", HERE), ("lab", THE_LAB)):
        ranked = sorted(having(rows, source=source), key=lambda row: -row.final.value)
        least = smallest(ranked[0]) if ranked else 0.0
        same = [row for row in ranked[1:] if ranked[0].final.value - row.final.value <= least]
        facts[name] = Row(best=ranked[0] if ranked else None, least=least, same=same)
    return facts


BEST = Question(
    key="best",
    text="Which number of workers gives the best accuracy?",
    title="The best accuracy of each number of workers",
    rows=_best_rows,
    columns=columns("source nodes workers recipe accuracy seeds"),
    facts=lambda found, rows: {"ranked": _best_facts(found, rows)},
    say="""
{% for name, one in ranked.items() if one.best %}
The best accuracy {{ "here" if name == "here" else "on the lab's two nodes" }} is \
{{ one.best.final.value | four }} with {{ one.best.workers | workers }}{{ ", but %s may be as \
good: the test samples resolve %s points"
   | format(one.same | each("{workers}"), one.least | in_points) if one.same }}.
{% else %}
No launch here ran to its end, so there is no accuracy to compare.
{% endfor %}
""",
    figures=(
        Lines(
            name="best-by-workers",
            title="Best accuracy by workers",
            caption="Here with the best recipe of each count; the lab's are on two nodes.",
            options={"x": "workers", "y": "accuracy", "zero": False, **_BESIDE_LAB},
        ),
    ),
)

QUESTIONS = (UTILISATION, STEPS, WORKERS, BOTTLENECKS, TWO_NODES, KEEPING, BEST)


# What the lab got wrong: said, right, and what shows it, as templates.

_CORRECTIONS = (
    (
        """The jobs were {{ wrong | each("{claimed} times faster ({what})") }}.""",
        """They were {{ wrong | each("{value:number} times ({what})") }}: a speedup is the old time
over the new one.""",
        """
{{ wrong | map(attribute="sentence") | join(" ") }}
Here, samples/s: {{ timed | each("{throughput:interval} on {workers:workers}") }}.
""",
    ),
    (
        "size() is the number of workers of one node.",
        "size() counts the workers of all nodes; local_size() counts those of one node. A rate of "
        "0.001 x size() and a data set shared by size() count all of them.",
        """Counted here: {{ counted | each("{counted:whole} steps on {workers:workers}") }};
all workers share the steps of an epoch.""",
    ),
    (
        f"Two nodes took 152.0235 s with {LAB_TWO_NODES:,} steps, on an unnamed number of GPUs.",
        "It very likely had {{ gpus }} GPUs in all.",
        "{{ alone | whole }} steps over {{ gpus }} workers are {{ (alone / gpus) | whole }}; "
        f"without incomplete batches they are {LAB_EPOCHS} x {LAB_TWO_NODES // LAB_EPOCHS} "
        f"= {LAB_TWO_NODES:,}, and no other number of workers up to 16 gives that.",
    ),
)


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""
    here = setting_rows(found, "workers")
    named = {full_steps(LAB_EPOCHS, LAB_SAMPLES, WORK.batch, n): n for n in range(1, 17)}
    return correct(
        _CORRECTIONS,
        wrong=[claim for claim in claims_of("mnist") if not claim.agrees],
        timed=having(here, "speedup", "throughput"),
        counted=having(here, "counted"),
        alone=training_steps(LAB_EPOCHS, LAB_SAMPLES, WORK.batch),
        gpus=named[LAB_TWO_NODES],
    )


LAB = Lab(
    name="mnist",
    title="mnist: utilisation, efficiency, two nodes",
    line="utilisation by batch, time and accuracy on 1, 2, 4 workers, recipes that keep accuracy",
    questions=QUESTIONS,
    published=("mnist", "mnist_21_epochs", "mnist_two_nodes", "mnist_utilisation"),
    leading=("workers", "keeping_accuracy", "utilisation"),
    efforts=len(LADDER),
    data=describe_mnist,
    pilot=lambda asked: (WORK.pilot(asked),),
    plan=plan,
    corrections=corrections,
)
