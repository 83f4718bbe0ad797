"""What 16 workers would do, projected, beside the author's guess."""

from __future__ import annotations

import pytest

from farandole.labs.lab import Answered
from tests.labs.transfer.build import answered


def sixteen(name: str, seeds: int = 2) -> Answered:
    return answered(name, seeds)[-1]


def test_every_device_of_the_lab_and_this_machine_are_projected() -> None:
    rows = sixteen("caltech").tables[0].rows
    projected = [row for row in rows if row[2] == "projected"]
    assert {row[0] for row in projected} == {"here, CPU", "the lab, T4", "the lab, V100"}
    for row in projected:
        assert row[1] == 16
        assert row[4].low <= row[4].value <= row[4].high


def test_the_authors_guess_stands_beside_it_and_is_judged() -> None:
    found = sixteen("caltech")
    (guess,) = (row for row in found.tables[0].rows if row[2] == "guessed")
    assert guess[:2] == ("the author's guess, V100", 16)
    # 22 s an epoch, 30 epochs, 11:30.
    assert [cell.value for cell in guess[4:7]] == [22.0, 30.0, 690.0]
    said = "Beside what the lab's own V100 rows project, the guess lies: the epoch within"
    assert found.sentences[-1].startswith(said)


def test_a_job_has_the_fixed_cost_of_the_most_workers_measured() -> None:
    rows = {row[:3]: row for row in sixteen("caltech", seeds=0).tables[0].rows}
    # 23:07 less 30 x 44 s are 67 s.
    job = rows["the lab, V100", 16, "projected"]
    assert job[6].value == pytest.approx(30 * job[4].value + 67)
    assert job[6].low == pytest.approx(30 * job[4].low + 67)


def test_what_the_lab_measured_stands_there_as_it_was_published() -> None:
    rows = {row[:3]: row for row in sixteen("caltech", seeds=0).tables[0].rows}
    # 1:38:30, although 30 x 209 s are more.
    two = rows["the lab, T4", 2, "measured"]
    assert (two[6].value, two[7].value) == (5910.0, 0.6888)
    assert rows["the lab, V100", 8, "measured"][7].value == 0.6719


def test_the_published_table_is_enough() -> None:
    found = sixteen("caltech", seeds=0)
    assert any(row[2] == "projected" for row in found.tables[0].rows)
    assert found.sentences[0].startswith("From the lab, T4: 16 workers")
    assert any("From here, CPU nothing can be projected" in said for said in found.sentences)


def test_fruits_has_no_guess_and_jobs_that_end_after_ten_epochs() -> None:
    found = sixteen("fruits")
    assert found.sentences[-1].startswith("The author of this lab made no guess")
    rows = found.tables[0].rows
    assert {row[2] for row in rows} == {"measured", "projected"}
    # Epochs that everybody was given are no finding.
    assert {row[5] for row in rows if row[0] == "the lab, T4"} == {None}
