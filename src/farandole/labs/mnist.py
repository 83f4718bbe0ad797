"""The mnist lab: utilisation by batch, speed and accuracy by workers, two nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from farandole.format import percent, plural, seconds, times, whole
from farandole.labs import plan as plans
from farandole.labs import rows as shared
from farandole.labs.data import describe_mnist
from farandole.labs.lab import Asked, Correction, DataFacts, Found, Lab, Plan, Rate
from farandole.labs.plan import EIGHT, FOUR, TWO, Training, Workload
from farandole.labs.questions import Question, bars, compare_recipes, correct, lines, rank_rows
from farandole.labs.rows import HERE, Row, column, columns, four, having, measure
from farandole.labs.rows import LAB as THE_LAB
from farandole.model.jobs import training_steps
from farandole.model.metrics import series_of
from farandole.model.statistics import known_mean

WORK = Workload(
    name="mnist",
    script="mnist.py",
    batch=128,
    learning_rate=0.001,
    guess=Rate(samples_per_s=550.0, startup_s=7.0),
    few_test_samples=256,
)
LAB_EPOCHS, LAB_FEWER, LAB_SAMPLES, LAB_TEST_SAMPLES = 40, 21, 60_000, 10_000
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

# The plan.

_FEWEST_EPOCHS = 3
"""Of a run on a part of the data: fewer leave no room for a warm-up."""
_PAIR, _THREE, _MANY = (32, 128), (32, 128, 512), (32, 128, 512, 1024)

# Quick, by budget, full. `visits` are samples that a run sees over all epochs (None: the lab's 40
# epochs of all), 0 test samples are all, `recipes` says how many. One worker with all cores tries
# the batches.
EFFORTS = shared.table_rows(
    "visits test_samples seeds workers recipes batches steps repeats",
    (3072, 360, 1, TWO, 2, _PAIR, 10, 1),
    (2304, 360, 1, TWO, 2, _PAIR, 10, 1),
    (3072, 1000, 1, FOUR, 2, _THREE, 12, 1),
    (6144, 1000, 1, FOUR, 3, _THREE, 12, 1),
    (6144, 2000, 2, FOUR, 3, _THREE, 12, 1),
    *((visits, 2000, 3, FOUR, 3, _THREE, 16, 2) for visits in (6144, 9216, 12_288)),
    (18_000, 5000, 3, FOUR, 4, _THREE, 16, 2),
    *((k * 1000, 0, 3, FOUR, 4, _MANY, 20, 3) for k in (30, 60, 90, 120, 180)),
    *((k * 1000, 0, 3, EIGHT, 4, _MANY, 20, 3) for k in (240, 360, 600)),
    # One host with as many workers as the lab's two nodes had GPUs takes the same steps.
    (None, 0, 1, (1, 2, 4, 6, 8), 4, (128, 256, 512, 1024), 40, 3),
)


def length(effort: Row, available: int) -> tuple[int, int]:
    """Return samples and epochs of a run: new samples are worth more than the same again."""
    if effort.visits is None:
        return available, LAB_EPOCHS
    samples = min(available, max(1, effort.visits // _FEWEST_EPOCHS))
    return samples, min(LAB_EPOCHS, max(_FEWEST_EPOCHS, effort.visits // samples))


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size."""
    here = plans.chosen(asked, EFFORTS, effort)
    samples, epochs = length(here, data.train)
    here = here.but(samples=samples, epochs=epochs)
    training = Training(WORK, asked, data, rates.get(WORK.name, WORK.guess), here)
    workers = plans.counts(asked, here.workers)
    names = plans.recipes(asked, tuple(RATES)[: here.recipes])
    # Of batches that the data do not fill a few times, one is left.
    batches = tuple(b for b in here.batches if 4 * b <= data.train) or here.batches[:1]
    options = {"workers": 1, "params": {"batch": batches}, "steps": here.steps}
    options |= plans.speed_options(here.repeats) | plans.busy_options(asked)
    sweep_s = plans.steps_s(training.rate, threads=asked.cores, batches=batches, steps=here.steps)
    title = "Utilisation and throughput of one worker with all cores, by batch"
    seconds = here.repeats * sweep_s
    sweep = WORK.speed_study(asked, "batch", title, options=options, seconds=seconds)
    one_host = "a lab runs on one host; question 6 works out what a second one changes"
    keeps = "to show what keeps accuracy" if len(names) > 1 else ""
    taken = ", ".join(RATES.get(name, name) for name in names)
    counts = "1, 2 and 4; 2, 6 and 8 on two nodes"
    return Plan(
        studies=(sweep, *training.by_workers("Accuracy", names, workers, most=4)),
        choices=plans.choices(
            ("device", "GPUs", f"{asked.cores} CPU cores, a thread per worker"),
            ("hosts", "1 and 2 (sbatch -N 2)", "1", one_host),
            ("data set", "not named; 60,000 samples point to MNIST", data.source),
            ("network", "not named", "Keras's CNN for MNIST, 1.2 M parameters"),
            plans.samples_choice("training samples", f"{LAB_SAMPLES:,}", samples, data.train),
            plans.samples_choice("test samples", "not said", here.test_samples, data.test),
            ("epochs", "40 (and 21)", plans.epochs_words(epochs, names)),
            ("workers", counts, plans.words(workers), plans.beyond(workers, asked.cores)),
            ("learning rate", RATES["linear"], taken, keeps),
            ("batches of the utilisation sweep", "128 and 1,024", plans.words(batches)),
            plans.DECAY,
        ),
    )


# The questions.


def _batch_rows(found: Found) -> list[Row]:
    here = having(shared.cell_rows(found.studies.get("batch")), "batch", today=False)
    here = [row.but(device=plural(row.threads or 1, "core"), utilisation=row.cpu) for row in here]
    lab = shared.published_rows(found, "mnist_utilisation", device="1 GPU")
    here.sort(key=lambda row: int(row.batch))
    return [*here, *(row.but(utilisation=row.gpu) for row in lab)]


def _sweep_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    info = found.studies.get("batch")
    repeated = all(row.launches > 1 for row in having(rows, source=HERE))
    sweeps = info.batch_sweeps if info and repeated else ()
    return {"best": [one.sentence for one in sweeps if one.best]}


UTILISATION = Question(
    key="utilisation",
    text="How does utilisation depend on the batch?",
    title="Utilisation and throughput of one worker by batch",
    rows=_batch_rows,
    columns=columns(
        "source device batch", column("utilisation", "utilisation", percent), "samples_per_s step_s"
    ),
    notes=("Utilisation is sampled twice a second, from the end of the first step on.",),
    facts=_sweep_facts,
    say="""
One worker kept its cores busy {{ here | having("utilisation") | each("{utilisation:percent} at \
batch {batch:whole}") }}; the lab's GPU was busy {{ lab | each("{utilisation:percent} at batch \
{batch:whole}") }}.
{{ best | join("\n") or "Each batch was launched once here: finding the fastest takes repeats." }}
""",
    why="A larger batch usually spreads the fixed cost of a step (Python, starting kernels, the "
    "update of all weights) over more samples. The faster the device, the larger that part: a GPU "
    "that idles at batch 128 needs a larger one, a CPU core is busy anyway.",
    study="batch",
    figures=(
        lines(
            "utilisation-by-batch",
            "Utilisation by batch",
            "Share of its cores (here) or of its GPU (the lab) that one worker keeps busy.",
            "source batch utilisation",
        ),
        lines(
            "throughput-by-batch",
            "Throughput by batch",
            "Samples per second of one worker with all cores.",
            "batch samples_per_s",
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
        for row in shared.published_rows(found, "mnist", recipe="linear", samples=LAB_SAMPLES)
    ]
    return [*shared.setting_rows(found, "workers", "recipes"), *lab]


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
        "leave it out.",
    ),
    say=f"""
Steps = epochs x samples / (batch x workers): {LAB_EPOCHS} epochs of {LAB_SAMPLES:,} samples at \
batch {WORK.batch} take {training_steps(LAB_EPOCHS, LAB_SAMPLES, WORK.batch):,.0f} steps on one \
worker, {LAB_FEWER} epochs {training_steps(LAB_FEWER, LAB_SAMPLES, WORK.batch):,.0f}.
"""
    """
Counted here: {{ here | having("counted", study="workers") | each("{counted:whole} on \
{workers:workers}") }}.
""",
    why="A script that counts steps instead of epochs must divide them by the workers. Otherwise "
    "twice the workers go through the data twice as often, and nothing gets faster.",
)


def _worker_rows(found: Found) -> list[Row]:
    here = shared.setting_rows(found, "workers")
    for row in here:
        row.nodes, row.compared = 1, row.speedup
        row.job_speedup = shared.faster(row, here[0], "job_s")
    lab = shared.published_rows(found, "mnist", throughput=None, seeds=1)
    for row in lab:
        # Of whole jobs: the lab has no other times.
        row.job_speedup = row.speedup.value if row.speedup else None
        row.compared = shared.estimate(row.job_speedup) if row.hosts == 1 else None
        row.nodes, row.speedup = row.hosts, None
    return [*here, *lab]


WORKERS = Question(
    key="workers",
    text="How long do 1, 2 and 4 workers take, and how efficient and accurate are they?",
    title="Time, speedup, efficiency and accuracy by workers",
    rows=_worker_rows,
    columns=columns(
        "source nodes workers job_s job_speedup samples_per_s",
        measure("speedup", "speedup of training", times),
        "efficiency accuracy runs",
    ),
    notes=("The lab has whole jobs only: its efficiency is the job's speedup / workers.",),
    say="""
Training speedup here: {{ (here | having("speedup"))[1:] | each("{speedup:interval_times} on \
{workers:workers}") }}; accuracy ends at {{ here | having("final") | each("{final.value:four} on \
{workers:workers}") }}.
The lab's jobs are {{ (lab | having("compared"))[1:] | \
each("{job_speedup:times} as fast on {workers} GPUs ({efficiency.value:percent})") }}; \
in brackets, the efficiency.
""",
    why="Training usually scales better than the job: starting, loading and testing take as long "
    "on any number of workers and are part of the job's time.",
    study="workers",
    figures=(
        lines(
            "speedup-by-workers",
            "Speedup by workers",
            "Samples per second over those of one worker (here), and one worker's job time over "
            "this one's (the lab, one node). More workers than cores have no speed to show.",
            *("source workers", measure("speedup", "speedup", times, "compared")),
            ideal=True,
        ),
        lines(
            "accuracy-by-workers",
            "Accuracy by workers",
            "At the end of training; over several seeds with 95 % intervals. The lab's are after "
            "40 epochs on one node.",
            "source workers accuracy",
            rows=lambda rows: having(rows, nodes=1),
            zero=False,
        ),
    ),
)


def _epoch_rows(found: Found) -> list[Row]:
    """Return accuracy after about half of the epochs and at the end, of the lab's runs and ours."""
    fewer = {row.workers: row for row in shared.published_rows(found, "mnist_21_epochs")}
    rows = []
    for row in shared.setting_rows(found, "workers"):
        ended = [series_of(one).get("val_accuracy") for one in row.records if one.outcome == "ok"]
        at = math.ceil(row.epochs * LAB_FEWER / LAB_EPOCHS)
        early = known_mean(one.values[at - 1] for one in ended if one and len(one.values) >= at)
        rows.append(row.but(fewer=at, early=early, loss=shared.final_mean(row.records, "val_loss")))
    once = {"test_samples": LAB_TEST_SAMPLES, "seeds": 1}
    for row in shared.published_rows(found, "mnist", "mnist_one_gpu", **once):
        loss = row.metrics.get("loss")
        if row.hosts == 1:
            early = fewer[row.workers].final.value
            rows.append(row.but(fewer=LAB_FEWER, early=early, loss=loss.final if loss else None))
    return [
        row.but(change=change, drop=-change, resolvable=shared.smallest(row))
        for row in having(rows, "final", "early")
        for change in [row.final.value - row.early]
    ]


EPOCHS = Question(
    key="epochs",
    text="Are 40 epochs better than 21, and what is the test loss?",
    title="Accuracy after some of the epochs and after all, and the loss at the end",
    rows=_epoch_rows,
    columns=columns(
        "source workers",
        column("fewer", "first epochs", whole),
        column("early", "accuracy then", four),
        "epochs accuracy",
        column("change", "difference (points)", shared.signed),
        "resolvable",
        measure("loss", "test loss"),
    ),
    notes=(
        "The lab's 21 epochs are another run; here both accuracies are of one run. Its test set is "
        f"assumed to be MNIST's {LAB_TEST_SAMPLES:,} samples.",
    ),
    facts=lambda found, rows: {
        "large": [row for row in having(rows, loss=None) if abs(row.change) > row.resolvable],
    },
    say="""
{% set given, first = lab | having(loss=none), lab | having("loss") | first %}
The lab's accuracy is lower after 40 epochs than after 21 on {{ given | each("{workers}") }} GPUs, \
by {{ given | each("{drop:in_points}") }} points. Only on {{ large | each("{workers}") }} GPUs do \
10,000 test samples resolve the difference, and single runs still rank nothing.
Here accuracy goes \
{{ here | each("from {early:four} after {fewer} epochs to {final.value:four} after {epochs} \
on {workers:workers}") }}, with a test loss of {{ here | each("{loss.value:number}") }}.
The lab gives 40 epochs on one GPU twice, both in 456.1468 s: with an accuracy of \
{{ given[0].final.value | four }}, and with {{ first.final.value | four }} and a test loss of \
{{ first.loss.value }}.
""",
    why="At an unchanged rate later epochs usually add little and begin to overfit; a rate that "
    "falls to the end usually helps more.",
)


def _rank_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    info, most = found.studies.get("workers"), rows[-1] if rows else Row()
    rules = {one.kind: f"{one.sentence} {one.action}" for one in (info.verdicts if info else ())}
    return {
        "uneven": [rules[kind] for kind in _UNEVEN if kind in rules],
        "use": shared.use_words(most.use) if most.use else "",
        "step": shared.split_words(most.split) if most.split else "",
    }


_UNEVEN = ("uneven_utilisation", "uneven_memory", "straggler", "contention")

BOTTLENECKS = Question(
    key="bottlenecks",
    text="Where are the bottlenecks: are utilisation or memory unequal?",
    title="Utilisation, memory and computing time by worker",
    rows=rank_rows,
    columns=columns(
        "setting rank cpu memory_bytes", column("compute_s", "computing per step", seconds)
    ),
    notes=("Utilisation is of the cores that a worker may use, from its first step on.",),
    facts=_rank_facts,
    say="""
{{ uneven | join("\n") or "Utilisation and memory of the workers differ by less than a fifth." }}
{{ use or "Utilisation was not measured: no launch ended well." }}
{{ step }}
""",
    why="Workers depend on each other: a step ends when the slowest has computed its gradients, so "
    "the others wait for it. More memory in use on one worker usually means that it does more than "
    "the others: it loads data, tests or saves for all.",
    study="workers",
    figures=(
        bars(
            "utilisation-by-rank",
            "Utilisation by worker",
            "Share of its cores that each worker kept busy; unequal bars are an imbalance.",
            "rank setting cpu",
            rows=list,
        ),
    ),
)


def _node_rows(found: Found) -> list[Row]:
    """Return the lab's nodes with the workers on each, then the numbers of workers of this host."""
    published = shared.published_rows(found, "mnist", "mnist_two_nodes")
    rows = []
    for nodes, each in NODES:
        same = having(published, hosts=nodes, workers=nodes * each)
        row = same[-1].but(nodes=nodes, per_node=each, samples=LAB_SAMPLES, epochs=LAB_EPOCHS)
        row.job_s = next((one.job_s for one in having(same, "job_s")), None)
        row.rate = WORK.learning_rate * row.workers
        rows.append(row)
    here = shared.setting_rows(found, "workers")
    rows += [row.but(nodes=1, per_node=row.workers) for row in here]
    for row in rows:
        row.global_batch = WORK.batch * row.workers
        row.steps_per_epoch = training_steps(1, row.samples, WORK.batch, row.workers)
        row.steps = row.epochs * row.steps_per_epoch
    return rows


def likely_gpus() -> int:
    """Return the number of workers that takes the steps which the lab names for two nodes."""
    (found,) = (
        workers
        for workers in range(1, 17)
        if full_steps(LAB_EPOCHS, LAB_SAMPLES, WORK.batch, workers) == LAB_TWO_NODES
    )
    return found


TWO_NODES = Question(
    key="two_nodes",
    text="What do two nodes change in batch and learning rate?",
    title=f"Batch, steps and learning rate by nodes, {WORK.batch} samples per worker",
    rows=_node_rows,
    columns=columns(
        *("source nodes", column("per_node", "per node", whole), "workers global_batch samples"),
        *(column("steps_per_epoch", "steps per epoch"), column("steps", "steps")),
        "rate job_s accuracy",
    ),
    notes=("Workers are what size() returns. Steps are of all epochs, not rounded.",),
    facts=lambda found, rows: {"gpus": likely_gpus(), "named": LAB_TWO_NODES},
    say="""
{% set one, two = lab[2], lab[5] %}
A second node with {{ one.per_node }} workers doubles size(), which counts the workers of all \
nodes, and so the global batch ({{ one.global_batch }} to {{ two.global_batch | whole }}) and a \
rate scaled by size() ({{ one.rate | brief }} to {{ two.rate | brief }}); an epoch has half the \
steps ({{ one.steps_per_epoch | number }} to {{ two.steps_per_epoch | number }}). The batch of \
each worker stays 128: it is not split.
The lab's run on two nodes says 2 GPUs and {{ named | whole }} steps, where 2 GPUs take \
{{ lab[3].steps | whole }}: it very likely had {{ gpus }}.
A lab runs on one host, so the times on two nodes are the original's (#SBATCH -N 2, with -np for \
the workers). To measure your own: farandole study -np 4,2x4 -H HOST1:4,HOST2:4 -- examples/mnist.py
""",
)

KEEPING = compare_recipes(
    "keeping_accuracy",
    "How is accuracy kept as the global batch grows?",
    say="""
The lab reasons that a large batch is less stochastic, and raises the rate to 0.001 x size(), \
which is the recipe linear here. That is the usual account: fewer steps with less noise may be \
larger.
""",
)


def _best_rows(found: Found) -> list[Row]:
    """Return the best recipe of each number of workers, and the lab's runs on two nodes.

    One with more epochs is no recipe to compare with: one worker was not given them.
    """
    scored = having(shared.setting_rows(found, "workers", "recipes"), "final", longer=False)
    scored.sort(key=lambda row: (-row.workers, row.final.value))
    best = {row.workers: row.but(nodes=1) for row in scored}
    facts = {"recipe": "linear", "seeds": 1, "test_samples": LAB_TEST_SAMPLES}
    lab = having(shared.published_rows(found, "mnist_two_nodes", **facts), "final")
    return [*(best[n] for n in sorted(best)), *(row.but(nodes=row.hosts) for row in lab)]


def _ranking(where: str, rows: Sequence[Row]) -> Row:
    """Rank accuracies, and list those that neither test samples nor seeds tell from the best."""
    best = max(rows, key=lambda row: row.final.value, default=Row(final=Row(value=0.0)))
    least = shared.smallest(best) if rows else 0.0
    alike = [
        row
        for row in sorted(rows, key=lambda row: -row.final.value)
        if row is not best
        and (min(row.seeds, best.seeds) < 2 or best.final.value - row.final.value <= least)
    ]
    return Row(where=where, best=best if rows else None, least=least, alike=alike)


BEST = Question(
    key="best",
    text="Which number of workers gives the best accuracy?",
    title="The best accuracy of each number of workers",
    rows=_best_rows,
    columns=columns("source nodes workers recipe accuracy seeds"),
    facts=lambda found, rows: {
        "ranked": [
            _ranking("here", having(rows, source=HERE)),
            _ranking("on the lab's two nodes", having(rows, source=THE_LAB)),
        ]
    },
    say="""
{% for one in ranked if one.best %}
The highest accuracy {{ one.where }} is {{ one.best.final.value | four }}, with \
{{ one.best.workers | workers }}{{ "; whether %s do as well cannot be told from %s and test sets \
that resolve %s points" | format(one.alike | each("{workers}"), one.best.seeds | count("run") ~
" each", one.least | in_points) if one.alike }}.
{% else %}
No launch here ran to its end, so there is no accuracy to compare.
{% endfor %}
""",
    why="To tell a difference of 0.2 points from none takes MNIST's 10,000 test samples and "
    "several seeds of each number of workers.",
    figures=(
        lines(
            "best-by-workers",
            "Best accuracy by workers",
            "Here with the best recipe of each count, for the same epochs; the lab's on two nodes.",
            "source workers accuracy",
            zero=False,
        ),
    ),
)


# What the lab got wrong: said, right, and what shows it, as templates.

_LARGEST_LOSS = -math.log(1e-7)
"""Of one sample: Keras clips probabilities at 1e-7."""
_CORRECTIONS = (
    (
        "Efficiency: 2 GPUs were 0.53 times faster than 1, and 4 GPUs 0.84 times faster than 2.",
        """They were {{ claims | each("{value:number}") }} times as fast. 0.53 and 0.84 are ratios
of times, new over old and in the wrong order.""",
        """{{ claims | map(attribute="sentence") | join(" ") }} The other way round, 203.63445 /
379.69139 is {{ (203.63445 / 379.69139) | number }} and 379.69139 / 456.14687 is
{{ (379.69139 / 456.14687) | number }}. Here, samples/s:
{{ timed | each("{throughput:interval} on {workers:workers}") }}.""",
    ),
    (
        "size(): it is the number of workers of one node.",
        "It counts the workers of all nodes; local_size() counts those of one. A rate of "
        "0.001 x size() and a data set shared by size() count all of them.",
        """Counted here: {{ counted | each("{counted:whole} steps on {workers:workers}") }}; all
workers share the steps of an epoch.""",
    ),
    (
        "Two nodes: 2 GPUs took 152.0235 s for 3,120 steps.",
        "It very likely had {{ gpus }} GPUs in all.",
        """40 x 60,000 / (128 x {{ gpus }}) is {{ (alone / gpus) | whole }}, and 40 x 78 = 3,120
without incomplete batches; no other number of workers up to 16 gives that. 2 GPUs take
{{ (alone / 2) | whole }} steps, and 152 s would be 3.00x the speed of one.""",
    ),
    (
        "Test loss: 15.59 is given with an accuracy of 0.9854.",
        "A mean cross-entropy cannot be that large: it is very likely a sum, over batches of the "
        "test set.",
        """With 0.9854 right the mean is at most {{ bound | number }}: 2.30 for a right answer among
ten classes and 16.1 for a wrong one, where Keras clips. Here the test loss is
{{ ended | each("{loss.value:number} at an accuracy of {final.value:four}") }}.""",
    ),
    (
        "Accuracy of 40 epochs on one GPU: 0.9854 in one place, 0.9827 in another.",
        "Both are given with the same 456.1468 s, so one is not of this run; 0.9854 is also the "
        "figure of 21 epochs, and very likely belongs there.",
        "The lab's own tables: 0.9854 after 21 epochs, 0.9827 after 40.",
    ),
)


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""
    here = shared.setting_rows(found, "workers")
    ended = having(here, "final")
    for row in ended:
        row.loss = shared.final_mean(row.records, "val_loss")
    return correct(
        _CORRECTIONS,
        claims=shared.claims_of("mnist"),
        timed=having(here, "speedup", "throughput"),
        counted=having(here, "counted"),
        alone=training_steps(LAB_EPOCHS, LAB_SAMPLES, WORK.batch),
        gpus=likely_gpus(),
        bound=0.9854 * math.log(10) + (1 - 0.9854) * _LARGEST_LOSS,
        ended=having(ended, "loss"),
    )


LAB = Lab(
    name="mnist",
    title="mnist: utilisation, efficiency, two nodes",
    line="utilisation by batch, time and accuracy on 1, 2, 4 workers, recipes that keep accuracy",
    questions=(
        *(UTILISATION, STEPS, EPOCHS, WORKERS),
        *(BOTTLENECKS, TWO_NODES, KEEPING, BEST),
    ),
    published=("mnist", "mnist_one_gpu", "mnist_21_epochs", "mnist_two_nodes", "mnist_utilisation"),
    leading=("workers", "keeping_accuracy", "utilisation"),
    efforts=len(EFFORTS) - 2,
    data=describe_mnist,
    pilot=lambda asked: (WORK.pilot(asked),),
    plan=plan,
    corrections=corrections,
    introduction="A network for handwritten digits is trained on more and more workers, first on "
    "one node, then on two under SLURM. The lab asks how busy the devices are and what a larger "
    "batch does to that, how many steps a job takes, how its time and accuracy change with the "
    "workers, where the bottlenecks are, and what a second node means for batch and learning rate. "
    "This report repeats it on the machine at hand, sets the lab's figures beside its own, and "
    "says which differences are large enough to count.",
    lab_found={
        "steps": "40 epochs at batch 128 are 18,750 steps.",
        "bottlenecks": "Unequal utilisation or memory between workers would be bottlenecks.",
    },
    original_data={
        "source": "not named; 60,000 samples point to MNIST",
        "training samples": f"{LAB_SAMPLES:,}",
        "test samples": "not said; MNIST has 10,000",
    },
    method=(
        ("batch per worker", "128; up to 1,024 for utilisation", "128, and those of the sweep"),
        ("launch", "sbatch -N 2, -np for the workers", "farandole study; examples/mnist.sbatch"),
    ),
    conclusion="""
{{ answers["workers"].sentences[0] }}
The lab's jobs got shorter with more GPUs, but not in proportion. Its accuracies, from one run \
each, rank neither 2, 6 and 8 GPUs nor 21 and 40 epochs; that takes repeats with other seeds.
Two nodes need no other code: size() counts all workers, so the global batch and the scaled rate \
follow. Check that the steps of a job are divided by all workers: the lab's 3,120 steps show how \
easily a count goes wrong.
""",
    references=shared.references_of("mnist"),
)
