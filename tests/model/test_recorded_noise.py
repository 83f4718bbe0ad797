"""The noise scale of launches: ranks that are joined, and what is found from known gradients."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from farandole.model.analyse import analyse
from farandole.model.recorded_noise import noise_of, noise_sums
from farandole.study.records import Cell, Floats, Launch, Noise
from tests.model.build import make_launch, make_rank, make_steps, make_study

DIMENSIONS = 40


def recorded(
    per_sample: Floats, sizes: tuple[int, ...], updates: int, *, seed: int = 0, skip: int = 1
) -> list[Noise]:
    """Return what ranks record whose batches, of these sizes, are drawn from known gradients.

    Args:
        per_sample: one gradient for each sample.
        sizes: of each rank's batch.
        updates: how many are sampled.
        seed: of the draws.
        skip: the last rank samples only every so many of them.
    """
    rng = np.random.default_rng(seed)
    before, after = np.zeros((len(sizes), updates, 2)), np.zeros((len(sizes), updates, 2))
    buckets = np.array_split(np.arange(DIMENSIONS), 2)
    for update in range(updates):
        drawn = rng.choice(len(per_sample), sum(sizes))
        parts = np.split(per_sample[drawn], np.cumsum(sizes)[:-1])
        means = np.stack([part.mean(axis=0) for part in parts])
        for place, bucket in enumerate(buckets):
            before[:, update, place] = (means[:, bucket] ** 2).sum(axis=1)
            whole = (means[:, bucket].mean(axis=0) ** 2).sum()
            after[:, update, place] = whole / len(sizes)
    every = np.arange(1, updates + 1)
    found = []
    for rank, size in enumerate(sizes):
        kept = every[skip - 1 :: skip] - 1 if rank == len(sizes) - 1 else every - 1
        found.append(
            Noise(
                optimizer=0,
                bucket_bytes=(400, 400),
                update=10 * (kept + 1),
                step=10 * kept + 9,
                samples=np.full(len(kept), float(size)),
                before=before[rank, kept],
                after=after[rank, kept],
            )
        )
    return found


def launch_of(ranks: list[Noise], **changes: Any) -> Launch:
    steps = make_steps(0.02, samples=8)
    cell = Cell(workers=len(ranks), threads=1, batch=8)
    made = [make_rank(number, steps, noise=(one,)) for number, one in enumerate(ranks)]
    return make_launch(cell, made, **changes)


@pytest.fixture(scope="module")
def per_sample() -> Floats:
    rng = np.random.default_rng(3)
    return np.asarray(0.15 + rng.normal(0.0, 0.8, (5000, DIMENSIONS)), dtype=np.float64)


@pytest.mark.parametrize("sizes", [(8, 8), (4, 12), (4, 8, 12)])
def test_known_gradients(per_sample: Floats, sizes: tuple[int, ...]) -> None:
    found = noise_of(launch_of(recorded(per_sample, sizes, 400)))
    assert found is not None
    trace = per_sample.var(axis=0).sum()
    squared_norm = (per_sample.mean(axis=0) ** 2).sum()
    assert found.measurements == 400
    assert found.trace == pytest.approx(trace, rel=0.05)
    assert found.squared_norm == pytest.approx(squared_norm, rel=0.1)
    assert found.high is not None
    assert found.low < trace / squared_norm < found.high


def test_one_worker_that_sums_batches(per_sample: Floats) -> None:
    ranks = recorded(per_sample, (8, 8, 8, 8), 400)
    alone = dataclasses.replace(
        ranks[0],
        parts=4,
        samples=np.full(400, 32.0),
        before=np.mean([rank.before for rank in ranks], axis=0),
        after=np.sum([rank.after for rank in ranks], axis=0),
    )
    found, workers = noise_of(launch_of([alone])), noise_of(launch_of(ranks))
    assert found is not None
    assert workers is not None
    assert found.value == pytest.approx(workers.value)
    assert found.trace == pytest.approx(workers.trace)


def test_only_updates_that_all_have_sampled_count(per_sample: Floats) -> None:
    sums = noise_sums(launch_of(recorded(per_sample, (8, 8), 60, skip=4)))
    assert sums is not None
    assert len(sums.parts) == 15
    whole = noise_sums(launch_of(recorded(per_sample, (8, 8), 60)))
    assert whole is not None
    np.testing.assert_array_equal(sums.before, whole.before[3::4])
    np.testing.assert_array_equal(sums.after, whole.after[3::4])


def test_samples_that_nobody_saw_are_those_that_were_asked_for(per_sample: Floats) -> None:
    ranks = recorded(per_sample, (8, 8), 20)
    unknown = [dataclasses.replace(one, samples=np.full(20, np.nan)) for one in ranks]
    sums, known = noise_sums(launch_of(unknown)), noise_sums(launch_of(ranks))
    assert sums is not None
    assert known is not None
    np.testing.assert_array_equal(sums.before, known.before)
    launch = launch_of(unknown)
    assert noise_sums(dataclasses.replace(launch, cell=Cell(workers=2))) is None


def test_the_optimizer_that_moves_most_counts(per_sample: Floats) -> None:
    small, large = recorded(per_sample, (8, 8), 20), recorded(per_sample, (8, 8), 15, seed=1)
    large = [dataclasses.replace(one, optimizer=1, bucket_bytes=(4000, 4000)) for one in large]
    steps = make_steps(0.02, samples=8)
    ranks = [
        make_rank(number, steps, noise=pair)
        for number, pair in enumerate(zip(small, large, strict=True))
    ]
    sums = noise_sums(make_launch(Cell(workers=2, batch=8), ranks))
    assert sums is not None
    assert len(sums.parts) == 15


def test_what_gives_nothing(per_sample: Floats) -> None:
    ranks = recorded(per_sample, (8, 8), 20)
    alone = launch_of(ranks[:1])
    assert noise_of(alone) is None
    lost = launch_of(ranks)
    assert noise_of(dataclasses.replace(lost, ranks=lost.ranks[:1])) is None
    assert noise_of(launch_of(recorded(per_sample, (8, 8), 5))) is None
    other = [ranks[0], dataclasses.replace(ranks[1], bucket_bytes=(400, 404))]
    assert noise_of(launch_of(other)) is None


def test_analyse_pools_the_launches_of_a_cell(per_sample: Floats) -> None:
    launches = [launch_of(recorded(per_sample, (8, 8), 40, seed=seed)) for seed in (1, 2, 3)]
    info = analyse(make_study(launches))
    (row,) = info.noise
    assert (row.cell.workers, row.launches, row.global_batch) == (2, 3, 16.0)
    assert row.noise.measurements == 120
    assert len(row.buckets) == 2


def test_workers_with_the_same_samples_have_no_noise_scale(per_sample: Floats) -> None:
    launch = launch_of(recorded(per_sample, (8, 8), 40))
    seen = launch.ranks[0].sample_hashes
    same = [dataclasses.replace(rank, sample_hashes=seen) for rank in launch.ranks]
    info = analyse(make_study([dataclasses.replace(launch, ranks=tuple(same))]))
    assert info.voids
    assert info.noise == ()
