"""The recipe that only labs have."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.labs.effort import lab_recipe
from farandole.recipes import RECIPES


def test_the_original_is_scaled_from_the_first_step_and_the_others_are_what_they_are() -> None:
    one = lab_recipe("original")
    assert one.rate(0.1, 4, 0.0, 10) == pytest.approx(0.4)
    assert one.epochs(10) == 10
    assert all(lab_recipe(name) is found for name, found in RECIPES.items())


def test_an_unknown_name_lists_all() -> None:
    with pytest.raises(UsageError, match=r"no recipe 'slow'\. There are fixed, .*original\."):
        lab_recipe("slow")
