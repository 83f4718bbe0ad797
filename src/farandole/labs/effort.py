"""What the plans of several labs decide alike: counts, recipes, subsets, and how to say them."""

from __future__ import annotations

from collections.abc import Mapping

from farandole.format import listed, plural
from farandole.labs.lab import Asked, Choice

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
