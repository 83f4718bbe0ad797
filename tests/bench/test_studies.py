"""What the rows of studies compare is the same work, whatever is left out to be quick."""

from __future__ import annotations

from farandole.bench.rows import Settings
from farandole.bench.studies import cell_name, study


def test_both_sides_study_the_same_cells_and_only_the_ending_differs() -> None:
    for precision, batches in zip(study(Settings())[:-1], ((32, 128), (32,)), strict=True):
        precise, whole = (dict(contestant.options) for contestant in precision.contestants)
        assert whole.pop("flags") == ("--epochs", "1")
        assert precise == whole
        assert (precise["workers"], precise["batches"]) == ([1, 2], batches)


def test_quick_leaves_out_cells_and_keeps_the_epochs_whole() -> None:
    precision, _ = study(Settings(quick=True, models=("cnn",)))
    whole = study(Settings(models=("cnn",)))[0]
    for contestant, other in zip(precision.contestants, whole.contestants, strict=True):
        assert contestant.options["workers"] == [2]
        assert contestant.options["script_flags"] == other.options["script_flags"]
    assert precision.rows[0].ranked == ("2 workers, batch 32", "2 workers, batch 128")


def test_a_cell_is_the_same_by_study_and_by_run() -> None:
    *_, cell = study(Settings(num_ranks=3))
    by_study, by_run = cell.contestants
    assert by_study.options == by_run.options
    assert by_study.options["workers"] == [1, 3]


def test_one_worker_alone_can_be_asked_for() -> None:
    precision, *_ = study(Settings(num_ranks=1))
    assert precision.rows[0].ranked == ("1 worker, batch 32", "1 worker, batch 128")


def test_names_of_cells() -> None:
    assert cell_name(1, 32) == "1 worker, batch 32"
    assert cell_name(2, 128) == "2 workers, batch 128"
