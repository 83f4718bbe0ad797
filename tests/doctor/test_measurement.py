"""FD4xx on recorded facts: the figures are made by hand."""

from __future__ import annotations

from typing import Any

from tests.doctor.facts import job, line, look, rank

HERE = "train.py:30"


def evaluation(
    samples: int = 100, *, of: int | None = 200, part: int = 0, **fields: Any
) -> dict[str, Any]:
    hashes = [f"{part}-{sample}" for sample in range(samples)]
    told = {"number": 0, "step": 5, "where": HERE, "sizes": [samples], "whole": True} | fields
    return line("evaluation", samples=samples, dataset_size=of, hashes=hashes, **told)


def printed(*texts: str) -> dict[str, Any]:
    numbers = [["accuracy", text] for text in texts]
    return line("printed", step=5, where=HERE, number=0, numbers=numbers)


def ids(launch: Any, *, number: str) -> list[tuple[str, str]]:
    return [(one.id, one.severity) for one in look(number, launch).findings]


def both(number: str, ours: list[Any], theirs: list[Any]) -> list[tuple[str, str]]:
    return ids(job(rank(0, *ours), rank(1, *theirs)), number=number)


def test_a_part_that_is_printed_alone() -> None:
    ours, theirs = evaluation(), evaluation(part=1)
    assert both("FD401", [ours, printed("0.62")], [theirs]) == [("FD401", "warning")]
    averaged = evaluation(exchanged=["allreduce"])
    assert both("FD401", [averaged, printed("0.62")], [theirs]) == []
    assert both("FD401", [ours], [theirs]) == []
    same = look("FD401", job(rank(0, evaluation(), printed("0.62")), rank(1, evaluation())))
    assert (
        "no evaluation was seen in which ranks had different samples" in same.not_checked["FD401"]
    )


def test_counts_over_another_number_of_samples() -> None:
    ours, theirs = evaluation(items={"a:1": [60.0]}), evaluation(part=1, items={"a:1": [70.0]})
    for text in ("0.3000", "30.00"):  # 60 of 200
        assert both("FD402", [ours, printed(text)], [theirs]) == [("FD402", "error")]
    assert both("FD402", [ours, printed("0.3250")], [theirs]) == [
        ("FD402", "error")
    ]  # mean of both
    assert both("FD402", [ours, printed("1.3000")], [theirs]) == [("FD402", "error")]  # 130 of 100
    assert both("FD402", [ours, printed("0.6000")], [theirs]) == []
    assert both("FD402", [ours, printed("0.6500")], [theirs]) == []
    # A sum over the ranks belongs over all samples.
    total = {"a:1": [130.0]}
    ours = evaluation(items=total, exchanged=["allreduce"])
    theirs = evaluation(part=1, items=total, exchanged=["allreduce"])
    assert both("FD402", [ours, printed("0.6500")], [theirs]) == []
    assert both("FD402", [ours, printed("1.3000")], [theirs]) == [("FD402", "error")]


def test_padding_counts_samples_twice() -> None:
    assert both("FD403", [evaluation(of=199)], [evaluation(of=199, part=1)]) == [("FD403", "note")]
    assert both("FD403", [evaluation(of=190)], [evaluation(of=190, part=1)]) == [
        ("FD403", "warning")
    ]
    assert both("FD403", [evaluation()], [evaluation(part=1)]) == []
    trimmed = [evaluation(of=190, trimmed=True)], [evaluation(of=190, part=1, trimmed=True)]
    assert both("FD403", *trimmed) == []
    # A data set that was cut beforehand is as large as the part.
    assert both("FD403", [evaluation(of=100)], [evaluation(of=100, part=1)]) == []


def test_a_mean_of_unequal_batches() -> None:
    ours = evaluation(101, sizes=[50, 50, 1], items={"a:1": [1.0, 1.0, 4.0]})
    alone = evaluation(101, sizes=[50, 50, 1], items={"a:1": [1.0, 1.0, 4.0]})
    assert both("FD404", [ours, printed("2.000")], [alone]) == [("FD404", "warning")]
    assert both("FD404", [ours, printed("1.030")], [alone]) == []
    total = evaluation(149, sizes=[50, 50, 49], items={"a:1": [3.3]})
    assert both("FD404", [total, printed("1.100")], [alone]) == [("FD404", "note")]


def test_a_mean_of_unequal_parts() -> None:
    ours, theirs = (
        evaluation(90, items={"a:1": [90.0]}),
        evaluation(10, part=1, items={"a:1": [5.0]}),
    )
    assert both("FD404", [ours, printed("0.7500")], [theirs]) == [("FD404", "warning")]
    assert both("FD404", [ours, printed("0.9500")], [theirs]) == []


def test_ranks_that_compare_different_figures() -> None:
    def compared(value: float) -> dict[str, Any]:
        return line("compared", step=5, where=HERE, value=value)

    ours, theirs = [evaluation(), compared(0.5)], [evaluation(part=1), compared(0.6)]
    assert both("FD405", ours, theirs) == [("FD405", "warning")]
    assert both("FD405", ours, [evaluation(part=1), compared(0.5)]) == []
    stopped = job(rank(0, *ours, steps=5), rank(1, *theirs, steps=9))
    assert ids(stopped, number="FD405") == [("FD405", "error")]


def test_who_evaluates_what() -> None:
    assert both("FD406", [evaluation()], [evaluation()]) == [("FD406", "note")]
    assert both("FD406", [evaluation()], [evaluation(part=1)]) == []
    assert both("FD412", [evaluation()], []) == [("FD412", "note")]
    assert both("FD412", [evaluation()], [evaluation()]) == []
    assert both("FD413", [evaluation(90)], [evaluation(90, part=1)]) == [("FD413", "warning")]
    assert both("FD413", [evaluation(200)], [evaluation(200)]) == []


def test_modes() -> None:
    wrong = evaluation(training=["1 (Dropout)"])
    assert both("FD407", [wrong], [wrong]) == [("FD407", "warning")]
    assert both("FD407", [evaluation()], [evaluation()]) == []
    end = line("end", trained_in_evaluation_mode=3)
    assert both("FD408", [end], [end]) == [("FD408", "warning")]
    end = line("end", trained_in_evaluation_mode=0)
    assert both("FD408", [end], [end]) == []


def test_a_speed_that_begins_before_the_first_step() -> None:
    def rate(begin: float, end: float) -> dict[str, Any]:
        return line("shown", step=9, where=HERE, value=50.0, origin=["rate", begin, end, 500.0])

    # Steps end at 1, 2, ... 10 s.
    assert both("FD409", [rate(-9.0, 10.0)], []) == [("FD409", "warning")]
    assert both("FD409", [rate(-4.0, 10.0)], []) == [("FD409", "note")]
    assert both("FD409", [rate(0.0, 10.0)], []) == []
    assert both("FD409", [rate(2.5, 10.0)], []) == []


def test_a_loss_that_was_not_averaged() -> None:
    def item(value: float, *, exchanged: bool = False) -> dict[str, Any]:
        return line("item", step=3, where="a:1", value=value, exchanged=exchanged)

    shown = line("shown", step=3, where=HERE, value=0.5, origin=["train", "a:1"])
    assert both("FD411", [item(0.5), shown], [item(0.6)]) == [("FD411", "note")]
    assert both("FD411", [item(0.5), shown], [item(0.5)]) == []
    assert both("FD411", [item(0.5), shown], []) == [("FD411", "note")]
    assert both("FD411", [item(0.5, exchanged=True), shown], []) == []


def test_metrics_of_keras_differ_between_ranks() -> None:
    def told(value: float, name: str = "val_loss") -> list[Any]:
        keras = line("setup", framework="farandole.keras")
        decides = line("decides", name="EarlyStopping", monitor="val_loss")
        return [keras, decides, line("metric", name=name, value=value, epoch=0.0, t=1.0)]

    assert both("FD401", told(0.5), told(0.6)) == [("FD401", "warning")]
    assert both("FD401", told(0.5), told(0.5)) == []
    assert both("FD405", told(0.5), told(0.6)) == [("FD405", "error")]
    assert both("FD405", told(0.5), told(0.5)) == []
    assert both("FD411", told(0.5, "loss"), told(0.6, "loss")) == [("FD411", "note")]
