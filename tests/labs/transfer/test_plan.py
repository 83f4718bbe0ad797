"""Plans of the labs on transfer learning, which differ in their figures only."""

from __future__ import annotations

from itertools import pairwise

import pytest

from farandole.labs.caltech.kind import KIND as CALTECH
from farandole.labs.fruits.kind import KIND as FRUITS
from farandole.labs.lab import Plan, Planned, Rate
from farandole.labs.transfer.kind import Kind
from tests.labs.trained import asked, estimates, facts, flag, here
from tests.labs.transfer.build import LABS

KINDS = {"fruits": FRUITS, "caltech": CALTECH}
BOTH = pytest.mark.parametrize("name", KINDS)
PHOTOS = facts(10_901, 2_698)
FEW = facts(1200, 240)


def rates(kind: Kind) -> dict[str, Rate]:
    return {kind.name: Rate(samples_per_s=40.0, startup_s=8.0)}


def by_name(plan: Plan) -> dict[str, Planned]:
    return {study.name: study for study in plan.studies}


@BOTH
@pytest.mark.parametrize("data", [PHOTOS, FEW])
@pytest.mark.parametrize("wanted", [{}, {"workers": (1, 8)}, {"recipes": ("original", "fixed")}])
def test_a_larger_effort_never_takes_less_time(
    name: str, data: object, wanted: dict[str, object]
) -> None:
    found = estimates(LABS[name], data, rates(KINDS[name]), **wanted)  # type: ignore[arg-type]
    assert found == sorted(found)
    assert found[0] < 900 < found[-1]


@BOTH
def test_quick_is_about_a_minute_of_one_and_two_workers(name: str) -> None:
    plan = LABS[name].plan(asked(), FEW, {}, 0)
    assert plan.estimate_s < 100
    studies = by_name(plan)
    assert set(studies) == {"workers", "original", "unwrapped"}
    assert flag(studies["workers"].flags, "-np") == "1,2"
    assert flag(studies["original"].flags, "-np") == "2"
    assert {flag(one.flags, "--seeds") for one in plan.studies} == {"1"}
    # Fewer evaluations have no plateau.
    assert int(flag(studies["workers"].arguments, "--epochs")) >= 6


@BOTH
def test_full_is_the_labs_protocol(name: str) -> None:
    kind = KINDS[name]
    studies = by_name(LABS[name].plan(asked("full"), PHOTOS, {}, 0))
    arguments = studies["workers"].arguments
    assert flag(arguments, "--epochs") == {"fruits": "10", "caltech": "30"}[name]
    assert (flag(arguments, "--samples"), flag(arguments, "--image-size")) == ("0", "224")
    assert "batch=32" in studies["workers"].flags
    assert flag(studies["original"].arguments, "--lr") == {"fruits": "0.1", "caltech": "1"}[name]
    assert set(flag(studies["workers"].flags, "-np").split(",")) >= {"1", "2", "4"}
    assert kind.full.recipes == 4


@BOTH
def test_only_the_unwrapped_study_is_unwrapped_and_it_is_short(name: str) -> None:
    for size in ("quick", "full"):
        studies = by_name(LABS[name].plan(asked(size), PHOTOS, {}, 0))  # type: ignore[arg-type]
        assert [key for key, one in studies.items() if "--unwrapped" in one.arguments] == [
            "unwrapped"
        ]
        assert flag(studies["unwrapped"].arguments, "--epochs") == "1"


def test_two_workers_share_the_batch_of_one_at_a_fixed_rate() -> None:
    studies = by_name(LABS["fruits"].plan(asked("full"), PHOTOS, {}, 0))
    shared = studies["same_batch"]
    assert (flag(shared.flags, "-np"), flag(shared.flags, "-L")) == ("2", "batch=16")
    assert "recipe=fixed" in shared.flags
    assert flag(shared.arguments, "--epochs") == flag(studies["workers"].arguments, "--epochs")


@pytest.mark.parametrize("first", ["original", "longer"])
def test_nothing_shares_a_batch_where_one_worker_trains_otherwise(first: str) -> None:
    plan = LABS["fruits"].plan(asked("full", recipes=(first,)), PHOTOS, {}, 0)
    assert "same_batch" not in by_name(plan)


def test_the_original_alone_is_the_study_of_workers_at_its_rate() -> None:
    plan = LABS["fruits"].plan(asked(recipes=("original",)), FEW, {}, 0)
    studies = by_name(plan)
    assert set(studies) == {"workers", "unwrapped"}
    assert "recipe=original" in studies["workers"].flags
    assert flag(studies["workers"].arguments, "--lr") == "0.1"


def test_recipes_without_the_original_leave_it_out() -> None:
    studies = by_name(LABS["fruits"].plan(asked(recipes=("warmup",)), FEW, {}, 0))
    assert "original" not in studies
    assert "recipe=warmup" in studies["workers"].flags
    assert flag(studies["workers"].arguments, "--lr") == f"{FRUITS.work.learning_rate:g}"


def test_one_worker_alone_has_nothing_to_wrap() -> None:
    studies = by_name(LABS["fruits"].plan(asked("full", workers=(1,)), FEW, {}, 0))
    assert set(studies) == {"workers", "original"}


@BOTH
def test_the_data_folder_and_the_size_of_images_reach_every_script(name: str) -> None:
    wanted = asked("budget", data=here())
    lab = LABS[name]
    commands = [*lab.pilot(wanted), *lab.plan(wanted, FEW, {}, lab.efforts - 1).studies]
    assert {flag(one.arguments, "--data") for one in commands} == {str(here())}
    sizes = {flag(one.arguments, "--image-size") for one in commands}
    assert sizes == {"96"}


@BOTH
def test_weights_reach_every_script_when_they_were_asked_for(name: str) -> None:
    lab = LABS[name]
    for wanted, expected in ((asked("budget", weights="none"), ["none"]), (asked("budget"), [])):
        for one in [*lab.pilot(wanted), *lab.plan(wanted, FEW, {}, lab.efforts - 1).studies]:
            words = one.arguments
            assert [b for a, b in pairwise(words) if a == "--weights"] == expected


def test_choices_name_the_labs_rate_and_what_is_smaller() -> None:
    plan = LABS["caltech"].plan(asked(), FEW, {}, 0)
    choices = {choice.what: choice for choice in plan.choices}
    assert "1.0 x workers" in choices["learning rate"].lab
    assert choices["training samples"].here.endswith("of 1,200")
    assert choices["epochs"].lab == "30"
    assert choices["learning rate"].here == "0.003 for one worker; recipe linear"


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (None, "EfficientNet-Lite0"),
        ("none", "EfficientNet-Lite0, random weights"),
        ("pretrained", "EfficientNet-Lite0, weights of ImageNet"),
        ("/somewhere/mine.pth", "EfficientNet-Lite0, weights of mine.pth"),
    ],
)
def test_choices_name_the_weights_that_were_asked_for(weights: str | None, said: str) -> None:
    plan = LABS["fruits"].plan(asked(weights=weights), FEW, {}, 0)
    assert [one.here for one in plan.choices if one.what == "base network"] == [said]
