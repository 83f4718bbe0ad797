"""What accuracy runs would take: of whole scripts, of an epoch and the command, or per epoch."""

from __future__ import annotations

import pytest

from farandole.model.accuracy_time import epochs_in
from farandole.model.analyse import analyse
from farandole.study.records import Cell, Launch
from tests.model.build import make_launch, make_rank, make_steps, make_study

ONE, TWO = Cell(workers=1, batch=8, threads=1), Cell(workers=2, batch=8, threads=1)


@pytest.mark.parametrize(
    ("argv", "epochs"),
    [
        (["python", "train.py", "--epochs", "10"], 10),
        (["python", "train.py", "--num-epochs=4"], 4),
        (["python", "train.py", "--max_epochs", "7", "--lr", "1"], 7),
        (["python", "train.py", "trainer.max_epochs=3"], 3),
        (["python", "train.py", "--warmup-epochs", "5", "--epochs", "90"], 90),
        (["python", "train.py", "--epochs"], None),
        (["python", "train.py", "epochs", "3"], None),
        (["python", "epochs.py", "--epochs", "all"], None),
        ([], None),
    ],
)
def test_epochs_are_read_from_a_command(argv: list[str], epochs: int | None) -> None:
    assert epochs_in(argv) == epochs


def one_epoch(cell: Cell, *argv: str) -> Launch:
    """A launch that was ended after one epoch: 2 s of start-up, 38 s of it, 2 s of validation."""
    ranks = [
        make_rank(n, make_steps(1.0, 38, begin_s=100.0, samples=8.0), epochs=((100.0, 138.0),))
        for n in range(cell.workers)
    ]
    return make_launch(cell, ranks, purpose="epoch", wall_s=42.0, argv=argv)


def test_of_an_epoch_and_the_commands_number_of_them() -> None:
    launches = [one_epoch(cell, "python", "train.py", "--epochs", "10") for cell in (ONE, TWO)]
    # 2 cells x 3 seeds x (2 s + 10 x 40 s)
    said = analyse(make_study(launches)).answer.headline
    assert "accuracy not measured (--measure both, about 40 min)" in said


def test_of_an_epoch_where_the_command_does_not_say_how_many() -> None:
    launches = [one_epoch(cell, "python", "train.py") for cell in (ONE, TWO)]
    # 2 cells x 3 seeds x 40 s
    said = analyse(make_study(launches)).answer.headline
    assert "accuracy not measured (--measure both, about 4 min per epoch)" in said
    said = analyse(make_study(launches, spec={"seeds": 1})).answer.headline
    assert "accuracy not measured (--measure both, about 80 s per epoch)" in said
