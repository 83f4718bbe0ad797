"""Averaging: gradients in every step, and the same weights everywhere."""

from __future__ import annotations

from dataclasses import replace

from farandole.labs.averaging import answer_averaging, exchange
from farandole.labs.driving import AVERAGING, LAB
from tests.labs.driving_studies import found, studies
from tests.labs.trained import found_of


def test_bytes_per_step_and_one_fingerprint() -> None:
    answered = answer_averaging(found(), AVERAGING.asked)
    rows = {row[:2]: row for row in answered.tables[0].rows}
    # 8 steps in each of 3 epochs; ranks made by hand send 4,000 bytes in each.
    assert rows["linear", 4][3:] == (24, 4000, 4000, 1)
    assert answered.sentences[0].startswith("Gradients are averaged in every step")
    assert "4 of 4 settings" in answered.sentences[1]


def test_workers_that_did_not_train_together_are_found() -> None:
    made = studies(seeds=1)
    launches = []
    for launch in made["workers"].launches:
        ranks = tuple(
            replace(rank, weights=f"of rank {rank.rank}", bytes_sent={}) for rank in launch.ranks
        )
        launches.append(replace(launch, ranks=ranks))
    made["workers"] = replace(made["workers"], launches=tuple(launches))
    assert not exchange(launches[-1]).together
    answered = answer_averaging(found_of(LAB, made), AVERAGING.asked)
    assert answered.sentences[0].startswith("Not all workers trained together")
    assert "2 of 4 settings" in answered.sentences[1]
