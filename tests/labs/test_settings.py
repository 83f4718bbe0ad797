"""Settings out of launches' own commands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.labs.mnist import LAB
from farandole.labs.settings import settings_of
from tests.labs.mnist_studies import found
from tests.labs.trained import facts, found_of, training_study


def test_launches_of_all_seeds_make_one_setting_each() -> None:
    made = settings_of(found(seeds=3), "workers", "recipes")
    names = [(one.study, one.recipe, one.workers) for one in made]
    assert names[:4] == [
        ("workers", "linear", 1),
        ("workers", "linear", 2),
        ("workers", "linear", 4),
        ("recipes", "fixed", 2),
    ]
    assert {one.seeds for one in made} == {3}
    assert len(names) == len(set(names)) == 9


def test_all_samples_are_those_of_the_data() -> None:
    study = training_study((1,), ("fixed",), {}, batch=10, samples=50)
    argv = tuple("0" if part in ("50", "200") else part for part in study.launches[0].argv)
    whole = replace(study, launches=(replace(study.launches[0], argv=argv),))
    (one,) = settings_of(found_of(LAB, {"workers": whole}, data=facts(1234, 99)), "workers")
    assert (one.samples, one.test_samples) == (1234, 99)


def test_the_formula_has_fractions_and_whole_steps_do_not() -> None:
    two = next(one for one in settings_of(found(), "workers") if one.workers == 2)
    assert two.steps == pytest.approx(3 * 1000 / 256)
    assert two.whole_steps == 3 * 4
    assert two.rate == pytest.approx(0.002)


def test_a_study_that_was_not_made_has_no_settings() -> None:
    assert settings_of(found_of(LAB, {}), "workers") == ()
