"""Rates and epochs by recipe, by formula."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.recipes import DECAYS, RECIPES, Recipe, recipe
from tests.recorder.launching import launch


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize(
    ("name", "epoch", "epochs", "factor"),
    [
        ("fixed", 0.0, 10, lambda n: 1),
        ("fixed", 9.5, 10, lambda n: 1),
        ("longer", 0.0, 20, lambda n: 1),
        ("longer", 19.5, 20, lambda n: 1),
        ("linear", 0.0, 10, lambda n: n),
        ("linear", 9.5, 10, lambda n: n),
        ("warmup", 0.0, 90, lambda n: 1),
        ("warmup", 1.25, 90, lambda n: 1 + (n - 1) / 4),
        ("warmup", 2.5, 90, lambda n: (1 + n) / 2),
        ("warmup", 5.0, 90, lambda n: n),
        ("warmup", 80.0, 90, lambda n: n),
        # 5 epochs are just half of 10, and more than half of 4.
        ("warmup", 2.5, 10, lambda n: (1 + n) / 2),
        ("warmup", 1.0, 4, lambda n: (1 + n) / 2),
        ("warmup", 2.0, 4, lambda n: n),
        ("warmup", 0.5, 1, lambda n: n),
    ],
)
def test_rates(name: str, epoch: float, epochs: int, factor: object, workers: int) -> None:
    assert callable(factor)
    expected = 0.1 * factor(workers)
    assert recipe(name).rate(0.1, workers, epoch, epochs) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    ("decay", "epoch", "left"),
    [
        ("constant", 8.9, 1.0),
        ("cosine", 0.0, 1.0),
        ("cosine", 3.0, 0.75),
        ("cosine", 4.5, 0.5),
        ("cosine", 9.0, 0.0),
        ("step", 2.99, 1.0),
        ("step", 3.0, 0.1),
        ("step", 5.99, 0.1),
        ("step", 6.0, 0.01),
        ("step", 8.0, 0.001),
    ],
)
def test_decay_is_one_factor_for_all_recipes(
    name: str, decay: str, epoch: float, left: float
) -> None:
    plain = recipe(name).rate(0.1, 4, epoch, 9)
    got = recipe(name).rate(0.1, 4, epoch, 9, decay=decay)
    assert got == pytest.approx(plain * left, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("workers", [1, 3])
def test_warmup_never_jumps(workers: int) -> None:
    rates = [recipe("warmup").rate(1.0, workers, step / 100, 3) for step in range(300)]
    rises = [after - before for before, after in pairwise(rates)]
    assert rates[0] == 1.0
    assert rates[-1] == workers
    assert all(0.0 <= rise <= (workers - 1) / 150 + 1e-12 for rise in rises)


def test_one_worker_has_one_rate_by_any_recipe() -> None:
    assert {made.rate(0.3, 1, 0.7, 3) for made in RECIPES.values()} == {0.3}


def test_epochs() -> None:
    assert {name: made.epochs(5) for name, made in RECIPES.items()} == {
        "fixed": 5,
        "linear": 5,
        "warmup": 5,
        "longer": 10,
    }
    assert Recipe(name="own", scaled=False, longer=1.5).epochs(3) == 5


def test_words() -> None:
    said = {name: made.describe(0.1, 4, 20) for name, made in RECIPES.items()}
    assert said == {
        "fixed": "fixed: learning rate 0.1",
        "linear": "linear: learning rate 0.1 x 4 = 0.4",
        "warmup": "warmup: learning rate from 0.1 to 0.1 x 4 = 0.4 over 5 epochs",
        "longer": "longer: learning rate 0.1, for 2 times the epochs",
    }
    # A warm-up that was made shorter is said.
    assert (
        recipe("warmup")
        .describe(0.1, 2, 3)
        .endswith("= 0.2 over 1.5 epochs (half of 3; 5 in a longer run)")
    )
    assert recipe("fixed").describe(0.1, 2, 3, decay="cosine").endswith("along a cosine")
    assert "after 1/3, 2/3 and 8/9" in recipe("fixed").describe(0.1, 2, 3, decay="step")


@pytest.mark.parametrize(("name", "constant"), [("fixed", True), ("linear", True)])
def test_what_never_changes(name: str, constant: bool) -> None:
    assert recipe(name).constant() is constant
    assert not recipe(name).constant("cosine")
    assert not recipe("warmup").constant()


def test_a_recipe_of_ones_own() -> None:
    root = Recipe(name="slow", scaled=True, warmup_epochs=1.0)
    assert recipe(root) is root
    assert math.isclose(root.rate(0.1, 3, 0.5, 4), 0.2)


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(UsageError, match=r"'warm'.*fixed, linear, warmup, longer"):
        recipe("warm")
    for use in (recipe("fixed").rate, lambda *a, **k: recipe("fixed").describe(0.1, 1, 1, **k)):
        with pytest.raises(UsageError, match=rf"'cos'.*{', '.join(DECAYS)}"):
            use(0.1, 1, 0.0, 1, decay="cos")


def test_no_framework_is_imported() -> None:
    code = "import sys, farandole.recipes; print({'torch', 'numpy', 'keras'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "set()\n"


PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "recipes.md"


@pytest.mark.ranks
def test_the_example_of_the_docs_for_torch(tmp_path: Path) -> None:
    # That for Keras is run in tests/keras/callbacks.
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    study = {"FARANDOLE_PARAMS": json.dumps({"recipe": "linear"})}
    done = launch(tmp_path, example, np=2, **study)
    assert done.code == 0, done.output
    assert done.output.count("linear: learning rate 0.05 x 2 = 0.1\n") == 1, done.output
    for rank in done.ranks:
        assert rank.metrics("learning_rate") == [0.1] * 4
        assert rank.metrics("loss")[-1] < 0.6


def test_the_docs_name_every_recipe_and_decay() -> None:
    page = PAGE.read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(RECIPES)
    assert all(f'`"{decay}"`' in page for decay in DECAYS)
    named = re.findall(r"-L recipe=([a-z,]+)", page)
    assert named
    assert all(name in RECIPES for names in named for name in names.split(","))
