"""The recipe `original`: a lab's own learning rate, multiplied by its workers, as it stands."""

from __future__ import annotations

from farandole.errors import UsageError
from farandole.recipes import RECIPES, Recipe

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
