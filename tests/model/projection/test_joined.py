"""Steps and epochs joined, against formulas."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from farandole.errors import UsageError
from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.projection.asked import parse_price
from farandole.model.projection.contention import InputRate, of_factors
from farandole.model.projection.joined import Joint
from farandole.model.projection.outlook import Goal
from farandole.model.projection.records import EpochRow, Projected
from farandole.model.projection.rows import Basis, Beside, collect
from farandole.model.projection.settings import Setting
from farandole.model.projection.steps.by_link import Speeds
from farandole.study.records import Cell
from tests.model.build import make_study, table_launch
from tests.model.projection.known import Hyperbola, Ring

SAMPLES = 4000
BATCH = 10
TARGET = Goal(kind="target", words="to accuracy 0.9", metric="accuracy", value=0.9)
TEN = Goal(kind="epochs", words="for 10 epochs", epochs=10.0)


def step_s(workers: int) -> float:
    return Ring().at(workers, 1, BATCH).value


def basis(*, strong: bool = False) -> Basis:
    launches = []
    for workers in (1, 2, 4):
        batch = BATCH if not strong else 4 * BATCH // workers
        seconds = Ring().at(workers, 1, batch).value
        cell = Cell(workers=workers, batch=batch, device="gpu")
        launches.append(table_launch(cell, step_s=seconds, dataset_size=SAMPLES))
    study = make_study(launches, spec={"scaling": "strong"} if strong else {})
    info = analyse(study)
    return collect(study, info, measure(study)[0])


def joint(goal: Goal | None = TEN, *, strong: bool = False, **changes: object) -> Joint:
    given: dict[str, object] = {
        "basis": basis(strong=strong),
        "speeds": Speeds(lambda link: Ring()),
        "goal": goal,
        "epochs": Hyperbola() if goal is TARGET else None,
        "epoch_rows": [EpochRow(global_batch=10, epochs=11.0)] if goal is TARGET else [],
        "metric_at": lambda global_batch: None,
    }
    return Joint(**(given | changes))  # type: ignore[arg-type]


def test_time_is_steps_times_their_time() -> None:
    found = joint().at(Setting(workers=16, per_host=16))
    epoch = step_s(16) * SAMPLES / (16 * BATCH)
    assert found.epoch_s is not None
    assert found.epoch_s.value == pytest.approx(epoch)
    assert found.time_s is not None
    assert found.time_s.value == pytest.approx(10 * epoch)
    assert found.time_s.high == pytest.approx(11 * epoch)
    assert found.global_batch == 160
    assert found.throughput.value == pytest.approx(160 / step_s(16))
    assert found.speedup.value == pytest.approx(160 / step_s(16) / (10 / step_s(1)))
    assert found.speedup.low < found.speedup.value < found.speedup.high


def test_epochs_grow_with_the_global_batch() -> None:
    found = joint(TARGET).at(Setting(workers=16, per_host=16))
    assert found.epochs is not None
    assert found.epochs.value == pytest.approx(26.0)
    assert found.time_s is not None
    assert found.time_s.value == pytest.approx(26 * step_s(16) * SAMPLES / 160)
    # 10 % and 20 % are independent: less than 32 % together, more than 20 %.
    assert 1.2 < found.time_s.high / found.time_s.value < 1.32


def test_parts_add_up_and_name_the_limit() -> None:
    found = joint(TARGET).at(Setting(workers=16, per_host=16))
    assert sum(found.parts.values()) == pytest.approx(1.0)
    # Of 26 epochs 11 are those of the smallest batch; computing is 0.1 of 0.19375 s.
    assert found.parts["compute"] == pytest.approx(11 / 26 * 0.1 / step_s(16))
    assert found.parts["epochs"] == pytest.approx(15 / 26 * 0.1 / step_s(16))
    assert found.limited_by == "communication"
    fast = joint(TARGET, speeds=Speeds(lambda link: Ring(communication_s=0.001)))
    assert fast.at(Setting(workers=16, per_host=16)).limited_by == "epochs"
    plain = joint(TEN, speeds=Speeds(lambda link: Ring(communication_s=0.001)))
    assert plain.at(Setting(workers=16, per_host=16)).limited_by == "compute"


def test_no_step_is_shorter_than_loading_its_samples() -> None:
    # 100 samples/s of one worker, and half of that with 2 on a host: 10 samples take 0.2 s.
    rate = InputRate(alone_per_s=100.0, contention=of_factors({2: 2.0}))
    made = joint(input=rate)
    alone = made.at(Setting(workers=16, per_host=1))
    assert alone.step_s == joint().at(Setting(workers=16, per_host=1)).step_s
    assert alone.limited_by == "communication"
    shared = made.at(Setting(workers=16, per_host=2))
    assert shared.step_s is not None
    assert shared.step_s.value == pytest.approx(0.2)
    assert shared.step_s.low == pytest.approx(0.2)
    assert shared.step_s.high == pytest.approx(step_s(16) * 1.1)
    crowded = made.at(Setting(workers=16, per_host=4))
    assert crowded.step_s is not None
    assert crowded.step_s.value == pytest.approx(10 / 25)
    assert crowded.limited_by == "input"
    assert crowded.parts["input"] == pytest.approx(1 - step_s(16) / 0.4)
    assert sum(crowded.parts.values()) == pytest.approx(1.0)
    # Several passes load as many samples each.
    several = joint(input=rate, accumulate=3).at(Setting(workers=16, per_host=4))
    assert several.step_s is not None
    assert several.step_s.value == pytest.approx(3 * 0.4)
    # Epochs on top take as much longer as the first ones.
    target = joint(TARGET, input=rate).at(Setting(workers=16, per_host=4))
    assert sum(target.parts.values()) == pytest.approx(1.0)


def test_cost_is_time_times_whole_hosts() -> None:
    setting = Setting(workers=6, per_host=4, price=parse_price("3"), whole_hosts=True)
    found = joint().at(setting)
    assert found.cost is not None
    assert found.time_s is not None
    assert found.cost.value == pytest.approx(found.time_s.value * 8 * 3 / 3600)
    assert found.cost.high / found.cost.value == pytest.approx(1.1)


def test_fixed_times_are_not_shortened() -> None:
    beside = replace(basis(), beside={4: Beside(once_s=900.0, per_epoch_s=10.0)})
    slow = joint(basis=beside).at(Setting(workers=16, per_host=16))
    plain = joint().at(Setting(workers=16, per_host=16))
    assert slow.time_s is not None
    assert plain.time_s is not None
    assert slow.time_s.value == pytest.approx(plain.time_s.value + 900.0 + 10 * 10.0)
    assert slow.limited_by == "fixed_cost"
    assert sum(slow.parts.values()) == pytest.approx(1.0)


def test_time_between_epochs_is_as_uncertain_as_their_number() -> None:
    beside = replace(basis(), beside={4: Beside(once_s=0.0, per_epoch_s=1e6)})
    found = joint(TARGET, basis=beside).at(Setting(workers=16, per_host=16))
    assert found.time_s is not None
    assert found.time_s.high / found.time_s.value == pytest.approx(1.2, rel=1e-3)


def test_a_global_batch_that_stays_is_shared() -> None:
    found = joint(strong=True).at(Setting(workers=8, per_host=8))
    assert (found.batch, found.global_batch) == (5, 40)
    with pytest.raises(UsageError, match=r"A global batch of 40.*cannot be shared by 64 workers"):
        joint(strong=True).at(Setting(workers=64, per_host=64))
    other = joint(strong=True, batch=7).at(Setting(workers=64, per_host=64))
    assert other.global_batch == 7 * 64


def test_accumulation_makes_the_batch_larger() -> None:
    found = joint(accumulate=4).at(Setting(workers=8, per_host=8))
    assert found.global_batch == 8 * 4 * BATCH


def test_measured_counts_are_what_was_measured() -> None:
    made = joint(TARGET)
    point = made.basis.curve.points[0]
    found = made.measured(point, Setting(workers=1, per_host=4))
    assert found is not None
    assert found.measured
    assert found.step_s is not None
    assert found.step_s.value == pytest.approx(step_s(1))
    assert found.epochs is not None
    assert found.epochs.value == 11.0
    assert found.speedup.value == pytest.approx(1.0)


def test_measured_epochs_have_an_interval_over_runs() -> None:
    runs = [EpochRow(global_batch=10, epochs=epochs) for epochs in (10.0, 11.0, 12.1)]
    made = joint(TARGET, epoch_rows=runs)
    found = made.measured(made.basis.curve.points[0], Setting(workers=1, per_host=4))
    assert found is not None
    assert found.epochs is not None
    assert found.epochs.value == pytest.approx(11.0)
    # Logs are 0.0953 apart; t of 90 % with 2 degrees of freedom is 2.92.
    half = math.exp(2.92 * math.log(1.1) / math.sqrt(3))
    assert found.epochs.high / 11.0 == pytest.approx(half, rel=1e-3)
    assert 11.0 / found.epochs.low == pytest.approx(half, rel=1e-3)


@pytest.mark.parametrize("runs", [1, 2])
def test_runs_without_a_spread_have_the_interval_of_the_fit(runs: int) -> None:
    made = joint(TARGET, epoch_rows=[EpochRow(global_batch=10, epochs=11.0)] * runs)
    found = made.measured(made.basis.curve.points[0], Setting(workers=1, per_host=4))
    assert found is not None
    assert found.epochs is not None
    assert found.epochs.low == pytest.approx(11.0 / 1.2)
    assert found.epochs.high == pytest.approx(11.0 * 1.2)


def test_a_measured_row_has_one_confidence() -> None:
    cells = [Cell(workers=n, batch=BATCH, device="gpu") for n in (1, 2)]
    study = make_study(
        table_launch(cell, step_s=0.1 * factor, dataset_size=SAMPLES)
        for cell in cells
        for factor in (1 / 1.1, 1.0, 1.1)
    )
    stood = collect(study, analyse(study), measure(study)[0])
    made = joint(basis=stood)
    found = made.measured(stood.curve.points[0], Setting(workers=1, per_host=4))
    assert found is not None
    assert found.step_s is not None
    half = math.exp(2.92 * math.log(1.1) / math.sqrt(3))
    assert found.step_s.high / found.step_s.value == pytest.approx(half, rel=1e-3)


def test_without_a_goal_there_is_speed_alone() -> None:
    found = joint(None).at(Setting(workers=8, per_host=8, price=parse_price("1")))
    assert found.time_s is None
    assert found.cost is None
    assert found.throughput.value == pytest.approx(80 / step_s(8))


def test_the_metric_is_asked_for_by_global_batch() -> None:
    asked = []

    def metric(global_batch: int) -> Projected:
        asked.append(global_batch)
        return Projected(value=0.9, low=0.8, high=1.0, ratio=1.0)

    found = joint(metric_at=metric).at(Setting(workers=8, per_host=8))
    assert asked == [80]
    assert found.metric is not None
