"""Plans of the faces lab: every size is a study that could be run, larger efforts take longer."""

from __future__ import annotations

import pytest

from farandole.labs.faces.effort import FULL, LADDER
from farandole.labs.faces.lab import LAB
from farandole.labs.faces.plan import BATCH, SCALING, SPLIT, WORKERS
from farandole.labs.lab import Planned, Rate
from farandole.study.ask import Asked, make_spec
from farandole.study.cells import make_cells
from farandole.study.spec import Room
from farandole.study.values import factors
from tests.labs.trained import asked, estimates, facts, flag, here

RATES = {
    "inceptionv3": Rate(samples_per_s=10.0, startup_s=12.0),
    "resnet50": Rate(samples_per_s=9.0, startup_s=10.0),
    "vgg16": Rate(samples_per_s=4.0, startup_s=9.0),
    "small": Rate(samples_per_s=300.0, startup_s=7.0),
}
DRAWN = facts(1800, 180)


def planned(**wanted: object) -> dict[str, Planned]:
    plan = LAB.plan(asked(**wanted), DRAWN, RATES, 0)  # type: ignore[arg-type]
    return {study.name: study for study in plan.studies}


def cells(study: Planned, cores: int) -> set[tuple[str, int, int | None, int | None]]:
    """Return what `farandole study` would run: network, workers, threads, batch."""
    given = dict(zip(study.flags[::1], study.flags[1:], strict=False))
    pairs = [study.flags[at + 1] for at, word in enumerate(study.flags) if word == "-L"]
    spec, _ = make_spec(
        Asked(
            command=["python", study.script, *study.arguments],
            workers=given.get("-np"),
            threads=given.get("--threads"),
            split=given.get("--split"),
            factors=factors(pairs),
            no_today=True,
        ),
        room=Room(cores=cores, physical=cores),
        folder=".",
        reads=lambda name: False,
    )
    made = make_cells(spec)
    return {(dict(c.params)["model"], c.workers, c.threads, c.batch) for c in made}


@pytest.mark.parametrize("wanted", [{}, {"workers": (1, 8)}, {"recipes": ("longer", "fixed")}])
def test_a_larger_effort_never_takes_less_time(wanted: dict[str, object]) -> None:
    found = estimates(LAB, DRAWN, RATES, **wanted)
    assert found == sorted(found)
    assert found[0] < 900 < found[-1]


def test_a_slower_machine_is_expected_to_take_longer() -> None:
    slow = {name: Rate(samples_per_s=1.0, startup_s=12.0) for name in RATES}
    pairs = zip(estimates(LAB, DRAWN, slow), estimates(LAB, DRAWN, RATES), strict=True)
    assert all(first > second for first, second in pairs)


def test_quick_is_about_four_minutes_of_one_and_two_workers() -> None:
    plan = LAB.plan(asked(), DRAWN, {}, 0)
    assert plan.estimate_s < 300
    flags = {study.name: study.flags for study in plan.studies}
    assert flag(flags[SCALING], "-np") == flag(flags[WORKERS], "-np") == "1,2"
    assert flag(flags[SCALING], "--repeats") == "1"
    assert SPLIT not in flags


def test_weak_and_strong_scaling_begin_with_the_same_cell_of_one_worker() -> None:
    found = cells(planned()[SCALING], 2)
    own = {cell[1:] for cell in found if cell[0] == "vgg16"}
    ((_, _, batch),) = (cell for cell in own if cell[0] == 1)
    assert batch is not None
    assert own == {(1, 1, batch), (2, 1, batch), (2, 1, batch // 2)}
    assert {cell[0] for cell in found} == {"inceptionv3", "resnet50", "vgg16"}


@pytest.mark.parametrize("cores", [2, 4, 8, 28])
def test_no_cell_is_run_twice_and_the_labs_splits_are_there(cores: int) -> None:
    wanted = planned(size="budget", cores=cores)
    every = [
        cell
        for name in (SCALING, BATCH, SPLIT)
        if name in wanted
        for cell in cells(wanted[name], cores)
    ]
    assert len(every) == len(set(every))
    shared = int(flag(wanted[SCALING].flags[4:], "-L").split("=")[-1])
    splits = {(w, t) for _, w, t, b in every if b is not None and w * b == shared and t}
    assert {(n, cores // n) for n in (1, 2, 4) if cores % n == 0} <= splits


def test_workers_that_do_not_divide_the_batch_get_one_that_they_do() -> None:
    own = {cell[1:] for cell in cells(planned(workers=(1, 3), cores=4)[SCALING], 4)}
    assert len({workers * batch for workers, _, batch in own if workers == 3 and batch}) == 2
    assert all(batch for _, _, batch in own)


def test_full_is_the_labs_protocol() -> None:
    plan = LAB.plan(asked("full", cores=8), facts(60_000, 10_000), {}, 0)
    study = {one.name: one for one in plan.studies}[SCALING]
    assert flag(study.arguments, "--image-size") == "224"
    assert flag(study.flags, "-np") == "1,2,4,8"
    assert {"batch=32", "global_batch=128"} <= set(study.flags)
    assert FULL.global_batch == 128
    assert "size of an image, speed" in {choice.what for choice in plan.choices}


def test_images_of_runs_for_speed_are_few_and_enough_for_all_workers() -> None:
    for effort in range(len(LADDER)):
        for cores in (2, 8):
            plan = LAB.plan(asked("budget", cores=cores), DRAWN, RATES, effort)
            study = {one.name: one for one in plan.studies}[SCALING]
            loop = int(flag(study.arguments, "--loop"))
            largest = max(w * b for _, w, _, b in cells(study, cores) if b is not None)
            assert largest <= loop <= DRAWN.train


def test_the_data_folder_reaches_every_script() -> None:
    wanted = asked("budget", data=here())
    commands = [*LAB.pilot(wanted), *LAB.plan(wanted, DRAWN, RATES, 3).studies]
    assert {flag(one.arguments, "--data") for one in commands} == {str(here())}
    assert all("--data" not in one.arguments for one in LAB.pilot(asked("budget")))


def test_pilots_measure_one_worker_with_one_thread_under_the_plans_names() -> None:
    pilots = LAB.pilot(asked("budget"))
    assert {one.name for one in pilots} == set(RATES)
    assert {(flag(p.flags, "-np"), flag(p.flags, "--threads")) for p in pilots} == {("1", "1")}


def test_larger_images_are_expected_to_take_longer() -> None:
    plans = [LAB.plan(asked("budget"), DRAWN, RATES, effort) for effort in range(len(LADDER))]
    pixels = [flag(plan.studies[0].arguments, "--image-size") for plan in plans]
    assert pixels == sorted(pixels, key=int)
    assert pixels[0] == "75"
