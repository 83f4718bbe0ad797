"""Where a projection's halves come from."""

from __future__ import annotations

from farandole.model.projection.records import Projected
from farandole.model.projection.sources import Remembered
from tests.model.projection.known import Hyperbola


def test_epochs_of_a_batch_are_found_once() -> None:
    asked = []

    class Counted(Hyperbola):
        def at(self, global_batch: int) -> Projected:
            asked.append(global_batch)
            return super().at(global_batch)

    fit = Remembered(Counted())
    assert fit.at(50) == fit.at(50) == Hyperbola().at(50)
    assert fit.at(100) == Hyperbola().at(100)
    assert asked == [50, 100]
    assert fit.critical_batch == Hyperbola.critical_batch
    assert fit.assumptions == Hyperbola.assumptions
