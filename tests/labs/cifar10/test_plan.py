"""Which studies there are: every cell once, no larger effort shorter, everything that differs."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from farandole.labs.cifar10.effort import FULL, LADDER, QUICK, Effort, memory_bytes
from farandole.labs.cifar10.lab import LAB
from farandole.labs.cifar10.plan import ACCURACY, BASELINE, FEWER, NORM, ORDER, REPLICAS, SYNC, TIME
from farandole.labs.lab import Asked, DataFacts, Plan, Planned, Rate
from tests.labs.cifar10.build import DATA, ask

SHARED = DataFacts(source="a folder", train=10_000, test=2000, sample="32x32 RGB")
RATES = {
    "resnet18": Rate(samples_per_s=18.0, startup_s=4.0),
    "small": Rate(samples_per_s=1500.0, startup_s=4.0),
}


def plan(asked: Asked, *, effort: int = 0, data: DataFacts = DATA) -> Plan:
    return LAB.plan(asked, data, RATES if asked.size == "budget" else {}, effort)


def study(found: Plan, name: str) -> Planned:
    return next(study for study in found.studies if study.name == name)


def flag(words: tuple[str, ...], name: str) -> str:
    return words[words.index(name) + 1]


def ladder_asked(**changes: object) -> Asked:
    return ask(size="budget", budget_s=900.0, **changes)


@pytest.mark.parametrize("cores", [1, 2, 4, 64])
@pytest.mark.parametrize("data", [DATA, SHARED])
@pytest.mark.parametrize("workers", [(), (1,), (2, 4)])
def test_a_larger_effort_never_takes_less_time(
    cores: int, data: DataFacts, workers: tuple[int, ...]
) -> None:
    asked = ladder_asked(cores=cores, workers=workers)
    plans = [plan(asked, effort=effort, data=data) for effort in range(LAB.efforts)]
    for smaller, larger in itertools.pairwise(plans):
        assert smaller.estimate_s <= larger.estimate_s


def test_the_default_budget_has_room_for_intervals_at_eight_workers() -> None:
    asked = ladder_asked()
    fitting = [
        effort
        for effort in range(LAB.efforts)
        if plan(asked, effort=effort, data=SHARED).estimate_s < 770
    ]
    here = LADDER[fitting[-1]]
    assert here.workers[-1] == 8
    assert here.seeds >= 3
    assert here.repeats >= 2


def test_no_cell_is_run_twice() -> None:
    for asked in (ask(), ladder_asked(), ask(size="full")):
        cells = []
        for one in plan(asked, effort=LAB.efforts - 1).studies:
            varied = flag(one.flags, "-L").split("=")
            for count, value in itertools.product(
                flag(one.flags, "-np").split(","), varied[1].split(",")
            ):
                filled = [word.replace("{" + varied[0] + "}", value) for word in one.arguments]
                skipped = {"--test-samples", "--samples", "--epochs"}
                words = dict(zip(filled[::2], filled[1::2], strict=True))
                kept = {key: word for key, word in words.items() if key not in skipped}
                cells.append((count, *sorted(kept.items())))
        assert len(cells) == len(set(cells))


def test_quick_is_small() -> None:
    found = plan(ask())
    assert [one.name for one in found.studies] == [
        *(TIME, BASELINE, ACCURACY, NORM, REPLICAS, ORDER)
    ]
    assert flag(study(found, TIME).flags, "-np") == "1,2"
    assert flag(study(found, ACCURACY).flags, "-np") == "2"
    for one in found.studies:
        name = "--seeds" if "--seeds" in one.flags else "--repeats"
        assert flag(one.flags, name) == "1"
    assert found.estimate_s < 100


def test_full_is_the_labs_protocol() -> None:
    found = plan(ask(size="full", cores=4))
    time = study(found, TIME)
    assert flag(time.flags, "-L") == "batch=32,128,512,2048"
    assert flag(time.flags, "-np") == "1,2,4"
    assert flag(time.flags, "--epochs") == "1"
    assert flag(time.arguments, "--samples") == "0"
    accuracy = study(found, ACCURACY)
    assert flag(accuracy.arguments, "--model") == "resnet18"
    assert flag(accuracy.arguments, "--batch-size") == "512"
    assert flag(accuracy.arguments, "--samples") == "0"
    assert "--keep-busy" not in time.flags


def test_speed_is_measured_up_to_the_cores_and_accuracy_beyond() -> None:
    found = plan(ask(workers=(2, 4, 8)))
    assert flag(study(found, TIME).flags, "-np") == "1,2"
    assert flag(study(found, BASELINE).flags, "-np") == "1"
    assert flag(study(found, ACCURACY).flags, "-np") == "8"
    assert flag(study(found, FEWER).flags, "-np") == "2,4"
    assert flag(study(found, NORM).flags, "-np") == "2"
    assert flag(study(found, REPLICAS).flags, "-L") == "replicas=2"


def test_one_worker_alone_has_nothing_to_be_compared_with() -> None:
    found = plan(ask(workers=(1,)))
    assert [one.name for one in found.studies] == [TIME, BASELINE, ORDER]


def test_recipes_that_were_asked_for_and_the_baseline() -> None:
    found = plan(ask(recipes=("warmup", "linear")))
    assert flag(study(found, ACCURACY).flags, "-L") == "recipe=warmup,linear"
    assert flag(study(found, BASELINE).flags, "-L") == "recipe=fixed"
    # What else is varied there is varied at the first of them, whose other half is in ACCURACY.
    assert flag(study(found, NORM).arguments, "--recipe") == "warmup"


def test_batch_norm_is_synchronised_where_most_is_to_be_kept() -> None:
    found = plan(ladder_asked(), effort=LAB.efforts - 1)
    sync = study(found, SYNC)
    assert flag(sync.flags, "-np") == "8"
    assert flag(sync.arguments, "--recipe") == "warmup"
    # On 2 workers at the first recipe it is in the study of batch norm.
    found = plan(ladder_asked(workers=(1, 2), recipes=("linear",)), effort=LAB.efforts - 1)
    assert SYNC not in [one.name for one in found.studies]


def test_data_are_handed_on_and_subsets_fit_them() -> None:
    tiny = DataFacts(source="a folder", train=600, test=60, sample="32x32 RGB")
    for one in plan(ask(data=Path("some where")), data=tiny).studies:
        assert flag(one.arguments, "--data") == "some where"
        assert int(flag(one.arguments, "--samples")) <= tiny.train
        assert int(flag(one.arguments, "--test-samples")) <= tiny.test


@pytest.mark.parametrize("here", [QUICK, *LADDER, FULL])
@pytest.mark.parametrize("cores", [1, 8])
def test_the_limit_leaves_room_for_every_batch_but_the_last(here: Effort, cores: int) -> None:
    # As measured: see memory_bytes.
    need = {batch: 355e6 + 7.85e6 * batch for batch in (*here.batches, here.too_large)}
    limit = memory_bytes(ask(cores=cores), here)
    assert all(1.2 * need[batch] < limit for batch in here.batches)
    assert need[here.too_large] > 1.3 * limit


def test_choices_say_what_differs() -> None:
    choices = {choice.what: choice for choice in plan(ask()).choices}
    assert choices["training images, accuracy"].here == "512 of 50,000"
    assert choices["batch that does not fit"].lab.startswith("2,048")
    assert choices["network, accuracy"].lab == "ResNet-18"
    full = {choice.what for choice in plan(ask(size="full", cores=4)).choices}
    assert not full & {
        *("network, accuracy", "batches per worker, times", "batch per worker, accuracy"),
        *("steps of a launch for times", "workers, times", "training images, accuracy"),
    }


def test_pilots_measure_both_networks_on_one_worker() -> None:
    pilots = LAB.pilot(ladder_asked())
    assert [one.name for one in pilots] == ["resnet18", "small"]
    for one in pilots:
        assert flag(one.flags, "-np") == "1"
        assert flag(one.arguments, "--model") == one.name
