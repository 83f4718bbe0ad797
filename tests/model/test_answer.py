"""The answer: one sentence and what to do next, with and without a speedup."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from farandole.model.analyse import analyse
from farandole.model.answer import Answer, epochs_in
from farandole.study.records import Cell, Launch
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    repeated,
    table_launch,
    timed_launch,
    trained_launch,
)

ONE, TWO = Cell(workers=1, batch=8, threads=1), Cell(workers=2, batch=8, threads=1)


def answer_of(launches: list[Launch], **changes: Any) -> Answer:
    return analyse(make_study(launches, **changes)).answer


def split_launch(cell: Cell, step_s: float, exposed: float = 0.06, **changes: Any) -> Launch:
    """A launch of which 6 % of each step wait for the transfer."""
    ends = 100.0 + (1 + np.arange(40)) * step_s
    steps = make_steps(
        step_s,
        40,
        data_s=0.0,
        optimizer_s=0.01 * step_s,
        exposed_s=exposed * step_s if cell.workers > 1 else 0.0,
        communication_s=exposed * step_s,
        ready_s=ends - (exposed + 0.01) * step_s,
        samples=8.0,
    )
    return make_launch(cell, [make_rank(n, steps) for n in range(cell.workers)], **changes)


SPEED = [
    *repeated(ONE, [0.1, 0.1005, 0.0995], split_launch),
    *repeated(TWO, [0.109, 0.1095, 0.1085], split_launch),
]
SLOWER = repeated(ONE, [0.1, 0.101, 0.099]) + repeated(TWO, [0.25, 0.251, 0.249])


def trained(
    one: float, two: float, *, seeds: int = 3, name: str = "val_accuracy", threads: int = 1
) -> list[Launch]:
    """Return runs for accuracy that end near these values."""
    cells = {Cell(workers=n, batch=8, threads=threads): end for n, end in ((1, one), (2, two))}
    return [
        trained_launch(cell, seed, [0.5, end + 0.0005 * seed], name=name)
        for cell, end in cells.items()
        for seed in range(seeds)
    ]


def test_the_sentence_of_the_page() -> None:
    found = answer_of(SPEED + trained(0.98, 0.98))
    assert (found.workers, found.limited_by, found.void) == (2, "compute", None)
    assert found.speedup == pytest.approx(2 * 0.1 / 0.109, rel=1e-3)
    assert found.efficiency == pytest.approx(0.917, abs=0.001)
    low, high = found.interval
    assert low < 1.83 < high
    assert found.headline == f"Use 2 workers: 1.83x faster ({low:.2f} to {high:.2f})."
    assert found.sentences[1] == (
        "2 workers are the cheapest within 10 % of the fastest (--prefer balance)."
    )
    assert (found.limit, found.accuracy_words) == ("communication takes 6 %", "same accuracy")
    # Every command that is named exists.
    assert found.next == (
        "For more workers, run farandole study -np 4,8 on a machine with that many cores or GPUs."
    )


@pytest.mark.parametrize(
    ("launches", "verdict", "words"),
    [
        (SPEED, "not_measured", "accuracy not measured (--measure both)"),
        (SPEED + trained(0.98, 0.90), "worse", "worse accuracy"),
        # Accuracy of launches with other threads counts.
        (SPEED + trained(0.98, 0.98, threads=2), "same", "same accuracy"),
        # A loss that is no number is worse.
        (SPEED + trained(0.5, math.nan, name="val_loss"), "worse", "worse accuracy"),
        # Two seeds say what they can detect, and never "the same".
        (
            SPEED + trained(0.98, 0.98, seeds=2),
            "inconclusive",
            "accuracy inconclusive (differences below 0.00",
        ),
        (SLOWER + trained(0.9, 0.9), "same", ""),
        # A baseline that diverged is not called the same.
        (SLOWER + trained(math.nan, math.nan, name="loss"), "inconclusive", ""),
        # The accuracy of a lone count is not the same as anything.
        ([timed_launch(TWO, 0.1), trained_launch(TWO, 0, [0.5, 0.9])], "inconclusive", ""),
    ],
)
def test_what_is_said_of_accuracy(launches: list[Launch], verdict: str, words: str) -> None:
    found = answer_of(launches)
    assert found.accuracy == verdict
    assert words in found.accuracy_words
    # The headline is about time, and about accuracy only where that differs.
    assert ("accuracy" in found.headline) == (verdict == "worse")
    assert len(found.headline.split()) <= 15


@pytest.mark.parametrize(
    ("argv", "epochs"),
    [
        (["python", "train.py", "--epochs", "10"], 10),
        (["python", "train.py", "--num-epochs=4"], 4),
        (["python", "train.py", "--max_epochs", "7", "--lr", "1"], 7),
        (["python", "train.py", "trainer.max_epochs=3"], 3),
        (["python", "train.py", "--warmup-epochs", "5", "--epochs", "90"], 90),
        (["python", "train.py", "--epochs"], None),
        (["python", "train.py", "epochs", "3"], None),
        (["python", "epochs.py", "--epochs", "all"], None),
        ([], None),
    ],
)
def test_epochs_are_read_from_a_command(argv: list[str], epochs: int | None) -> None:
    assert epochs_in(argv) == epochs


def one_epoch(*argv: str) -> list[Launch]:
    """Launches that ended after an epoch: 2 s of start-up, 38 s of it, 2 s of validation."""
    steps = make_steps(1.0, 38, begin_s=100.0, samples=8.0)
    ranks = [make_rank(n, steps, epochs=((100.0, 138.0),)) for n in (0, 1)]
    return [
        make_launch(cell, ranks[: cell.workers], purpose="epoch", wall_s=42.0, argv=argv)
        for cell in (ONE, TWO)
    ]


WHOLE = [
    timed_launch(cell, 0.1, outcome="ok", wall_s=140.0, purpose="epoch") for cell in (ONE, TWO)
]


@pytest.mark.parametrize(
    ("launches", "seeds", "takes"),
    [
        (WHOLE, 3, "about 14 min"),  # 2 cells x 3 seeds x 140 s
        (WHOLE, 5, "about 23 min"),
        (one_epoch("train.py", "--epochs", "10"), 3, "about 40 min"),  # 6 x (2 s + 10 x 40 s)
        (one_epoch("train.py"), 3, "about 4 min per epoch"),
        (one_epoch("train.py"), 1, "about 80 s per epoch"),
    ],
)
def test_how_long_accuracy_would_take(launches: list[Launch], seeds: int, takes: str) -> None:
    found = answer_of(launches, spec={"seeds": seeds})
    assert f"accuracy not measured (--measure both, {takes})" in found.accuracy_words


def test_nothing_averaged_is_the_headline_and_there_is_no_speedup() -> None:
    alone = [
        make_rank(n, make_steps(0.1, samples=8.0), bytes_sent={"gradients": 0}, weights=str(n))
        for n in (0, 1)
    ]
    info = analyse(make_study([timed_launch(ONE, 0.1), make_launch(TWO, alone)]))
    found = info.answer
    assert found.headline == (
        "Your 2 workers trained 2 separate models: nothing was averaged. Wrap the optimizer: "
        "optimizer = hvd.DistributedOptimizer(optimizer), where hvd is farandole.torch and "
        "hvd.init() comes first (or wrap the model: DDP(model))."
    )
    assert found.void == "Your 2 workers trained 2 separate models: nothing was averaged."
    assert (found.workers, found.speedup, found.interval, found.efficiency) == (None,) * 4
    two = next(point for curve in info.curves for point in curve.points if point.workers == 2)
    assert (two.speedup, two.efficiency, two.valid) == (None, None, False)
    assert "x faster" not in " ".join([found.headline, *found.sentences])


CRASHED = make_launch(ONE, [], outcome="failed", reason="rank 0 failed first (exit code 3)")
WRONG_FLAG = make_launch(
    ONE,
    [],
    outcome="failed",
    reason="rank 0 failed first (exit code 2)",
    last_output=("usage: train.py", "train.py: error: unrecognized arguments: --epoch 3"),
)
TOO_LARGE = make_launch(TWO, purpose="imported", outcome="out_of_memory", reason="As it says.")


@pytest.mark.parametrize(
    ("launches", "headline", "following"),
    [
        # Noise that allows both is no verdict.
        (
            repeated(ONE, [0.1, 0.11, 0.09]) + repeated(TWO, [0.12, 0.25]),
            "Cannot tell yet: 2 workers are",
            "Run it again with --repeats 5",
        ),
        (
            SLOWER,
            "Use 1 worker: 2 workers reach only 0.80x (0.78 to 0.82).",
            "Measure accuracy as well",
        ),
        # What keeps more workers from paying is theirs.
        (
            [split_launch(ONE, 0.1), split_launch(TWO, 0.3, exposed=0.7)],
            "Use 1 worker: 2 workers reach only 0.67x, one launch each.",
            "Run it again with --repeats 5",
        ),
        # Another count without a figure is not passed over, nor hidden behind a busy machine.
        (
            [CRASHED, *repeated(TWO, [0.1, 0.101, 0.099])],
            "2 workers: 160 samples/s; no speedup: no usable launch with 1 worker (rank 0 "
            "failed first (exit code 3)).",
            f"Read launches/{CRASHED.id}/output.txt, fix the cause, and continue with farandole",
        ),
        # The command is part of the study: --resume would fail again.
        (
            [WRONG_FLAG],
            "No usable launch in 1 cell (rank 0 failed first",
            "Correct the command's flags and start a new study",
        ),
        (
            [timed_launch(TWO, 0.1, busy=True, foreign_share=0.8), CRASHED],
            "2 workers: 160 samples/s; no speedup: no usable launch with 1 worker (rank 0",
            f"Read launches/{CRASHED.id}/output.txt",
        ),
        (
            [table_launch(ONE, throughput=100.0), TOO_LARGE],
            "1 worker: 100 samples/s; no speedup: no usable launch with 2 workers (out of memory",
            "Add rows with other numbers of workers to the table.",
        ),
        # A benchmark of so many steps, whatever the workers, prints its samples per second.
        (
            [
                make_launch(cell, [], outcome="ok", wall_s=60.0, figures={"throughput": rate})
                for cell, rate in ((ONE, 100.0), (TWO, 199.0))
                for _ in range(3)
            ],
            "Use 2 workers: 1.99x faster",
            "Measure accuracy",
        ),
        (
            [timed_launch(Cell(workers=n, batch=8), 0.1) for n in (2, 4)],
            "Use 4 workers: 2.00x faster than 2 workers",
            "Run it again with --repeats 5",
        ),
        # Every split of 2 cores at 8 samples per worker: no curve, since threads differ.
        (
            [timed_launch(Cell(workers=1, batch=8, threads=2), 0.1), timed_launch(TWO, 0.1)],
            "2 processes x 1 thread is best: 160 samples/s, 2.00x as fast as 1 x 2 (batch 8).",
            "Use them: farandole run -np 2 --threads 1 ...",
        ),
        ([], "This study has no launches yet.", "Continue it: farandole study --resume DIR, "),
        (
            [make_launch(TWO, [], outcome="out_of_memory", reason="too large")],
            "No usable launch in 1 cell (out of memory: too large).",
            "Use a smaller batch, or give each worker more memory (--memory).",
        ),
        (
            [trained_launch(ONE, 0, [0.5, 0.6])],
            "Accuracy was measured, but no launch counts for speed",
            "Run it with --measure both.",
        ),
        (
            [timed_launch(Cell(workers=64, batch=8), 0.1)],
            "No usable launch in 1 cell (more ranks than cores",
            "Run it with --measure speed.",
        ),
        (
            [table_launch(ONE, {"accuracy": 0.9})],
            "This table has no times and no throughput, so there is no speedup.",
            "Add a column throughput, epoch_s, step_s or job_s.",
        ),
    ],
)
def test_what_is_said_and_what_to_do(launches: list[Launch], headline: str, following: str) -> None:
    found = answer_of(launches)
    assert found.headline.startswith(headline)
    assert found.next.startswith(following)


@pytest.mark.parametrize(
    ("launches", "ending"),
    [
        ([timed_launch(ONE, 0.1), timed_launch(TWO, 0.07)], "so check the baseline first."),
        (
            [timed_launch(cell, 0.1, busy=True, foreign_share=0.12) for cell in (ONE, TWO)],
            "; others used up to 12 % of the machine.",
        ),
        (
            [timed_launch(cell, 0.1, busy=True, foreign_share=0.85) for cell in (ONE, TWO)],
            "; not quotable: busy machine.",
        ),
    ],
)
def test_figures_that_are_not_to_be_taken_as_they_are(launches: list[Launch], ending: str) -> None:
    found = answer_of(launches)
    assert found.speedup is not None
    assert found.headline.endswith(ending)


def test_to_save_money_is_no_reason_to_say_that_more_workers_are_slow() -> None:
    rows = [table_launch(Cell(workers=n, batch=8), throughput=r) for n, r in ((1, 500), (4, 1610))]
    found = analyse(make_study(rows), prefer="money").answer
    assert found.headline == (
        "Use 1 worker: 4 workers are 3.22x faster, one launch each, but cost 1.24x as much."
    )
    assert found.sentences[1] == (
        "1 worker is the fastest within 3 % of the cheapest (--prefer money); 4 workers would be "
        "3.22x as fast."
    )


def test_of_several_curves_the_headline_says_which_it_is_of() -> None:
    launches = [
        launch
        for batch in (8, 16)
        for workers in (1, 2)
        for launch in repeated(Cell(workers=workers, batch=batch, threads=1), [0.1, 0.101, 0.099])
    ]
    assert answer_of(launches).headline.endswith((", batch 8 (weak).", ", batch 16 (weak)."))


def test_a_table_is_told_what_rows_it_lacks() -> None:
    rows = [table_launch(cell, throughput=rate) for cell, rate in ((ONE, 100.0), (TWO, 190.0))]
    assert answer_of(rows).next == "Add rows of repeated runs to the table to get intervals."
    twice = answer_of(rows * 2)
    assert twice.next.startswith("Add a column with a metric")
    assert twice.accuracy_words == "accuracy not measured"  # nothing can be launched for it
    some = [table_launch(ONE, {"val_acc": 0.9}, throughput=100.0)] * 2 + rows[1:] * 2
    assert answer_of(some).next == "Fill in val_acc where the table has none."


def test_the_job_and_its_price_are_in_the_sentences() -> None:
    launches = [
        table_launch(Cell(workers=n, batch=8), epoch_s=e, job_s=j, epochs=10.0)
        for n, e, j in ((1, 20.0, 662.0), (2, 11.0, 319.0))
    ]
    info = analyse(make_study(launches), price_per_worker_hour=3.6)
    words = " ".join(info.answer.sentences)
    assert "Whole job: 11 min 2 s with 1 worker, 5 min 19 s with 2 workers (2.08x as" in words
    assert (
        "At 3.6 per worker-hour, 2 workers cost 0.638 for the job and 0.0220 for an epoch." in words
    )
