"""What tells the labs on transfer learning apart."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.labs.training import Workload

RECIPES = ("linear", "warmup", "fixed", "longer")
"""The labs' own first: they multiplied the rate by the workers, without a warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much of a lab is run; a larger effort has no smaller figure."""

    samples: int
    """To train on; 0: all."""
    test_samples: int
    """0: all."""
    epochs: int
    seeds: int
    workers: tuple[int, ...]
    recipes: int
    """How many of RECIPES."""
    original: tuple[int, ...]
    """Numbers of workers that the original's rate is tried on."""
    same_batch: bool
    """Whether workers also share one worker's batch, to show that averaging loses nothing."""


def rung(
    samples: int,
    test_samples: int,
    epochs: int,
    seeds: int,
    workers: tuple[int, ...],
    *,
    recipes: int = 1,
    original: tuple[int, ...] = (2,),
    same_batch: bool = False,
) -> Effort:
    """Return an effort in one line of a ladder."""
    return Effort(
        samples=samples,
        test_samples=test_samples,
        epochs=epochs,
        seeds=seeds,
        workers=workers,
        recipes=recipes,
        original=original,
        same_batch=same_batch,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What the author of a lab expected of more workers."""

    workers: int
    device: str
    stable_epoch: float
    job_s: float
    epoch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One lab on transfer learning."""

    name: str
    work: Workload
    original_rate: float
    """Of one worker, as in the lab."""
    optimizer: str
    """The lab's, in words, with its rate."""
    epochs: int
    data: str
    train: str
    test: str
    workers: str
    """In words: "1, 2 and 4"."""
    device: str
    base: str
    """Whether the base network was trained, too, in words."""
    quick: Effort
    ladder: tuple[Effort, ...]
    full: Effort
    guess: Guess | None = None
    said: str = ""
    """What the lab says of its accuracies beside their figures, as a sentence."""

    @property
    def published(self) -> str:
        """The name of the lab's table in published/."""
        return self.name
