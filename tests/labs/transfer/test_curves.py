"""Accuracy by epoch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.labs.fruits.kind import KIND
from farandole.labs.transfer.curves import answer_accuracy, courses
from tests.labs.transfer.build import EPOCHS, GAP, course, end, found, recorded


def test_epochs_are_counted_from_one_and_both_accuracies_stand_beside_each_other() -> None:
    epochs = courses(found(seeds=1))[2]
    assert [epoch.number for epoch in epochs] == list(range(1, EPOCHS + 1))
    values = course(2, end(2, "linear", 0))
    assert [epoch.validation.value for epoch in epochs if epoch.validation] == pytest.approx(values)
    assert epochs[-1].training is not None
    assert epochs[-1].training.value == pytest.approx(values[-1] + GAP)


def test_the_answer_tells_first_and_last_epoch_and_what_the_base_began_with() -> None:
    said = answer_accuracy(found(seeds=1), KIND).sentences
    assert said[0] == (
        "1 worker: validation goes from 0.3000 after the first epoch to 0.9000 after 14 "
        "(training 0.9800)."
    )
    assert "The base network is fine-tuned and began with weights pretrained on ImageNet." in said
    assert said[-1] == (
        "The lab's validation ends at 0.9563 on 2 T4 and 0.9219 on 4 T4. Of 1 T4 it says only that "
        "it ends about 0.02 above the next."
    )


@pytest.mark.parametrize(
    ("weights", "pretrained", "begins"),
    [
        ("pretrained", 1.0, "weights pretrained on ImageNet."),
        ("/somewhere/mine.pth", 1.0, "the weights of mine.pth."),
        ("none", 0.0, "random weights, as asked for (--weights none): transfer"),
        (None, 0.0, "random weights, because no pretrained ones are installed (the extra"),
    ],
)
def test_the_weights_that_were_asked_for_are_said(
    weights: str | None, pretrained: float, begins: str
) -> None:
    made = found(seeds=1)
    made = replace(
        made,
        asked=replace(made.asked, weights=weights),
        records={"workers": recorded(made.records["workers"], "pretrained", pretrained)},
    )
    said = answer_accuracy(made, KIND).sentences
    whole = f"The base network is fine-tuned and began with {begins}"
    assert any(one.startswith(whole) for one in said)
