"""What 16 workers would do, projected, beside the author's guess."""

from __future__ import annotations

from farandole.labs.caltech.kind import KIND as CALTECH
from farandole.labs.fruits.kind import KIND as FRUITS
from farandole.labs.transfer.sixteen import answer_sixteen
from tests.labs.transfer.build import found, nothing


def test_every_device_of_the_lab_and_this_machine_are_projected() -> None:
    answered = answer_sixteen(found("caltech"), CALTECH)
    projected = {row[0] for row in answered.tables[0].rows if row[2] == "projected"}
    assert projected == {"here, CPU", "the lab, T4", "the lab, V100"}
    for row in answered.tables[0].rows:
        if row[2] == "projected":
            assert row[1] == 16
            assert row[4].low <= row[4].value <= row[4].high


def test_the_authors_guess_stands_beside_it_and_is_judged() -> None:
    answered = answer_sixteen(found("caltech"), CALTECH)
    (guess,) = (row for row in answered.tables[0].rows if row[2] == "guessed")
    assert guess[:2] == ("the author's guess, V100", 16)
    # 22 s an epoch, 30 epochs, 11:30.
    assert guess[4:7] == (22.0, 30.0, 690.0)
    assert any(
        "By the lab's own V100 rows the guessed epoch lies within" in sentence
        for sentence in answered.sentences
    )


def test_the_published_table_is_enough() -> None:
    answered = answer_sixteen(nothing("caltech"), CALTECH)
    assert any(row[2] == "projected" for row in answered.tables[0].rows)
    assert answered.sentences[0].startswith("From here, CPU nothing can be projected")


def test_fruits_has_no_guess() -> None:
    answered = answer_sixteen(found(), FRUITS)
    assert answered.sentences[-1].startswith("The author of this lab made no guess")
    assert {row[2] for row in answered.tables[0].rows} == {"measured", "projected"}
    # Its jobs end after ten epochs: that is no finding.
    assert {row[5] for row in answered.tables[0].rows if row[0] == "the lab, T4"} == {None}
