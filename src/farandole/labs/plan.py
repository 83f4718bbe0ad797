"""What plans of labs share: workers, samples, recipes, a script's studies, how long they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from farandole.errors import UsageError
from farandole.format import listed, plural
from farandole.labs.lab import Asked, Choice, DataFacts, Planned, Rate
from farandole.recipes import RECIPES, Recipe

if TYPE_CHECKING:
    from farandole.labs.rows import Row

KERAS = {"KERAS_BACKEND": "torch"}
"""What scripts with Keras are run on."""
ORIGINAL = Recipe(name="original", scaled=True)
"""By the rate of the lab, not by one that trains."""
LAB_RECIPES = {**RECIPES, ORIGINAL.name: ORIGINAL}


def lab_recipe(name: str) -> Recipe:
    """Return a recipe by its name, `original` among them.

    Raises:
        UsageError: There is none of this name.
    """
    if name not in LAB_RECIPES:
        raise UsageError(f"There is no recipe {name!r}. There are {', '.join(LAB_RECIPES)}.")
    return LAB_RECIPES[name]


def counts(asked: Asked, here: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of workers: what the user asked for, or else the plan's own."""
    return tuple(sorted(set(asked.workers))) or here


TWO, FOUR, EIGHT = (1, 2), (1, 2, 4), (1, 2, 4, 8)
"""Numbers of workers."""


def recipes(asked: Asked, here: tuple[str, ...]) -> tuple[str, ...]:
    """Return the recipes, the plan's first one first where it is among those asked for."""
    chosen = tuple(dict.fromkeys(asked.recipes)) or here
    return tuple(sorted(chosen, key=lambda name: name != here[0]))


def subset(wanted: int, available: int) -> int:
    """Return how many samples to take; 0, all of them, where there are not more."""
    return 0 if wanted == 0 or wanted >= available else wanted


def taken(wanted: int, available: int) -> int:
    """Return how many samples `subset` leaves."""
    return subset(wanted, available) or available


def chosen(asked: Asked, efforts: Sequence[Row], number: int) -> Row:
    """Return how much of a lab is run: the first is for `quick`, the last for `full`."""
    return efforts[{"quick": 0, "full": -1}.get(asked.size, number + 1)]


# Where a run differs from the lab: "lab / here".


def choices(*rows: Choice | Sequence[str]) -> tuple[Choice, ...]:
    """Return choices, as they are or as (what, lab, here[, why]), without those that are equal."""
    names = ("what", "lab", "here", "why")
    made = [
        row if isinstance(row, Choice) else Choice(**dict(zip(names, row, strict=False)))
        for row in rows
    ]
    return tuple(choice for choice in made if choice.lab != choice.here)


def words(values: tuple[int, ...]) -> str:
    """Write counts for a sentence: "1, 2 and 4"."""
    return listed([f"{value:,}" for value in values])


def samples_choice(what: str, lab: str, wanted: int, available: int) -> Choice:
    """Say how many samples there are, and why not more."""
    number = taken(wanted, available)
    fewer = number < available
    here = f"{number:,} of {available:,}" if fewer else f"{number:,}"
    return Choice(what=what, lab=lab, here=here, why="to fit the time" if fewer else "")


def epochs_words(epochs: int, names: Iterable[str]) -> str:
    """Say for how many epochs: "3 (6 with recipe longer)"."""
    longer = sorted({lab_recipe(name).epochs(epochs) for name in names} - {epochs})
    return f"{epochs} ({longer[-1]} with recipe longer)" if longer else f"{epochs}"


def runs_choice(runs: Mapping[str, int]) -> Choice:
    """Say how often each setting is run, by the name of its study."""
    studies: dict[int, list[str]] = {}
    for name, number in runs.items():
        studies.setdefault(number, []).append(name)
    by_number = [f"{number} ({listed(names)})" for number, names in sorted(studies.items())]
    return Choice(
        what="runs of each setting, by study",
        lab="1",
        here=", ".join(by_number) if len(studies) > 1 else "".join(map(str, studies)),
        why="intervals need several" if max(studies, default=1) > 1 else "",
    )


def recipe_words(base_rate: float, names: tuple[str, ...]) -> str:
    """Say which rate one worker has, and by which recipes it changes with more."""
    which = "recipe" if len(names) == 1 else "recipes"
    return f"{base_rate:g} for one worker; {which} {listed(list(names))}"


DECAY = Choice(
    what="learning rate during a run",
    lab="not said",
    here="falls to 0 along a cosine",
    why="a rate that stays high leaves the end of a short run to chance",
)


def beyond(workers: tuple[int, ...], cores: int) -> str:
    """Say which numbers of workers do not count for speed, and why; empty when all do."""
    more = tuple(number for number in workers if number > cores)
    if not more:
        return ""
    return f"{words(more)} share {plural(cores, 'core')}: they count for accuracy, not for speed"


# How long launches take.

_SHARING = 0.8
"""What workers that run at once keep of the speed that each has alone: they share the memory."""
_FORWARD = 1 / 3
"""A test sample goes forward only; a training sample forward, and backward at twice the cost."""
STUDY_S = 1.0
"""Of a study itself: its folder, its records, its report."""
_PILOT_STEPS = 12


def launch_s(
    rate: Rate, *, workers: int, cores: int, samples: int, epochs: float, test_samples: int = 0
) -> float:
    """Return what a launch takes that trains to its script's end, by one worker's rate.

    Samples and test samples are those of an epoch, over all workers. More workers than cores take
    turns, in importing as well.
    """
    at_once = min(workers, cores)
    speed = rate.samples_per_s * (at_once * _SHARING if at_once > 1 else 1.0)
    startup_s = rate.startup_s * max(1.0, workers / cores)
    return startup_s + epochs * (samples / speed + _FORWARD * test_samples / speed)


def on_cores(rate: Rate, threads: int) -> Rate:
    """Return the rate of one worker with so many threads."""
    return replace(rate, samples_per_s=rate.samples_per_s * max(1.0, threads * _SHARING))


def steps_s(rate: Rate, *, threads: int, batches: Iterable[int], steps: int) -> float:
    """Return what launches of one worker take that end after so many steps, one per batch."""
    speed = on_cores(rate, threads).samples_per_s
    return sum(rate.startup_s + steps * batch / speed for batch in batches)


# A script as studies: a pilot of few steps, and launches that train to the script's end.


def data_arguments(asked: Asked) -> tuple[str, ...]:
    """Return what tells a script where its data are; nothing for those that it makes itself."""
    return () if asked.data is None else ("--data", str(asked.data))


def script_study(
    asked: Asked,
    name: str,
    title: str,
    script: str,
    flags: Mapping[str, object],
    *,
    more: Sequence[str] = (),
    options: Mapping[str, Any],
    seconds: float,
    environ: Mapping[str, str] = KERAS,
) -> Planned:
    """Return a study of a script with these flags and arguments, on the data asked for."""
    words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    return Planned(
        name=name,
        title=title,
        options=options,
        script=script,
        arguments=(*data_arguments(asked), *words, *more),
        estimate_s=seconds + STUDY_S,
        environ=environ,
    )


def speed_options(repeats: int) -> dict[str, Any]:
    """Return what makes a study of nothing but steps."""
    return {"repeats": repeats, "no_epoch": True, "no_today": True, "no_calibration": True}


def busy_options(asked: Asked) -> dict[str, Any]:
    """Make no launch again that others disturbed where time is short."""
    return {} if asked.size == "full" else {"keep_busy": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A Keras script, with what a lab runs it with throughout."""

    name: str
    """Of the pilot study, and so of its rate."""
    script: str
    """A file of examples/."""
    batch: int
    """Per worker."""
    learning_rate: float
    """Of one worker."""
    guess: Rate
    """Of one core of a virtual machine, where no pilot has measured: for `quick` and `full`."""
    few_test_samples: int
    """For studies of speed, which do not look at accuracy."""
    arguments: tuple[str, ...] = ()
    """Further ones of the script, in all studies."""

    def speed_study(
        self, asked: Asked, name: str, title: str, *, options: Mapping[str, Any], seconds: float
    ) -> Planned:
        """Return a study of steps: its job has no end."""
        flags = {"epochs": 1000, "batch-size": "{batch}", "samples": 0}
        flags |= {"test-samples": self.few_test_samples}
        flags |= {"lr": f"{self.learning_rate:g}", "recipe": "fixed"}
        given: dict[str, Any] = {"more": self.arguments, "options": options, "seconds": seconds}
        return script_study(asked, name, title, self.script, flags, **given)

    def pilot(self, asked: Asked) -> Planned:
        """Return the study that measures what one worker does in a second."""
        once_s = steps_s(self.guess, threads=1, batches=(self.batch,), steps=_PILOT_STEPS)
        options = {"workers": 1, "threads": 1, "params": {"batch": self.batch}}
        options |= {"steps": _PILOT_STEPS, **speed_options(1)}
        title = "How fast one worker trains"
        return self.speed_study(asked, self.name, title, options=options, seconds=once_s)


@dataclass(frozen=True, slots=True)
class Training:
    """What the studies of a plan have in common whose launches train to the script's end."""

    workload: Workload
    asked: Asked
    data: DataFacts
    rate: Rate
    effort: Row
    """Samples and test samples (0: all), epochs and seeds."""

    def study(
        self,
        name: str,
        title: str,
        *,
        recipes: Sequence[str],
        workers: tuple[int, ...],
        **varied: Sequence[Any],
    ) -> Planned:
        """Return a study of accuracy or loss, and of times beside it: each recipe on all workers.

        `varied` is what the script is given several values of, with one seed: samples, lr.
        """
        work, data, here = self.workload, self.data, self.effort
        seeds = 1 if varied else here.seeds
        one_seed = sum(
            launch_s(
                self.rate,
                workers=count,
                cores=self.asked.cores,
                samples=samples,
                epochs=lab_recipe(each).epochs(here.epochs),
                test_samples=taken(here.test_samples, data.test),
            )
            for count in workers
            for each in recipes
            for samples in varied.get("samples") or (taken(here.samples, data.train),)
        )
        flags = {"epochs": here.epochs, "batch-size": "{batch}"}
        flags |= {"samples": subset(here.samples, data.train)}
        flags |= {"test-samples": subset(here.test_samples, data.test)}
        flags |= {"lr": f"{work.learning_rate:g}", "recipe": "{recipe}", "seed": "{seed}"}
        flags |= {key: f"{{{key}}}" for key in varied}
        options = {
            "workers": workers,
            "params": {"batch": work.batch, "recipe": recipes, **varied},
            "measure": "accuracy",
            "seeds": seeds,
            "no_calibration": True,
            **busy_options(self.asked),
        }
        given: dict[str, Any] = {"more": work.arguments, "options": options}
        given["seconds"] = seeds * one_seed
        return script_study(self.asked, name, title, work.script, flags, **given)

    def by_workers(
        self, what: str, recipes: Sequence[str], workers: tuple[int, ...], most: int = 8
    ) -> list[Planned]:
        """Return the first recipe on all numbers of workers, and the others on several.

        That is up to `most`, unless the user asks for more; with one all recipes are the same.
        """
        (first, *rest), metric = recipes, what.lower()
        several = tuple(n for n in workers if n > 1 and (self.asked.workers or n <= most))
        title, others = f"Time and {metric} by workers, recipe {first}", f"{what} by workers, "
        made = [self.study("workers", title, recipes=(first,), workers=workers)]
        if rest and several:
            made += [self.study("recipes", others + listed(rest), recipes=rest, workers=several)]
        return made
