"""All gradients of a step by one call, on real ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from farandole.engine import context
from farandole.engine import gradients as module
from farandole.engine.bucket_step import BEGIN_EPOCH, END, END_EPOCH
from farandole.engine.gradients import Gradients
from farandole.errors import MismatchError, StepsDifferError, UsageError
from farandole.recorder import noise
from farandole.recorder.recorder import Recorder, Settings
from farandole.study.read import read_rank
from farandole.transport.reduction import AVERAGE, SUM, Array, Reduction
from tests.torch.checks import Check, Checks, Ranks, on, raises

pytestmark = pytest.mark.ranks
checks = Checks()
ranks = on((2, "shm"), (3, "shm"), (2, "gloo"))

SHAPES = [(3, 4), (), (5,), (1500, 1500)]


def gradients(names: list[str] | None = None, wire: str | None = None) -> Gradients:
    names = names or [f"v{i}" for i in range(len(SHAPES))]
    return Gradients(context.current().engine, names, AVERAGE, wire=wire)


def mine(step: int, dtype: str = "float32") -> list[Array | None]:
    return [np.full(shape, context.rank() + step + i, dtype) for i, shape in enumerate(SHAPES)]


def mean(step: int, index: int) -> float:
    return (context.size() - 1) / 2 + step + index


@checks.of(float32="float32", float64="float64", float16="float16")
def check_averages_step_after_step(dtype: str) -> None:
    reducer = gradients()
    for step in range(4):
        got = reducer.reduce(mine(step, dtype))
        for index, array in enumerate(got):
            assert array is not None
            assert array.dtype == dtype
            assert array.shape == SHAPES[index]
            assert np.unique(array).tolist() == [mean(step, index)]
    reducer.close()


@checks.of(fp16="float16", bf16="bfloat16")
def check_half_precision_on_the_way(wire: str) -> None:
    reducer = gradients(wire=wire)
    third = [np.full(shape, np.float32(1 / 3)) for shape in SHAPES]
    got = reducer.reduce(third)
    for array in got:
        assert array is not None
        assert array.dtype == np.float32
        assert np.allclose(array, 1 / 3, rtol=2e-2)
        assert not (array == np.float32(1 / 3)).any()
    reducer.close()


@checks
def check_nothing_is_squared_where_nothing_is_recorded() -> None:
    reducer = gradients()
    kept = noise.squared_norm
    noise.squared_norm = lambda *_: pytest.fail("nobody will read this")
    try:
        for step in range(2 * noise.PERIOD):
            reducer.reduce(mine(step))
    finally:
        noise.squared_norm = kept
        reducer.close()


@checks
def check_what_some_ranks_lack_counts_as_zero() -> None:
    reducer = gradients()
    for step in range(3):
        given = mine(step)
        given[2] = None
        if context.rank() > 0:
            given[0] = None
        got = reducer.reduce(given)
        assert got[2] is None
        assert got[0] is not None
        assert np.allclose(got[0], step / context.size())
    # What nobody had in the first step has no place later.
    reducer.close()


@checks
def check_models_that_differ() -> None:
    reducer = gradients(["a", "b" if context.rank() else "c"])
    with raises(MismatchError, "different models", "rank 1"):
        reducer.reduce([np.zeros(2), np.zeros(2)])
    reducer = gradients(["a"])
    with raises(MismatchError, "'a'", "rank 1"):
        reducer.reduce([np.zeros(2 + (context.rank() > 0))])


@checks.of(
    op=({"how": SUM}, "op: rank 0: "),
    scale=({"how": Reduction(op="average", postscale=2.0)}, "op: rank 0: "),
    precision=({"wire": "bfloat16"}, "compression: rank 0: float16; rank"),
)
def check_optimizers_that_differ(case: tuple[dict[str, Any], str]) -> None:
    options: dict[str, Any] = {"how": AVERAGE, "wire": "float16"}
    others, words = case
    if context.rank() > 0:
        options |= others
    reducer = Gradients(context.current().engine, ["a"], **options)
    with raises(MismatchError, "DistributedOptimizer's", words):
        reducer.reduce([np.zeros(2, np.float32)])


@checks
def check_a_shape_that_changes() -> None:
    reducer = gradients(["a"])
    reducer.reduce([np.zeros(2)])
    with raises(UsageError, "'a'", "float64[2]", "float64[3]"):
        reducer.reduce([np.zeros(3)])
    reducer.close()


@checks
def check_marks_before_and_between_steps() -> None:
    reducer = gradients()
    reducer.mark(BEGIN_EPOCH, 0)
    for step in range(3):
        reducer.reduce(mine(step))
    reducer.mark(END_EPOCH, 3)
    reducer.mark(BEGIN_EPOCH, 1)
    got = reducer.reduce(mine(7))
    assert got[1] is not None
    assert float(got[1]) == mean(7, 1)
    reducer.close()


@checks
def check_a_step_meets_the_end_of_an_epoch() -> None:
    reducer = gradients()
    reducer.reduce(mine(0))
    with raises(StepsDifferError, "rank 0: at the end of the epoch, after 1 steps", "in another"):
        if context.rank() == 0:
            reducer.mark(END_EPOCH, 1)
        else:
            reducer.reduce(mine(1))
    # All know it, and may go on.
    got = reducer.reduce(mine(2))
    assert got[1] is not None
    assert float(got[1]) == mean(2, 1)
    reducer.close()


@checks
def check_the_first_step_meets_an_end() -> None:
    reducer = gradients()
    with raises(StepsDifferError, "rank 0: done, after 0 epochs"):
        if context.rank() == 0:
            reducer.mark(END, 0)
        else:
            reducer.reduce(mine(1))


@contextmanager
def recorded() -> Iterator[tuple[Recorder, Path]]:
    """Give this rank a recorder of its own."""
    before = module.current
    with TemporaryDirectory() as folder:
        recorder = Recorder(
            Settings(folder=folder), rank=context.rank(), size=context.size(), host="here"
        )
        module.current = lambda: recorder  # type: ignore[attr-defined]
        try:
            yield recorder, Path(folder) / f"rank-{recorder.rank}.jsonl"
        finally:
            module.current = before  # type: ignore[attr-defined]
            recorder.close()


@checks.of(
    average=(AVERAGE, None),
    sum=(SUM, None),
    predivided=(Reduction(op="average", prescale=0.5, postscale=2.0), None),
    fp16=(AVERAGE, "float16"),
)
def check_norms_of_own_and_mean_gradients(case: tuple[Reduction, str | None]) -> None:
    how, wire = case
    rank, size = context.rank(), context.size()
    names = [f"v{i}" for i in range(len(SHAPES))]
    reducer = Gradients(context.current().engine, names, how, wire=wire)
    # One in 2048 is lost in float16, which must not show before the reduction.
    lost = 1 + 2.0**-12
    with recorded() as (recorder, path):
        for step in range(1, 11):
            given = [None if g is None else np.asarray(g * np.float32(lost)) for g in mine(step)]
            # One of each rank's is missing, and counts as zero.
            given[0] = given[0] if rank else None
            reducer.reduce(given)
        recorder.flush()
        found = read_rank(path)
    reducer.close()
    assert found is not None
    (noise,) = found.noise
    assert noise.update.tolist() == [10]
    counts = [int(np.prod(shape)) for shape in SHAPES]
    values = [[r + 10 + i if r or i else 0 for i in range(len(SHAPES))] for r in range(size)]
    own = sum(n * (lost * v) ** 2 for n, v in zip(counts, values[rank], strict=True))
    said = context.current().engine.exchange(json.dumps(noise.after.sum()).encode())
    # Float32 sums of equal numbers round the same way again and again.
    assert np.isclose(noise.before.sum(), own, rtol=5e-5)
    means = np.mean(values, axis=0)
    whole = sum(n * (lost * v) ** 2 for n, v in zip(counts, means, strict=True))
    assert np.isclose(sum(map(json.loads, said)), whole, rtol=5e-5 if wire is None else 2e-3)


@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)
