"""What plans of labs share: counts, samples, recipes, and how long launches take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from farandole.errors import UsageError
from farandole.format import listed, plural
from farandole.labs.lab import Asked, Choice, Rate
from farandole.recipes import RECIPES, Recipe

KERAS = (("KERAS_BACKEND", "torch"),)
"""What scripts with Keras are run on."""


def counts(asked: Asked, here: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of workers: what the user asked for, or else the plan's own."""
    return tuple(sorted(set(asked.workers))) or here


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


def data_arguments(asked: Asked) -> tuple[str, ...]:
    """Return what tells a script where its data are; nothing for those that it makes itself."""
    return () if asked.data is None else ("--data", str(asked.data))


def numbers(values: tuple[int, ...]) -> str:
    """Write counts for a flag: "1,2,4"."""
    return ",".join(map(str, values))


def words(values: tuple[int, ...]) -> str:
    """Write counts for a sentence: "1, 2 and 4"."""
    return listed([f"{value:,}" for value in values])


def of_samples(what: str, lab: str, wanted: int, available: int) -> Choice:
    """Say how many samples there are, and why not more."""
    number = taken(wanted, available)
    here, why = f"{number:,}", ""
    if number < available:
        here, why = f"{number:,} of {available:,}", "to fit the time"
    return Choice(what=what, lab=lab, here=here, why=why)


def of_runs(runs: Mapping[str, int]) -> Choice:
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


def of_decay() -> Choice:
    """Say how the rate changes in the course of a run."""
    return Choice(
        what="learning rate during a run",
        lab="not said",
        here="falls to 0 along a cosine",
        why="a rate that stays high leaves the end of a short run to chance",
    )


def differing(choices: list[Choice]) -> tuple[Choice, ...]:
    """Leave out what is the same in the lab and here."""
    return tuple(choice for choice in choices if choice.lab != choice.here)


def beyond(workers: tuple[int, ...], cores: int) -> str:
    """Say which numbers of workers do not count for speed, and why; empty when all do."""
    more = tuple(number for number in workers if number > cores)
    if not more:
        return ""
    return f"{words(more)} share {plural(cores, 'core')}: they count for accuracy, not for speed"


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


_SHARING = 0.8
"""What workers that run at once keep of the speed that each has alone: they share the memory."""
_FORWARD = 1 / 3
"""A test sample goes forward only; a training sample forward, and backward at twice the cost."""
STUDY_S = 3.0
"""Of a study itself: its folder, its records, its report."""


def launch_s(
    rate: Rate, *, workers: int, cores: int, samples: int, epochs: float, test_samples: int = 0
) -> float:
    """Return what a launch takes that trains to its script's end.

    Args:
        rate: of one worker with one thread.
        workers: more than cores take turns.
        cores: of this machine.
        samples: of an epoch, over all workers.
        epochs: of the job.
        test_samples: after each epoch, over all workers.
    """
    at_once = min(workers, cores)
    speed = rate.samples_per_s * (at_once * _SHARING if at_once > 1 else 1.0)
    return startup_s(rate, workers=workers, cores=cores) + epochs * (
        samples / speed + _FORWARD * test_samples / speed
    )


def steps_s(rate: Rate, *, threads: int, batches: Iterable[int], steps: int) -> float:
    """Return what launches of one worker take that end after so many steps, one per batch."""
    speed = rate.samples_per_s * (threads * _SHARING if threads > 1 else 1.0)
    return sum(rate.startup_s + steps * batch / speed for batch in batches)


def startup_s(rate: Rate, *, workers: int, cores: int) -> float:
    """Return what starting and ending take; workers beyond the cores import in turns."""
    return rate.startup_s * max(1.0, workers / cores)
