"""Which epoch's order is given out."""

from __future__ import annotations

from farandole.keras.split import Epochs


def told(epochs: Epochs, *numbers: int) -> list[int]:
    """The epochs that a fit with these numbers gets."""
    got = []
    for number in numbers:
        epochs.tell(number)
        got.append(epochs.current)
        epochs.finish()
    return got


def test_a_loop_of_its_own_counts_whole_passes() -> None:
    epochs = Epochs(3)
    assert epochs.current == 3
    epochs.finish()
    assert epochs.current == 4


def test_fit_says_where_it_resumes() -> None:
    assert told(Epochs(), 5, 6, 7) == [5, 6, 7]


def test_an_initial_epoch_said_twice_counts_once() -> None:
    assert told(Epochs(5), 5, 6) == [5, 6]


def test_an_initial_epoch_that_fit_does_not_know() -> None:
    assert told(Epochs(5), 0, 1, 2) == [5, 6, 7]


def test_fit_in_a_loop_never_repeats_an_order() -> None:
    epochs = Epochs()
    assert [told(epochs, 0), told(epochs, 0), told(epochs, 0, 1)] == [[0], [1], [2, 3]]


def test_fit_that_goes_on_by_itself() -> None:
    epochs = Epochs()
    assert [told(epochs, 0, 1), told(epochs, 2, 3)] == [[0, 1], [2, 3]]


def test_a_look_at_the_data_before_fit_does_not_count() -> None:
    epochs = Epochs()
    epochs.finish()
    assert told(epochs, 0, 1) == [0, 1]


def test_an_evaluation_between_epochs_does_not_count() -> None:
    epochs = Epochs()
    epochs.tell(0)
    epochs.finish()
    epochs.finish()
    assert told(epochs, 1) == [1]


def test_an_epoch_that_was_cut_short_is_taken_again() -> None:
    epochs = Epochs()
    told(epochs, 0)
    epochs.tell(1)
    epochs.tell(1)
    assert epochs.current == 1


def test_a_loop_after_fit_goes_on() -> None:
    epochs = Epochs()
    told(epochs, 0, 1)
    assert epochs.current == 2
