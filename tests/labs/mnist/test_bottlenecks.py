"""Bottlenecks by worker: equal ones are said to be equal, unequal ones are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.labs.mnist.bottlenecks import answer_bottlenecks
from farandole.labs.mnist.lab import LAB
from farandole.study.records import Launch
from tests.labs.mnist.build import found, studies
from tests.labs.trained import found_of
from tests.model.build import make_utilisation


def test_a_row_per_rank() -> None:
    answered = answer_bottlenecks(found())
    rows = answered.tables[0].rows
    assert [(row[0], row[1]) for row in rows] == [
        *(("1 worker", 0), ("2 workers", 0), ("2 workers", 1)),
        *(("4 workers", rank) for rank in range(4)),
    ]
    assert rows[2][2] == pytest.approx(0.51)
    assert any(said.startswith("No worker has a fifth more") for said in answered.sentences)


def test_an_idle_worker_is_named() -> None:
    made = studies()
    launches = tuple(_idle(launch) for launch in made["workers"].launches)
    made["workers"] = replace(made["workers"], launches=launches)
    said = answer_bottlenecks(found_of(LAB, made)).sentences
    assert any("Unequal utilisation" in sentence and "rank 1" in sentence for sentence in said)
    assert not any(sentence.startswith("No worker has") for sentence in said)


def _idle(launch: Launch) -> Launch:
    used = make_utilisation([0.1] * 4)
    ranks = tuple(
        replace(rank, utilisation=used) if rank.rank == 1 else rank for rank in launch.ranks
    )
    return replace(launch, ranks=ranks)
