"""The gradient noise scale: against data whose covariance and mean gradient are known."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.noise import (
    NoiseScale,
    NoiseSums,
    cell_noise,
    noise_scale,
    noise_sums,
)
from farandole.study.records import Cell, Floats, Launch, Noise
from tests.model.build import make_launch, make_rank, make_steps, make_study

DATASET = 200


def sums(trace: Floats, squared_norm: Floats, *, parts: int, samples: float) -> NoiseSums:
    """Return what is recorded when nothing scatters: expected values in place of draws."""
    return NoiseSums(
        parts=np.full(len(trace), float(parts)),
        samples=np.full(len(trace), samples),
        before=(samples * squared_norm + parts * trace)[:, None],
        after=(samples * squared_norm + trace)[:, None],
    )


def recorded(
    gradients: Floats,
    sizes: tuple[int, ...],
    steps: int,
    rng: np.random.Generator,
    *,
    replace: bool,
    plain: bool = False,
) -> NoiseSums:
    """Return the sums of steps whose parts have these sizes, drawn from one gradient per sample."""
    total = sum(sizes)
    weights = np.array([1 / len(sizes) if plain else size / total for size in sizes])
    if replace:
        drawn = rng.integers(len(gradients), size=(steps, total))
    else:
        drawn = rng.permuted(np.tile(np.arange(len(gradients)), (steps, 1)), axis=1)[:, :total]
    parts = np.split(drawn, np.cumsum(sizes)[:-1], axis=1)
    means = np.stack([gradients[part].mean(axis=1) for part in parts], axis=1)
    averages = np.einsum("p,spd->sd", weights, means)
    halves = np.array_split(np.arange(gradients.shape[1]), 2)
    squares = np.stack([(means[:, :, half] ** 2).sum(axis=2) for half in halves], axis=2)
    before = np.einsum("p,sph->sh", np.array(sizes, dtype=float), squares)
    after = total * np.stack([(averages[:, half] ** 2).sum(axis=1) for half in halves], axis=1)
    share = (weights**2 / np.array(sizes)).sum()
    return NoiseSums(
        parts=np.full(steps, float(len(sizes))),
        samples=np.full(steps, float(total)),
        before=before,
        after=after,
        shares=np.full(steps, share) if plain else None,
    )


@pytest.fixture(scope="module")
def gradients() -> Floats:
    rng = np.random.default_rng(5)
    return np.asarray(0.2 + rng.normal(0.0, 1.3, (DATASET, 20)), dtype=np.float64)


def truth(gradients: Floats) -> tuple[float, float]:
    """Return tr(Sigma) as of an endless supply of such samples, and |G|^2 of these."""
    return float(gradients.var(axis=0, ddof=1).sum()), float((gradients.mean(axis=0) ** 2).sum())


@pytest.mark.parametrize(
    ("sizes", "plain"),
    [((8, 8, 8, 8), False), ((4, 8, 12, 16), False), ((4, 8, 12, 16), True), ((8, 8), False)],
)
def test_both_parts_are_unbiased_when_each_sample_comes_once(
    gradients: Floats, sizes: tuple[int, ...], plain: bool
) -> None:
    trace, squared_norm = truth(gradients)
    rng = np.random.default_rng(1)
    run = recorded(gradients, sizes, 6000, rng, replace=False, plain=plain)
    found = noise_scale([run], dataset_size=DATASET)
    assert found.trace == pytest.approx(trace, rel=0.02)
    assert found.squared_norm == pytest.approx(squared_norm, rel=0.06)
    raw = noise_scale([run])
    # Without the correction it is low by tr(Sigma) / D.
    assert found.squared_norm - raw.squared_norm == pytest.approx(trace / DATASET, rel=0.02)
    assert found.measurements == 6000


def test_intervals_cover() -> None:
    """90 % intervals of runs of 60 measurements; 300 runs make a standard error of 1.7 points."""
    rng = np.random.default_rng(3)
    mean, spread, dimensions, size, parts = 0.15, 1.0, 20, 16, 4
    true = dimensions * spread**2 / (dimensions * mean**2)
    inside = 0
    for _ in range(300):
        drawn = rng.normal(mean, spread / np.sqrt(size), (60, parts, dimensions))
        run = NoiseSums(
            parts=np.full(60, float(parts)),
            samples=np.full(60, float(size * parts)),
            before=size * (drawn**2).sum(axis=(1, 2))[:, None],
            after=size * parts * (drawn.mean(axis=1) ** 2).sum(axis=1)[:, None],
        )
        found = noise_scale([run])
        inside += found.low <= true and (found.high is None or true <= found.high)
    assert 0.84 <= inside / 300 <= 0.96


def test_a_gradient_lost_in_noise_gives_a_lower_bound() -> None:
    rng = np.random.default_rng(6)
    drawn = rng.normal(0.0, 1.0 / 4, (80, 4, 20))
    run = NoiseSums(
        parts=np.full(80, 4.0),
        samples=np.full(80, 64.0),
        before=16 * (drawn**2).sum(axis=(1, 2))[:, None],
        after=64 * (drawn.mean(axis=1) ** 2).sum(axis=1)[:, None],
    )
    found = noise_scale([run])
    assert found.value is None
    assert found.high is None
    # 80 steps of 64 samples of 20 dimensions: a noise scale of the order of hundreds is excluded.
    assert found.low > 100


def test_a_noise_scale_that_grows_is_averaged_as_the_epochs_it_costs() -> None:
    batch = 128.0
    scales = np.repeat([100.0, 10_000.0], 100)
    found = noise_scale([sums(scales, np.ones(200), parts=2, samples=batch)])
    # E(B) / E(B0) = mean((B_t + B) / (B_t + B0)), at any B, here at 1,024.
    expected = np.mean((scales + 1024) / (scales + batch))
    assert (found.value + 1024) / (found.value + batch) == pytest.approx(expected, rel=1e-6)
    # Neither the mean nor the ratio of the means would do.
    assert found.value < 0.2 * scales.mean()


DIMENSIONS = 40


def rank_records(
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


def noise_of(launch: Launch) -> NoiseScale | None:
    (cell,), _ = measure(make_study([launch]))
    found = cell_noise(cell)
    return found.noise if found else None


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
    found = noise_of(launch_of(rank_records(per_sample, sizes, 400)))
    trace = per_sample.var(axis=0).sum()
    squared_norm = (per_sample.mean(axis=0) ** 2).sum()
    assert found.measurements == 400
    assert found.trace == pytest.approx(trace, rel=0.05)
    assert found.squared_norm == pytest.approx(squared_norm, rel=0.1)
    assert found.low < trace / squared_norm < found.high


def test_one_worker_that_sums_batches(per_sample: Floats) -> None:
    ranks = rank_records(per_sample, (8, 8, 8, 8), 400)
    alone = dataclasses.replace(
        ranks[0],
        parts=4,
        samples=np.full(400, 32.0),
        before=np.mean([rank.before for rank in ranks], axis=0),
        after=np.sum([rank.after for rank in ranks], axis=0),
    )
    found, workers = noise_of(launch_of([alone])), noise_of(launch_of(ranks))
    assert found.value == pytest.approx(workers.value)
    assert found.trace == pytest.approx(workers.trace)


def test_only_updates_that_all_have_sampled_count(per_sample: Floats) -> None:
    sums = noise_sums(launch_of(rank_records(per_sample, (8, 8), 60, skip=4)))
    assert len(sums.parts) == 15
    whole = noise_sums(launch_of(rank_records(per_sample, (8, 8), 60)))
    np.testing.assert_array_equal(sums.before, whole.before[3::4])
    np.testing.assert_array_equal(sums.after, whole.after[3::4])


def test_the_optimizer_that_moves_most_counts(per_sample: Floats) -> None:
    small, large = (
        rank_records(per_sample, (8, 8), 20),
        rank_records(per_sample, (8, 8), 15, seed=1),
    )
    large = [dataclasses.replace(one, optimizer=1, bucket_bytes=(4000, 4000)) for one in large]
    steps = make_steps(0.02, samples=8)
    ranks = [
        make_rank(number, steps, noise=pair)
        for number, pair in enumerate(zip(small, large, strict=True))
    ]
    sums = noise_sums(make_launch(Cell(workers=2, batch=8), ranks))
    assert len(sums.parts) == 15


def test_what_gives_nothing(per_sample: Floats) -> None:
    ranks = rank_records(per_sample, (8, 8), 20)
    alone = launch_of(ranks[:1])
    assert noise_of(alone) is None
    lost = launch_of(ranks)
    assert noise_of(dataclasses.replace(lost, ranks=lost.ranks[:1])) is None
    assert noise_of(launch_of(rank_records(per_sample, (8, 8), 5))) is None
    other = [ranks[0], dataclasses.replace(ranks[1], bucket_bytes=(400, 404))]
    assert noise_of(launch_of(other)) is None


def test_analyse_pools_the_launches_of_a_cell(per_sample: Floats) -> None:
    launches = [launch_of(rank_records(per_sample, (8, 8), 40, seed=seed)) for seed in (1, 2, 3)]
    info = analyse(make_study(launches))
    (row,) = info.each("noise")
    assert (row.cell.workers, row.launches, row.global_batch) == (2, 3, 16.0)
    assert row.noise.measurements == 120
    assert len(row.buckets) == 2


def test_workers_with_the_same_samples_have_no_noise_scale(per_sample: Floats) -> None:
    launch = launch_of(rank_records(per_sample, (8, 8), 40))
    seen = launch.ranks[0].sample_hashes
    same = [dataclasses.replace(rank, sample_hashes=seen) for rank in launch.ranks]
    info = analyse(make_study([dataclasses.replace(launch, ranks=tuple(same))]))
    assert info.voids
    assert info.each("noise") == []
