"""The shares of an epoch, over all lengths, sizes and seeds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.errors import UsageError
from farandole.keras.split import Split, indices, order, plan, remark

SEEDS = st.integers(0, 2**40)
EPOCHS = st.integers(0, 1000)


@st.composite
def splits(draw: st.DrawFn, *remainders: str) -> Split:
    size = draw(st.integers(1, 9))
    return plan(
        draw(st.integers(size, 400)),
        size=size,
        batch=draw(st.integers(1, 40)),
        remainder=draw(st.sampled_from(remainders or ("drop", "pad", "keep"))),
    )


def shares(split: Split, seed: int | None, epoch: int) -> list[list[int]]:
    return [indices(split, rank, seed=seed, epoch=epoch).tolist() for rank in range(split.size)]


@given(splits(), SEEDS | st.none(), EPOCHS)
def test_every_item_goes_to_one_rank_but_for_what_is_said(
    split: Split, seed: int | None, epoch: int
) -> None:
    counts = Counter(item for share in shares(split, seed, epoch) for item in share)
    assert set(counts) <= set(range(split.length))
    assert split.length - len(counts) == split.dropped
    assert sum(counts.values()) - len(counts) == split.padded
    assert max(split.dropped, split.padded) < split.size
    assert split.dropped == 0 or split.remainder == "drop"
    assert split.padded == 0 or split.remainder == "pad"


@given(splits("drop", "pad"), SEEDS, EPOCHS)
def test_ranks_have_equal_shares_and_steps(split: Split, seed: int, epoch: int) -> None:
    assert len({len(share) for share in shares(split, seed, epoch)}) == 1
    assert len({split.steps(rank) for rank in range(split.size)}) == 1


@given(splits("keep"))
def test_kept_shares_differ_by_one_at_most(split: Split) -> None:
    lengths = [split.share(rank) for rank in range(split.size)]
    assert sum(lengths) == split.length
    assert max(lengths) - min(lengths) <= 1


@given(splits(), SEEDS, EPOCHS)
def test_sizes_are_what_is_dealt_out(split: Split, seed: int, epoch: int) -> None:
    for rank, share in enumerate(shares(split, seed, epoch)):
        assert len(share) == split.share(rank)
        assert len(range(0, len(share), split.batch)) == split.steps(rank)


@given(splits("drop", "keep"), SEEDS, EPOCHS)
def test_a_step_of_all_ranks_is_one_large_batch(split: Split, seed: int, epoch: int) -> None:
    whole = order(split.length, seed=seed, epoch=epoch)[: split.used].tolist()
    dealt = shares(split, seed, epoch)
    large = split.batch * split.size
    for step in range(split.steps(0)):
        part = slice(step * split.batch, (step + 1) * split.batch)
        together = sorted(item for share in dealt for item in share[part])
        assert together == sorted(whole[step * large : (step + 1) * large])


@given(st.integers(30, 400), SEEDS, EPOCHS, EPOCHS)
def test_epochs_differ_and_repeat_themselves(
    length: int, seed: int, epoch: int, other: int
) -> None:
    first = order(length, seed=seed, epoch=epoch)
    assert sorted(first.tolist()) == list(range(length))
    assert np.array_equal(first, order(length, seed=seed, epoch=epoch))
    if epoch != other:
        assert not np.array_equal(first, order(length, seed=seed, epoch=other))
        assert not np.array_equal(first, order(length, seed=seed + other + 1, epoch=epoch))


def test_seed_and_epoch_are_not_added_up() -> None:
    assert not np.array_equal(order(50, seed=0, epoch=1), order(50, seed=1, epoch=0))


def test_without_a_seed_order_is_the_data_own() -> None:
    split = plan(7, size=2, batch=2, remainder="keep")
    assert shares(split, None, 3) == [[0, 2, 4, 6], [1, 3, 5]]


def test_padding_repeats_the_first_of_the_order() -> None:
    split = plan(5, size=3, remainder="pad")
    assert shares(split, None, 0) == [[0, 3], [1, 4], [2, 0]]


def test_drop_last_leaves_whole_batches_only() -> None:
    split = plan(23, size=2, batch=4, drop_last=True)
    assert [split.share(rank) for rank in (0, 1)] == [8, 8]
    assert (split.dropped, split.steps(0)) == (7, 2)


def test_a_limit_of_steps_is_kept_by_all() -> None:
    split = plan(100, size=3, batch=4, limit=5)
    assert [split.steps(rank) for rank in range(3)] == [5, 5, 5]
    assert split.dropped == 100 - 5 * 4 * 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"length": 3, "size": 4}, ["3 samples", "4 workers", "at most 3"]),
        ({"length": 0, "size": 2}, ["0 samples", "2 workers"]),
        ({"length": 10, "size": 2, "batch": 8, "drop_last": True}, ["drop_last", "batch of 8"]),
        ({"length": 10, "size": 2, "batch": 2, "limit": 4}, ["4 steps", "steps=3"]),
    ],
)
def test_what_cannot_be_shared(arguments: dict[str, int], words: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        plan(**arguments)  # type: ignore[arg-type]
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(
    ("remainder", "text"),
    [
        (
            "drop",
            "1003 samples over 4 workers: 250 each, 8 steps per epoch in batches of 32; "
            "3 left out in each epoch.",
        ),
        (
            "pad",
            "1003 samples over 4 workers: 251 each, 8 steps per epoch in batches of 32; "
            "1 given out twice in each epoch.",
        ),
        (
            "keep",
            "1003 samples over 4 workers: 250 or 251 each, 8 steps per epoch in batches of 32.",
        ),
    ],
)
def test_it_says_what_it_did(remainder: str, text: str) -> None:
    assert remark(plan(1003, size=4, batch=32, remainder=remainder), "samples") == text
