"""Ways to set the learning rate when workers are added: pure arithmetic, the same everywhere.

N workers with a batch each make N times fewer updates of an N times larger batch. A recipe says
what becomes of the rate of one worker, and of the number of epochs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from farandole.errors import UsageError

DECAYS = ("constant", "cosine", "step")
"""How the rate falls in the course of a run: not at all, to 0 along a cosine, or in steps."""

# Goyal et al. 2017 divide by 10 after 30, 60 and 80 of 90 epochs.
_STEPS = (30 / 90, 60 / 90, 80 / 90)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What becomes of rate and epochs when workers are added."""

    name: str
    scaled: bool
    """Whether the rate is multiplied by the number of workers."""
    warmup_epochs: float = 0.0
    """How long a scaled rate takes to grow; in a short run half of its epochs at most."""
    longer: float = 1.0
    """How many times more epochs a run has, at any number of workers."""

    def epochs(self, n: int) -> int:
        """Return for how many epochs to train where a plain run has `n`."""
        return math.ceil(n * self.longer)

    def warmup(self, epochs: float) -> float:
        """Return how many epochs of a run of `epochs` the rate grows."""
        return min(self.warmup_epochs, epochs / 2) if self.scaled else 0.0

    def rate(
        self, base: float, workers: float, epoch: float, epochs: float, *, decay: str = "constant"
    ) -> float:
        """Return the learning rate of a batch.

        Args:
            base: the rate that is good for one worker.
            workers: how many times larger than one worker's the global batch is.
            epoch: how many epochs are done, with the part of the present one: 0 at first.
            epochs: how many there are in all, by `Recipe.epochs`.
            decay: one of DECAYS; the same factor for all recipes.
        """
        factor = 1.0
        if self.scaled:
            warmup = self.warmup(epochs)
            grown = min(epoch / warmup, 1.0) if warmup > 0.0 else 1.0
            factor += grown * (workers - 1.0)
        return base * factor * _left(epoch / epochs, decay)

    def describe(
        self, base: float, workers: float, epochs: float, *, decay: str = "constant"
    ) -> str:
        """Say in words what the rate does in a run of `epochs`."""
        text = f"{self.name}: learning rate {base:g}"
        if self.scaled:
            warmup = self.warmup(epochs)
            full = f"{base:g} x {workers:g} = {base * workers:g}"
            text = f"{self.name}: learning rate {full}"
            if warmup:
                text = f"{self.name}: learning rate from {base:g} to {full} over {warmup:g} epochs"
            if warmup < self.warmup_epochs:
                text += f" (half of {epochs:g}; {self.warmup_epochs:g} in a longer run)"
        if self.longer != 1.0:
            text += f", for {self.longer:g} times the epochs"
        _left(0.0, decay)
        if decay == "cosine":
            text += ", falling to 0 along a cosine"
        elif decay == "step":
            text += ", divided by 10 after 1/3, 2/3 and 8/9 of the run"
        return text

    def constant(self, decay: str = "constant") -> bool:
        """Say whether the rate is the same in all of a run."""
        return decay == "constant" and not (self.scaled and self.warmup_epochs)


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        made.name: made
        for made in (
            Recipe(name="fixed", scaled=False),
            Recipe(name="linear", scaled=True),
            # Goyal et al. 2017, https://arxiv.org/abs/1706.02677
            Recipe(name="warmup", scaled=True, warmup_epochs=5.0),
            Recipe(name="longer", scaled=False, longer=2.0),
        )
    }
)


def recipe(name: str | Recipe) -> Recipe:
    """Return a recipe by its name; one of your own comes back as it is.

    Raises:
        UsageError: there is none of this name.
    """
    if isinstance(name, Recipe):
        return name
    if name not in RECIPES:
        raise UsageError(f"There is no recipe {name!r}. There are {', '.join(RECIPES)}.")
    return RECIPES[name]


def _left(done: float, decay: str) -> float:
    """Return the share of the rate that is left when this share of the run is done."""
    if decay == "constant":
        return 1.0
    if decay == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
    if decay == "step":
        # The beginning of an epoch that is a boundary but for rounding is one.
        passed = sum(done >= at or math.isclose(done, at) for at in _STEPS)
        return float(0.1**passed)
    raise UsageError(f"There is no decay {decay!r}. There are {', '.join(DECAYS)}.")
