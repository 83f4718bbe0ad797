from __future__ import annotations

from typing import Any

from farandole.recorder.steps import COLUMNS, OpenStep, take_settled


def ended(step: OpenStep, end_s: float = 0.0) -> dict[str, Any]:
    return dict(zip(COLUMNS, step.figures(step.end(end_s)), strict=True))


def test_what_nobody_tells_is_not_measured() -> None:
    row = ended(OpenStep(alone=False), 5.0)
    assert row.pop("end_s") == 5.0
    assert set(row.values()) == {None}


def test_one_worker_communicates_nothing_and_that_is_known() -> None:
    row = ended(OpenStep(alone=True))
    assert (row["communication_s"], row["exposed_s"]) == (0.0, 0.0)
    assert row["ready_s"] is None


def test_everything_adds_up() -> None:
    step = OpenStep(alone=False)
    step.data_waited(0.5, 32)
    step.data_waited(0.25, 16)
    step.optimizer(0.125)
    step.optimizer(0.125)
    step.moved.append((2.0, 3.0, 1.0, 0.5))
    step.moved.append((2.5, 2.75, 2.5, 0.25))
    row = ended(step, 4.0)
    assert row == {
        "end_s": 4.0,
        "data_s": 0.75,
        "optimizer_s": 0.25,
        "communication_s": 2.0,
        "exposed_s": 0.75,
        "ready_s": 2.5,
        "done_s": 3.0,
        "passes": 2,
        "samples": 48,
    }
    # The next step had none of it, which is something else than not measured.
    row = ended(step, 5.0)
    assert (row["data_s"], row["samples"], row["optimizer_s"]) == (0.0, 0.0, 0.0)
    assert (row["communication_s"], row["exposed_s"], row["ready_s"]) == (0.0, 0.0, None)


def several(step: OpenStep, ends_s: list[float], samples: list[float | None]) -> list[Any]:
    rows = step.end_several(ends_s, samples)
    return [dict(zip(COLUMNS, step.figures(row), strict=True)) for row in rows]


def test_steps_that_ran_in_one_piece_have_their_own_gradients() -> None:
    step = OpenStep(alone=False)
    step.optimizer(0.5)
    step.moved.append((1.0, 2.0, 0.5, 1.25))
    step.moved.append((3.0, 3.5, 3.0, 0.5))
    first, second = several(step, [2.5, 4.0], [8, None])
    assert (first["end_s"], first["ready_s"], first["done_s"]) == (2.5, 1.0, 2.0)
    assert (first["communication_s"], first["exposed_s"]) == (1.5, 1.25)
    assert (second["end_s"], second["ready_s"], second["done_s"]) == (4.0, 3.0, 3.5)
    assert (second["communication_s"], second["exposed_s"]) == (0.5, 0.5)
    assert (first["samples"], second["samples"]) == (8.0, None)
    assert (first["optimizer_s"], second["optimizer_s"]) == (0.25, 0.25)
    assert first["data_s"] is None
    # The next step begins with nothing.
    assert ended(step)["communication_s"] == 0.0


def test_gradients_that_cannot_be_told_apart_are_shared_out() -> None:
    step = OpenStep(alone=False)
    for began_s in (0.0, 1.0, 2.0):
        step.moved.append((9.0, began_s + 0.5, began_s, 0.25))
    rows = several(step, [2.0, 4.0], [None, None])
    for row in rows:
        assert (row["communication_s"], row["exposed_s"]) == (0.75, 0.375)
        assert (row["ready_s"], row["done_s"]) == (None, None)


def test_the_script_knows_the_samples_of_several_steps_better() -> None:
    step = OpenStep(alone=True)
    step.said_samples = 10
    assert [row["samples"] for row in several(step, [1.0, 2.0], [8, 8])] == [5.0, 5.0]


def test_samples_without_a_wait() -> None:
    step = OpenStep(alone=True)
    step.samples = 7
    row = ended(step)
    assert (row["samples"], row["data_s"]) == (7.0, None)


def test_the_script_knows_its_samples_better() -> None:
    step = OpenStep(alone=True)
    step.data_waited(0.5, 32)
    step.said_samples = 7
    assert ended(step)["samples"] == 7
    step.data_waited(0.5, 32)
    assert ended(step)["samples"] == 32


def test_rows_wait_for_their_device() -> None:
    known: list[float | None] = [None, 0.5]
    rows: list[list[Any]] = [[1.0, 2.0], [lambda: known[0], lambda: known[1]], [3.0, 4.0]]
    assert take_settled(rows, 3, final=False) == [[1.0, 2.0]]
    assert take_settled(rows, 2, final=False) == []
    known[0] = 2.0
    assert take_settled(rows, 2, final=False) == [[2.0, 0.5], [3.0, 4.0]]
    rows = [[5.0, lambda: None], [lambda: None, 1.0]]
    assert take_settled(rows, 2, final=True) == [[5.0, None]]
    assert rows == []
