"""Which studies the mnist lab makes at which size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farandole.format import listed
from farandole.labs import effort as alike
from farandole.labs.duration import STUDY_S, steps_s
from farandole.labs.lab import Asked, Choice, DataFacts, Plan, Planned, Rate
from farandole.labs.training import Training, Workload, busy_flags, speed_flags
from farandole.recipes import recipe

WORK = Workload(
    name="mnist",
    script="mnist.py",
    batch=128,
    learning_rate=0.001,
    guess=Rate(samples_per_s=450.0, startup_s=6.0),
    few_test_samples=256,
)
LAB_EPOCHS = 40
LAB_SAMPLES = 60_000
RECIPES = ("linear", "fixed", "warmup", "longer")
"""The lab's own first: its rate is 0.001 x workers."""

_FEWEST_EPOCHS = 3
"""Of a run on a part of the data: fewer leave no room for a warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much of the lab is run; a larger effort has no smaller figure."""

    visits: int | None
    """Samples that a run sees, over all its epochs; None: the lab's 40 epochs of all of them."""
    test_samples: int
    """0: all."""
    seeds: int
    workers: tuple[int, ...]
    recipes: int
    """How many of RECIPES."""
    sweep: tuple[int, ...]
    """Batches that are tried on one worker."""
    steps: int
    """Of each launch of the sweep."""
    repeats: int
    """Of each batch of the sweep."""

    def samples(self, available: int) -> int:
        """Return how many samples to train on: other ones are worth more than the same again."""
        if self.visits is None:
            return available
        return min(available, max(1, self.visits // _FEWEST_EPOCHS))

    def epochs(self, available: int) -> int:
        """Return for how many epochs."""
        if self.visits is None:
            return LAB_EPOCHS
        return min(LAB_EPOCHS, max(_FEWEST_EPOCHS, self.visits // self.samples(available)))


def _effort(
    visits: int | None,
    test_samples: int,
    seeds: int,
    workers: tuple[int, ...],
    recipes: int,
    sweep: tuple[tuple[int, ...], int, int],
) -> Effort:
    batches, steps, repeats = sweep
    return Effort(
        visits=visits,
        test_samples=test_samples,
        seeds=seeds,
        workers=workers,
        recipes=recipes,
        sweep=batches,
        steps=steps,
        repeats=repeats,
    )


_TWO, _FOUR, _EIGHT = (1, 2), (1, 2, 4), (1, 2, 4, 8)
_LEAST = ((32, 128), 10, 1)
_SMALL = ((32, 128, 512), 12, 1)
_SWEEP = ((32, 128, 512), 16, 2)
_WIDE = ((32, 128, 512, 1024), 20, 3)

QUICK = _effort(3072, 360, 1, _TWO, 2, _LEAST)
LADDER = (
    _effort(2304, 360, 1, _TWO, 2, _LEAST),
    _effort(3072, 1000, 1, _FOUR, 2, _SMALL),
    _effort(6144, 1000, 1, _FOUR, 3, _SMALL),
    _effort(6144, 2000, 2, _FOUR, 3, _SMALL),
    _effort(6144, 2000, 3, _FOUR, 3, _SWEEP),
    _effort(9216, 2000, 3, _FOUR, 3, _SWEEP),
    _effort(12_288, 2000, 3, _FOUR, 3, _SWEEP),
    _effort(18_000, 5000, 3, _FOUR, 4, _SWEEP),
    _effort(30_000, 0, 3, _FOUR, 4, _WIDE),
    _effort(60_000, 0, 3, _FOUR, 4, _WIDE),
    _effort(90_000, 0, 3, _FOUR, 4, _WIDE),
    _effort(120_000, 0, 3, _FOUR, 4, _WIDE),
    _effort(180_000, 0, 3, _FOUR, 4, _WIDE),
    _effort(240_000, 0, 3, _EIGHT, 4, _WIDE),
    _effort(360_000, 0, 3, _EIGHT, 4, _WIDE),
    _effort(600_000, 0, 3, _EIGHT, 4, _WIDE),
)
# One host with as many workers as the lab's two nodes had GPUs takes the same steps.
FULL = _effort(None, 0, 1, (1, 2, 4, 6, 8), 4, ((128, 256, 512, 1024), 40, 3))
_RECIPE_WORKERS = 4
"""The most that recipes beside the first are tried on, unless the user asks for more."""


def pilot(asked: Asked) -> tuple[Planned, ...]:
    """Return the study that measures what one worker does in a second."""
    return (WORK.pilot(asked),)


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
    first, *rest = alike.recipes(asked, RECIPES[: here.recipes])
    studies = [
        _batches(asked, data, rate, here),
        training.study(
            name="workers",
            title=f"Time and accuracy by workers, recipe {first}",
            recipes=(first,),
            workers=alike.counts(asked, here.workers),
        ),
    ]
    some = recipe_counts(asked, here)
    if rest and some:
        studies.append(
            training.study(
                name="recipes",
                title=f"Accuracy by workers, {listed(rest)}",
                recipes=tuple(rest),
                workers=some,
            )
        )
    return Plan(studies=tuple(studies), choices=_choices(asked, data, here))


def recipe_counts(asked: Asked, here: Effort) -> tuple[int, ...]:
    """Return the numbers of workers that recipes are told apart by: with one they are the same."""
    chosen = alike.counts(asked, here.workers)
    return tuple(n for n in chosen if n > 1 and (asked.workers or n <= _RECIPE_WORKERS))


def _batches(asked: Asked, data: DataFacts, rate: Rate, here: Effort) -> Planned:
    batches = _sweep(data, here)
    once = steps_s(rate, threads=asked.cores, batches=batches, steps=here.steps)
    return Planned(
        name="batch",
        title="Utilisation and throughput of one worker with all cores, by batch",
        flags=(
            *("-np", "1", "-L", f"batch={alike.numbers(batches)}"),
            *("--steps", str(here.steps), *speed_flags(here.repeats), *busy_flags(asked)),
        ),
        script=WORK.script,
        arguments=WORK.endless(asked),
        estimate_s=here.repeats * once + STUDY_S,
        environ=alike.KERAS,
    )


def _sweep(data: DataFacts, here: Effort) -> tuple[int, ...]:
    """Leave out batches that the data do not fill a few times; one is always left."""
    return tuple(batch for batch in here.sweep if 4 * batch <= data.train) or here.sweep[:1]


def _choices(asked: Asked, data: DataFacts, here: Effort) -> tuple[Choice, ...]:
    chosen = alike.counts(asked, here.workers)
    named = alike.recipes(asked, RECIPES[: here.recipes])
    return alike.differing(
        [
            Choice(what="device", lab="GPUs", here=f"{asked.cores} CPU cores, a thread per worker"),
            Choice(
                what="hosts",
                lab="1 and 2 (sbatch -N 2)",
                here="1",
                why="a lab runs on one host; what two change is worked out under two_nodes",
            ),
            Choice(
                what="data set", lab="not named; 60,000 samples point to MNIST", here=data.source
            ),
            Choice(what="network", lab="not named", here="Keras's CNN for MNIST, 1.2 M parameters"),
            alike.of_samples(
                "training samples", f"{LAB_SAMPLES:,}", here.samples(data.train), data.train
            ),
            alike.of_samples("test samples", "not said", here.test_samples, data.test),
            Choice(what="epochs", lab="40 (and 21)", here=_epochs(here.epochs(data.train), named)),
            Choice(
                what="workers",
                lab="1, 2 and 4; 2, 6 and 8 on two nodes",
                here=alike.words(chosen),
                why=alike.beyond(chosen, asked.cores),
            ),
            Choice(
                what="learning rate",
                lab="0.001 x workers",
                here=_rate_words(named),
                why="to show what keeps accuracy" if len(named) > 1 else "",
            ),
            Choice(
                what="batches of the utilisation sweep",
                lab="128 and 1,024",
                here=alike.words(_sweep(data, here)),
            ),
            alike.of_decay(),
        ]
    )


def _epochs(epochs: int, named: tuple[str, ...]) -> str:
    longer = sorted({recipe(each).epochs(epochs) for each in named} - {epochs})
    return f"{epochs}" + (f" ({longer[-1]} with recipe longer)" if longer else "")


def _rate_words(named: tuple[str, ...]) -> str:
    words = {
        "linear": "0.001 x workers",
        "fixed": "0.001 (fixed)",
        "warmup": "0.001 x workers after a warm-up",
        "longer": "0.001 for twice the epochs (longer)",
    }
    return ", ".join(words.get(name, name) for name in named)
