"""Goals, epochs to them by global batch, and the metric after some epochs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from farandole.errors import DataError, UsageError
from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.metrics import Series
from farandole.model.noise import NoiseScale
from farandole.model.projection.epochs import (
    EpochCurve,
    EpochRow,
    Goal,
    Schedule,
    choose_goal,
    epoch_rows,
    fit_epochs,
    grain_of,
    metric_after,
    schedule_of,
    stable_sentence,
)
from farandole.model.projection.intervals import Prediction
from farandole.study.records import Cell, Launch, Study
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    table_launch,
    trained_launch,
)


def chosen(study: Study, target: tuple[str, float] | None = None) -> Goal | None:
    return choose_goal(measure(study)[0], analyse(study), target)


def rising(workers: int, pace: float, epochs: int = 12) -> list[Launch]:
    """Return two seeds whose accuracy is 1 - pace^epoch."""
    cell = Cell(workers=workers, batch=8)
    values = [1 - pace**epoch for epoch in range(1, epochs + 1)]
    return [trained_launch(cell, seed, values) for seed in (0, 1)]


def test_epochs_to_a_target() -> None:
    study = make_study([*rising(1, 0.5), *rising(2, 0.7)])
    goal = chosen(study, ("val_accuracy", 0.9))
    assert goal is not None
    assert goal.words == "to val_accuracy 0.9"
    rows = epoch_rows(measure(study)[0], goal)
    # 0.5^4 < 0.1 < 0.5^3; 0.7^7 < 0.1 < 0.7^6.
    assert {(row.global_batch, row.epochs, row.reached) for row in rows} == {
        (8, 4.0, True),
        (16, 7.0, True),
    }


def test_a_target_that_nobody_reached() -> None:
    study = make_study(rising(1, 0.9))
    goal = chosen(study, ("val_accuracy", 0.99))
    assert goal is not None
    best = 1 - 0.9**12
    with pytest.raises(UsageError, match=rf"the best is {best:g} \(1 worker, epoch 12\)"):
        epoch_rows(measure(study)[0], goal)


def test_a_target_without_a_metric() -> None:
    with pytest.raises(UsageError, match=r"recorded val_accuracy\. Choose one of these"):
        chosen(make_study(rising(1, 0.5)), ("f1", 0.9))
    bare = make_study([table_launch(Cell(workers=1, batch=8), step_s=0.1)])
    with pytest.raises(UsageError, match=r"this study recorded no metric at all.*--measure both"):
        chosen(bare, ("accuracy", 0.9))


def test_stable_epochs_of_a_table() -> None:
    study = make_study(
        table_launch(
            Cell(workers=n, batch=32), {"val_accuracy": 0.7, "stable_epoch": epoch}, epoch_s=80.0
        )
        for n, epoch in ((4, 20.0), (8, 25.0))
    )
    goal = chosen(study)
    assert goal is not None
    assert (goal.kind, goal.words) == ("stable", "to a stable val_accuracy")
    rows = epoch_rows(measure(study)[0], goal)
    assert {(row.global_batch, row.epochs) for row in rows} == {(128, 20.0), (256, 25.0)}
    assert "are those in the table" in stable_sentence(measure(study)[0], goal)


def test_stable_is_one_level_for_all_batches() -> None:
    # Both rise by halves and are flat in the end: the small batch at 0.9, the large one at 0.6.
    small, large = ([end * (1 - 0.5**e) for e in range(1, 21)] for end in (0.9, 0.6))
    study = make_study(
        trained_launch(Cell(workers=n, batch=8), seed, values)
        for n, values in ((1, small), (2, large))
        for seed in (0, 1)
    )
    goal = chosen(study)
    assert goal is not None
    assert goal.kind == "stable"
    assert goal.value == pytest.approx(0.9, abs=1e-3)
    rows = epoch_rows(measure(study)[0], goal)
    assert {(row.global_batch, row.reached) for row in rows} == {(8, True), (16, False)}
    assert all(row.epochs == 20.0 for row in rows if not row.reached)
    said = stable_sentence(measure(study)[0], goal)
    assert said.startswith(f"Stable means val_accuracy {goal.value:.4g} at every batch")
    assert "smallest global batch, 8," in said


def test_without_a_metric_the_epochs_of_the_job_are_the_goal() -> None:
    cell = Cell(workers=1, batch=8)
    study = make_study([table_launch(cell, job_s=100.0, epochs=40)])
    goal = chosen(study)
    assert goal is not None
    assert (goal.kind, goal.epochs, goal.words) == ("epochs", 40.0, "for 40 epochs")
    assert epoch_rows(measure(study)[0], goal) == []
    once = chosen(make_study([table_launch(cell, epoch_s=100.0)]))
    assert once is not None
    assert once.kind == "epoch"
    assert chosen(make_study([table_launch(cell, throughput=100.0)])) is None


@pytest.mark.parametrize(
    ("values", "grain"),
    [
        ((33.0, 34.0, 37.0), 1.0),
        ((4.0,), 1.0),
        ((4.0, 6.0), 1.0),
        ((0.65, 0.7, 0.75, 0.9), 0.05),
        ((4.2, 4.7), 0.0),
        ((1.03, 1.171, 1.4), 0.0),
        ((2_232_832.0, 2_552_704.5, 2_935_296.25), 0.0),
    ],
)
def test_the_grain_of_epochs(values: tuple[float, ...], grain: float) -> None:
    assert grain_of(values) == pytest.approx(grain)


def test_cut_runs_move_a_mean_as_much_as_they_tell() -> None:
    """Of 4,000 runs all that would take more than 24 epochs were ended there."""
    rng = np.random.default_rng(4)
    true = 20 * np.exp(rng.normal(0, 0.2, 4000))
    cut = [
        EpochRow(global_batch=64, epochs=float(min(x, 24.0)), reached=bool(x < 24.0)) for x in true
    ]
    whole = [EpochRow(global_batch=64, epochs=float(x)) for x in true]
    repeated = [replace(row, global_batch=8) for row in whole[:400]]
    found, known = (fit_epochs([*repeated, *rows]).at(64).value for rows in (cut, whole))
    assert found == pytest.approx(known, rel=0.01)


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


def width(found: Prediction) -> float:
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
    assert any("Ended before the target: 1 run" in line for line in found.assumptions)


def test_far_beyond_the_measured_batches_there_are_bounds_only() -> None:
    fit = fit_epochs(runs((32, 64)))
    found = fit.at(64 * 17)
    assert found.indicative
    # Between the epochs of 64 and as many steps as 64 takes.
    assert found.low == fit.at(64).low
    assert found.high == pytest.approx(17 * fit.at(64).high)
    assert not fit.at(64 * 16).indicative


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "None of 0 runs"),
        ([EpochRow(global_batch=64, epochs=0.0)], "above 0"),
        ([EpochRow(global_batch=0, epochs=3.0)], "above 0"),
        ([EpochRow(global_batch=64, epochs=math.nan)], "above 0"),
        ([EpochRow(global_batch=64, epochs=3.0, reached=False)], "None of 1 run "),
    ],
)
def test_rows_that_say_nothing(rows: list[EpochRow], words: str) -> None:
    with pytest.raises(DataError, match=words):
        fit_epochs(rows)


@pytest.mark.parametrize(
    ("decay", "rates", "kind"),
    [
        ("constant", ((0, 0.1), (100, 0.01)), "decaying"),  # recorded rates count most
        ("cosine", ((0, 0.1), (100, 0.1)), "constant"),
        ("cosine", (), "decaying"),
        ("constant", (), "constant"),
        ("", (), "unknown"),
    ],
)
def test_what_the_learning_rate_did(
    decay: str, rates: tuple[tuple[int, float], ...], kind: str
) -> None:
    cell = Cell(workers=1, params=(("decay", decay),) if decay else (("lr", "0.1"),))
    rank = make_rank(0, make_steps(0.1), learning_rates=rates)
    found = schedule_of([make_launch(cell, [rank], purpose="accuracy", outcome="ok")])
    assert found.kind == kind


CONSTANT = Schedule(kind="constant", detail="the learning rate stayed at 0.1")


class Law:
    """E(B) = 10 (1 + B / 100), known to 20 %."""

    critical_batch = None
    assumptions = ()

    def at(self, global_batch: int) -> Prediction:
        value = 10 * (1 + global_batch / 100)
        ratio = global_batch / 100
        return Prediction(value=value, low=value / 1.2, high=value * 1.2, ratio=ratio)


def curve(epoch: float) -> float:
    return 1 - math.exp(-epoch / 5)


def reference(
    epochs: int = 40, *, factor: float = 1.0, plus: float = 0.0, seeds: int = 4
) -> tuple[Series, ...]:
    """Seeds whose metric is plus + factor x curve, each a little off."""
    rng = np.random.default_rng(100)
    at = tuple(float(epoch) for epoch in range(1, epochs + 1))
    return tuple(
        Series(
            epochs=at,
            values=tuple(plus + factor * (curve(epoch) + off) for epoch in at),
            times_s=(None,) * epochs,
            by_step=False,
        )
        for off in rng.normal(0, 0.005, seeds)
    )


def ask(
    seeds: tuple[Series, ...],
    *,
    global_batch: int = 300,
    epochs: float = 20.0,
    schedule: Schedule = CONSTANT,
) -> Prediction | str:
    return metric_after(epochs, global_batch, {100: seeds}, cast(EpochCurve, Law()), schedule)


def test_a_larger_batch_is_as_far_as_fewer_epochs_of_a_smaller_one() -> None:
    found = ask(reference())
    assert isinstance(found, Prediction)
    # (Bc + B_ref) / (Bc + B) = 200 / 400: 20 epochs are worth 10.
    assert found.value == pytest.approx(curve(10), abs=0.01)
    # The epochs are known to 20 %, which the interval holds besides the seeds.
    assert found.low < curve(10 / 1.2)
    assert found.high > curve(10 * 1.2)
    assert found.ratio == 3.0


def test_a_share_stays_below_one_and_other_metrics_do_not() -> None:
    at = (1.0, 2.0, 3.0)
    for factor, high in ((1.0, 1.0), (100.0, None)):
        two = tuple(
            Series(epochs=at, values=(factor * value,) * 3, times_s=(None,) * 3, by_step=False)
            for value in (0.9, 0.99)
        )
        found = ask(two, global_batch=100, epochs=2.0)
        assert isinstance(found, Prediction)
        assert found.value == pytest.approx(factor * 0.945)
        # Two seeds: t of one degree of freedom is 6.31 at 90 %, so that half the interval is 0.28.
        assert found.low == pytest.approx(factor * (0.945 - 6.314 * 0.045), rel=1e-3)
        assert found.high == (high or pytest.approx(100 * (0.945 + 6.314 * 0.045), rel=1e-3))


def test_a_side_beyond_a_curve_is_left_open() -> None:
    # 2.1 epochs are worth 1.05, of 0.87 to 1.26: nobody looked before epoch 1.
    early = ask(reference(), epochs=2.1)
    assert isinstance(early, Prediction)
    assert early.low == 0.0
    assert early.value == pytest.approx(curve(1.05), abs=0.02)
    assert curve(1.26) < early.high < 0.3
    # 24 epochs at batch 50 are worth 32, of 27 to 38: nobody trained beyond 35.
    late = ask(reference(35, factor=0.8), global_batch=50, epochs=24.0)
    assert isinstance(late, Prediction)
    assert late.high == 1.0
    assert late.low > 0.7


@pytest.mark.parametrize(
    ("seeds", "global_batch", "epochs", "schedule", "reason"),
    [
        (
            reference(),
            *(300, 20.0, Schedule(kind="decaying", detail="the learning rate fell")),
            "Not projectable from this run: the learning rate fell",
        ),
        (reference(factor=-1.0, plus=1.0), 300, 2.1, CONSTANT, "0.88 to 1.3 at 100.*more often"),
        (reference(35, factor=100.0), 50, 24.0, CONSTANT, "Train longer"),
    ],
)
def test_what_is_not_projectable_says_why(
    seeds: tuple[Series, ...], global_batch: int, epochs: float, schedule: Schedule, reason: str
) -> None:
    found = ask(seeds, global_batch=global_batch, epochs=epochs, schedule=schedule)
    assert isinstance(found, str)
    assert re.search(reason, found)
