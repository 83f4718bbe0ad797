"""Accuracy of the small network."""

from __future__ import annotations

from farandole.labs.faces.accuracy import answer_accuracy
from tests.labs.faces.build import accuracy, found, nothing, rows


def test_accuracy_by_workers_with_the_difference() -> None:
    own = rows(answer_accuracy(found()).tables[0])
    assert [row["workers"] for row in own] == [1, 2]
    drop = accuracy(2, "linear", 0) - accuracy(1, "linear", 0)
    assert abs(own[1]["difference"].value - drop) < 1e-9


def test_it_is_reported_as_what_it_is() -> None:
    for answered in (answer_accuracy(found()), answer_accuracy(nothing())):
        said = " ".join(answered.sentences)
        assert "small network" in said
        assert "Guessing gives 0.1111" in said
