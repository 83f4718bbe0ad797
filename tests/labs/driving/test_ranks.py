"""Losses by rank, and the tagged output of a launch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from farandole.labs.driving.lab import LAB
from farandole.labs.driving.ranks import answer_ranks, tagged_lines
from tests.labs.driving.build import found, studies
from tests.labs.trained import found_of

OUTPUT = """\
[0]<stderr>: a warning
[0]<stdout>: rank 0, epoch 1: loss 0.5
[1]<stdout>: rank 1, epoch 1: loss 0.6
no tag, loss 1
"""


def test_every_rank_and_epoch_of_the_launch_with_most_workers() -> None:
    answered = answer_ranks(found())
    rows = answered.tables[0].rows
    assert [(row[0], row[1], row[2]) for row in rows] == [
        (4, epoch, rank) for epoch in (1, 2, 3) for rank in range(4)
    ]
    assert rows[-1][3] == pytest.approx(1 / 3 + 0.03)
    assert "between 0.3333 and 0.3633" in answered.sentences[0]


def test_lines_of_several_ranks_are_chosen() -> None:
    assert tagged_lines(OUTPUT) == (
        "[0]<stdout>: rank 0, epoch 1: loss 0.5",
        "[1]<stdout>: rank 1, epoch 1: loss 0.6",
    )
    assert tagged_lines(OUTPUT, most=1) == ("[1]<stdout>: rank 1, epoch 1: loss 0.6",)
    assert tagged_lines("[0]<stdout>: hello\n") == ("[0]<stdout>: hello",)


def test_the_output_of_that_launch_is_shown(tmp_path: Path) -> None:
    made = studies()
    last = max(made["workers"].launches, key=lambda launch: launch.cell.workers)
    for launch in made["workers"].launches:
        folder = tmp_path / "launches" / launch.id
        folder.mkdir(parents=True)
        folder.joinpath("output.txt").write_text(OUTPUT if launch is last else "[0]: other\n")
    made["workers"] = replace(made["workers"], path=str(tmp_path))
    answered = answer_ranks(found_of(LAB, made))
    assert [row[0] for row in answered.tables[1].rows] == list(tagged_lines(OUTPUT))
