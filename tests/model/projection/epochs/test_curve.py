"""Epochs by global batch: against laws that are known, and where runs say little."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from farandole.errors import DataError
from farandole.model.noise import NoiseScale
from farandole.model.projection.epochs.curve import _quantiles, fit_epochs
from farandole.model.projection.records import EpochRow, Projected

NOISE = NoiseScale(
    value=1000.0, low=900.0, high=1100.0, trace=1000.0, squared_norm=1.0, measurements=500
)


def law(batch: float, least: float = 10.0, critical: float = 1000.0) -> float:
    return least * (1 + batch / critical)


def runs(
    batches: Sequence[int],
    *,
    repeats: int = 5,
    spread: float = 0.02,
    critical: float = 1000.0,
    seed: int = 0,
) -> list[EpochRow]:
    rng = np.random.default_rng(seed)
    return [
        EpochRow(
            global_batch=batch,
            epochs=float(law(batch, critical=critical) * math.exp(rng.normal(0, spread))),
        )
        for batch in batches
        for _ in range(repeats)
    ]


def width(found: Projected) -> float:
    return math.log(found.high / found.low)


def test_a_hyperbola_is_found_and_continued() -> None:
    fit = fit_epochs(runs((64, 128, 256, 512, 1024)))
    # At twice the batch some 7 % more than the law: where nobody has trained, recipes run out.
    assert fit.at(2048).value == pytest.approx(2**0.1 * law(2048), rel=0.06)
    assert fit.at(2048).low < law(2048) < fit.at(2048).high
    assert fit.at(2048).ratio == 2.0
    assert fit.at(256).value == pytest.approx(law(256), rel=0.02)
    assert fit.critical_batch is not None
    assert fit.critical_batch.low < 1000 < fit.critical_batch.high


def test_intervals_grow_with_the_distance_on_either_side() -> None:
    fit = fit_epochs(runs((256, 512, 1024)))
    widths = [width(fit.at(batch)) for batch in (1024, 2048, 4096, 8192)]
    assert widths == sorted(widths)
    assert width(fit.at(16)) > width(fit.at(64)) > width(fit.at(256))


def test_intervals_cover() -> None:
    """Workloads that wander around their hyperbola; 150 of them make a standard error of 3."""
    rng = np.random.default_rng(11)
    batches = (128, 256, 512, 1024)
    inside = 0
    for _ in range(150):
        critical = math.exp(rng.normal(math.log(2048), 0.8))
        walk = np.cumsum(rng.normal(0, 0.06 * math.sqrt(math.log(2)), 5))
        means = [
            law(batch, critical=critical) * math.exp(step + rng.normal(0, 0.03))
            for batch, step in zip((*batches, 2048), walk, strict=True)
        ]
        rows = [
            EpochRow(global_batch=batch, epochs=float(mean * math.exp(rng.normal(0, 0.03))))
            for batch, mean in zip(batches, means, strict=False)
            for _ in range(4)
        ]
        found = fit_epochs(rows).at(2048)
        inside += found.low <= means[-1] <= found.high
    assert 0.82 <= inside / 150 <= 0.99


def test_the_unit_of_batches_and_of_epochs_does_not_matter() -> None:
    rows = runs((64, 128, 256))
    fit = fit_epochs(rows).at(512)
    other = fit_epochs(
        [EpochRow(global_batch=row.global_batch * 50, epochs=row.epochs * 7) for row in rows]
    ).at(512 * 50)
    assert other.value == pytest.approx(7 * fit.value, rel=1e-6)
    assert other.high == pytest.approx(7 * fit.high, rel=1e-6)


def test_two_batches_are_enough_for_a_guess_and_three_are_better() -> None:
    two = fit_epochs(runs((256, 512))).at(2048)
    three = fit_epochs(runs((256, 512, 1024))).at(2048)
    assert two.low < law(2048) < two.high
    assert width(three) < width(two)


def test_with_one_batch_the_noise_scale_speaks_alone() -> None:
    rows = runs((128,))
    alone, told = fit_epochs(rows), fit_epochs(rows, noise=NOISE)
    assert alone.critical_batch is None
    assert any("not measured" in line for line in alone.assumptions)
    assert any("noise scale alone" in line for line in told.assumptions)
    assert told.critical_batch is not None
    # The median of c is 1, and log c has a standard deviation of 0.7: a factor of 3.2 at 90 %.
    assert told.critical_batch.value == pytest.approx(1000, rel=0.1)
    assert told.critical_batch.high / told.critical_batch.low == pytest.approx(
        math.exp(2 * 1.645 * 0.7), rel=0.2
    )
    assert width(told.at(1024)) < width(alone.at(1024))


def test_a_noise_scale_helps_where_batches_are_far_below_the_critical_one() -> None:
    rows = runs((8, 16), spread=0.01)
    alone, told = fit_epochs(rows).at(256), fit_epochs(rows, noise=NOISE).at(256)
    assert abs(math.log(told.value / law(256))) < abs(math.log(alone.value / law(256)))
    assert width(told) < width(alone)


def test_measured_epochs_count_more_than_a_noise_scale_that_is_wrong() -> None:
    wrong = replace(NOISE, value=20_000.0, low=18_000.0, high=22_000.0)
    rows = runs((128, 256, 512, 1024, 2048), spread=0.01)
    fit = fit_epochs(rows, noise=wrong)
    assert fit.at(4096).value == pytest.approx(law(4096), rel=0.15)


def test_a_noise_scale_that_is_hardly_known_counts_less() -> None:
    rows = runs((128,))
    vague = [replace(NOISE, low=low, high=8000.0) for low in (125.0, 0.0)]
    sure, *others = (fit_epochs(rows, noise=noise).at(1024) for noise in (NOISE, *vague))
    assert all(width(other) > 1.2 * width(sure) for other in others)


def test_a_lower_bound_of_the_noise_scale_excludes_small_critical_batches() -> None:
    bound = replace(NOISE, value=None, low=4000.0, high=None)
    rows = runs((128,))
    alone, told = fit_epochs(rows).at(1024), fit_epochs(rows, noise=bound).at(1024)
    assert told.value < alone.value
    none = fit_epochs(rows, noise=replace(NOISE, value=0.0, low=0.0, high=10.0))
    assert none.at(1024) == alone
    assert any("not used" in line for line in none.assumptions)


def test_runs_that_were_cut_short_are_lower_bounds() -> None:
    rows = runs((128, 256, 512))
    plain = fit_epochs(rows)
    early = [*rows, EpochRow(global_batch=1024, epochs=5.0, reached=False)]
    late = [*rows, EpochRow(global_batch=1024, epochs=40.0, reached=False)]
    # That 1,024 needs more than 5 epochs is no news: all need more.
    assert fit_epochs(early).at(1024).value == pytest.approx(plain.at(1024).value, rel=0.02)
    found = fit_epochs(late)
    assert found.at(1024).value > 1.3 * plain.at(1024).value
    assert found.at(2048).value > 1.3 * plain.at(2048).value
    assert any("1 run ended before" in line for line in found.assumptions)


def test_a_batch_with_some_runs_cut_short_needs_more_than_the_others_had() -> None:
    reached = [EpochRow(global_batch=256, epochs=epochs) for epochs in (18.0, 20.0)]
    cut = [EpochRow(global_batch=256, epochs=20.0, reached=False)] * 2
    rest = [EpochRow(global_batch=64, epochs=epochs) for epochs in (9.0, 10.0, 10.5, 11.0)]
    assert (
        fit_epochs([*rest, *reached, *cut]).at(256).value
        > 1.03 * fit_epochs([*rest, *reached]).at(256).value
    )


def test_whole_epochs_are_known_to_half_an_epoch_only() -> None:
    whole = [
        EpochRow(global_batch=batch, epochs=float(epochs))
        for batch, epochs in ((64, 4), (128, 4), (256, 5), (512, 6))
        for _ in range(10)
    ]
    fine = [replace(row, epochs=row.epochs + 0.003 * n) for n, row in enumerate(whole)]
    assert width(fit_epochs(whole).at(64)) > 1.05 * width(fit_epochs(fine).at(64))


def test_noise_that_drowns_the_trend_gives_a_wide_interval() -> None:
    quiet, loud = (runs((64, 96, 128), repeats=3, spread=spread) for spread in (0.01, 0.4))
    assert width(fit_epochs(loud).at(256)) > 2 * width(fit_epochs(quiet).at(256))


def test_far_beyond_the_measured_batches_there_are_bounds_only() -> None:
    fit = fit_epochs(runs((32, 64)))
    found = fit.at(64 * 17)
    assert found.indicative
    # Between the epochs of 64 and as many steps as 64 takes.
    assert found.low == fit.at(64).low
    assert found.high == pytest.approx(17 * fit.at(64).high)
    assert not fit.at(64 * 16).indicative


def test_more_epochs_are_never_projected_for_no_reason() -> None:
    flat = [EpochRow(global_batch=batch, epochs=10.0) for batch in (64, 128, 256, 512)]
    found = fit_epochs(flat).at(1024)
    assert found.low < 10.0 < found.value < 12.0


def test_single_runs_are_taken_to_spread_as_usual() -> None:
    fit = fit_epochs(runs((64, 128, 256), repeats=1))
    assert any("twice" in line for line in fit.assumptions)
    assert not any("twice" in line for line in fit_epochs(runs((64, 128))).assumptions)
    assert all("rate" in fit.assumptions[0] for fit in (fit, fit_epochs(runs((64,)))))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "No run has a target"),
        ([EpochRow(global_batch=64, epochs=0.0)], "above 0"),
        ([EpochRow(global_batch=0, epochs=3.0)], "above 0"),
        ([EpochRow(global_batch=64, epochs=math.nan)], "above 0"),
        ([EpochRow(global_batch=64, epochs=3.0, reached=False)], "None of 1 runs"),
    ],
)
def test_rows_that_say_nothing(rows: list[EpochRow], words: str) -> None:
    with pytest.raises(DataError, match=words):
        fit_epochs(rows)
    with pytest.raises(DataError, match="1 or more"):
        fit_epochs(runs((64, 128))).at(0)


@pytest.mark.parametrize("narrow", [1e-6, 1e-3, 0.5])
def test_quantiles_of_a_mixture_are_where_its_shares_are(narrow: float) -> None:
    rng = np.random.default_rng(3)
    # Steep places beside flat ones: where Newton's steps go astray.
    means = np.concatenate([rng.normal(0, 3, 40), rng.normal(50, 3, 10)])
    deviations = np.where(np.arange(50) % 2, narrow, 1.0)
    weights = rng.dirichlet(np.ones(50))
    parts = [NormalDist(m, d) for m, d in zip(means, deviations, strict=True)]
    found = [
        math.fsum(w * part.cdf(at) for w, part in zip(weights, parts, strict=True))
        for at in _quantiles(means, deviations, weights)
    ]
    assert found == pytest.approx([0.05, 0.5, 0.95], abs=1e-6)
