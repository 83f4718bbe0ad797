"""How workers of a host slow each other down, measured and beyond."""

from __future__ import annotations

import pytest

from farandole.model.projection.contention import Contention, input_rate, of_apart, of_factors
from farandole.model.projection.records import StepRow
from farandole.study.records import Apart, Cell


def apart(workers: int, alone: float | None, together: float | None) -> Apart:
    return Apart(
        cell=Cell(workers=workers), loaded_alone_per_s=alone, loaded_together_per_s=together
    )


def row(workers: int, step_s: float, hosts: int = 1) -> StepRow:
    return StepRow(workers=workers, hosts=hosts, batch=10, step_s=step_s)


def test_lines_between_what_was_measured_and_as_much_per_worker_beyond() -> None:
    found = of_factors({2: 1.2, 4: 1.6})
    assert [found.at(n) for n in (1, 2, 3, 4)] == pytest.approx([1.0, 1.2, 1.4, 1.6])
    assert found.at(8) == pytest.approx(1.6 + 4 * 0.2)
    assert Contention().at(64) == 1.0


def test_workers_do_not_speed_each_other_up() -> None:
    assert of_factors({2: 0.9}).at(2) == 1.0


def test_what_one_and_all_took() -> None:
    several = [
        Apart(cell=Cell(workers=2), computing_alone_s=1.0, computing_together_s=1.5),
        Apart(cell=Cell(workers=4), computing_alone_s=1.0),
    ]
    found = of_apart(several, lambda a: a.computing_alone_s, lambda a: a.computing_together_s)
    assert found == Contention(measured=((1, 1.0), (2, 1.5)))
    assert of_apart(several, lambda a: a.update_alone_s, lambda a: a.update_together_s) is None


def test_loaders_of_many_workers_give_what_one_disk_has() -> None:
    found = input_rate([apart(2, 100.0, 80.0), apart(4, 100.0, 50.0)])
    assert found is not None
    assert [found.at(n) for n in (1, 2, 4)] == pytest.approx([100.0, 80.0, 50.0])
    # Each worker more costs about a third of a loader's time: all together they reach a limit.
    assert 64 * found.at(64) == pytest.approx(100.0 / (1 / 3), rel=0.1)
    assert input_rate([apart(2, 100.0, None)]) is None
    assert input_rate([]) is None


def test_training_is_proof_of_what_loaders_can_do() -> None:
    rows = [row(1, 0.05), row(2, 0.08), row(2, 0.1), row(2, 0.01, hosts=2)]
    found = input_rate([apart(2, 100.0, 80.0)], rows)
    assert found is not None
    # 10 samples in 0.05 s, and 10 in 0.08 s.
    assert [found.at(n) for n in (1, 2)] == pytest.approx([200.0, 125.0])
