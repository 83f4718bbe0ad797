"""The answer: one sentence and what to do next, with and without a speedup."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from farandole.model.analyse import analyse
from farandole.model.answer import Answer
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


def split_launch(cell: Cell, step_s: float, **changes: Any) -> Launch:
    """A launch of which 6 % of each step wait for the transfer."""
    ends = 100.0 + (1 + np.arange(40)) * step_s
    ranks = [
        make_rank(
            number,
            make_steps(
                step_s,
                40,
                data_s=0.0,
                optimizer_s=0.01 * step_s,
                exposed_s=0.06 * step_s if cell.workers > 1 else 0.0,
                communication_s=0.06 * step_s,
                ready_s=ends - 0.07 * step_s,
                samples=8.0,
            ),
        )
        for number in range(cell.workers)
    ]
    return make_launch(cell, ranks, **changes)


def answer_of(launches: list[Launch], **changes: Any) -> Answer:
    return analyse(make_study(launches, **changes)).answer


def good(accuracy: bool = True) -> list[Launch]:
    launches = repeated(ONE, [0.1, 0.1005, 0.0995], split_launch)
    launches += repeated(TWO, [0.109, 0.1095, 0.1085], split_launch)
    if accuracy:
        for cell in (ONE, TWO):
            launches += [
                trained_launch(cell, seed, [0.9, 0.98 + 0.0005 * seed]) for seed in range(3)
            ]
    return launches


def test_the_sentence_of_the_page() -> None:
    found = answer_of(good())
    assert found.workers == 2
    assert found.speedup == pytest.approx(2 * 0.1 / 0.109, rel=1e-3)
    assert found.interval is not None
    assert found.interval[0] < 1.83 < found.interval[1]
    assert found.efficiency == pytest.approx(0.917, abs=0.001)
    assert found.accuracy == "same"
    assert found.limited_by == "compute"
    assert found.void is None
    low, high = found.interval
    assert found.headline == (
        f"2 workers: 1.83x faster ({low:.2f} to {high:.2f}), same accuracy; communication takes "
        "6 %."
    )
    # Every command that is named exists.
    assert found.next == (
        "To know about more workers, study -np 4,8 on a machine with as many cores or GPUs."
    )


def test_how_long_accuracy_would_take_is_said_where_the_scripts_length_is_known() -> None:
    launches = [
        timed_launch(cell, 0.1, outcome="ok", wall_s=140.0, purpose="epoch") for cell in (ONE, TWO)
    ]
    # 2 cells x 3 seeds x 140 s.
    assert "(--measure both, about 14 min)" in answer_of(launches).headline
    five = answer_of(launches, spec={"seeds": 5}).headline
    assert "(--measure both, about 23 min)" in five


def test_accuracy_that_got_worse_is_said() -> None:
    launches = good(accuracy=False)
    for cell, final in ((ONE, 0.98), (TWO, 0.90)):
        launches += [trained_launch(cell, s, [0.5, final + 0.001 * s]) for s in range(3)]
    found = answer_of(launches)
    assert found.accuracy == "worse"
    assert "worse accuracy" in found.headline


def test_accuracy_of_launches_with_other_threads_counts() -> None:
    launches = good(accuracy=False)
    for workers in (1, 2):
        cell = Cell(workers=workers, batch=8, threads=2)
        launches += [trained_launch(cell, s, [0.5, 0.98 + 0.0005 * s]) for s in range(3)]
    assert answer_of(launches).accuracy == "same"


def test_nothing_averaged_is_the_headline_and_there_is_no_speedup() -> None:
    apart = [
        make_rank(n, make_steps(0.1, samples=8.0), bytes_sent={"gradients": 0}, weights=str(n))
        for n in (0, 1)
    ]
    info = analyse(make_study([timed_launch(ONE, 0.1), make_launch(TWO, apart)]))
    found = info.answer
    assert found.headline == (
        "Your 2 workers trained 2 separate models: nothing was averaged. Wrap the optimizer: "
        "optimizer = hvd.DistributedOptimizer(optimizer) (or the model: DDP(model))."
    )
    assert found.void == "Your 2 workers trained 2 separate models: nothing was averaged."
    assert (found.workers, found.speedup, found.interval, found.efficiency) == (None,) * 4
    two = next(point for curve in info.curves for point in curve.points if point.workers == 2)
    assert (two.speedup, two.efficiency, two.valid) == (None, None, False)
    assert "x faster" not in " ".join([found.headline, *found.sentences])
    assert not any(verdict.kind == "more_than_linear" for verdict in info.verdicts)


def test_noise_that_allows_both_is_no_verdict() -> None:
    found = answer_of(repeated(ONE, [0.1, 0.11, 0.09]) + repeated(TWO, [0.12, 0.25]))
    assert found.headline.startswith("Cannot tell yet whether more workers pay: 2 workers reach")
    assert found.next.startswith("Run it again with --repeats 5")


def test_another_count_without_a_figure_is_not_passed_over() -> None:
    crashed = make_launch(ONE, [], outcome="failed", reason="rank 0 failed first (exit code 3)")
    found = answer_of([crashed, *repeated(TWO, [0.1, 0.101, 0.099])])
    assert found.headline == (
        "2 workers: 160 samples/s; no launch with 1 worker counts (failed: rank 0 failed first "
        "(exit code 3)), so there is no speedup yet."
    )
    assert found.next == (
        f"Look at launches/{crashed.id}/output.txt, mend it, and go on with "
        "farandole study --resume DIR."
    )


def test_jobs_of_equal_length_with_a_rate_of_their_own_are_no_fixed_cost() -> None:
    # A benchmark of so many steps, whatever the workers: it prints its samples per second.
    launches = [
        make_launch(cell, [], outcome="ok", wall_s=60.0, figures={"throughput": rate})
        for cell, rate in ((ONE, 100.0), (TWO, 199.0))
        for _ in range(3)
    ]
    info = analyse(make_study(launches))
    assert not any(verdict.kind == "fixed_cost" for verdict in info.verdicts)
    assert info.answer.headline.startswith("2 workers: 1.99x faster")
    assert "fixed cost" not in info.answer.headline


def test_of_several_curves_the_headline_says_which_it_is_of() -> None:
    launches = [
        launch
        for batch in (8, 16)
        for workers in (1, 2)
        for launch in repeated(Cell(workers=workers, batch=batch, threads=1), [0.1, 0.101, 0.099])
    ]
    found = answer_of(launches)
    assert found.headline.startswith(
        ("batch 8 (weak): 2 workers: ", "batch 16 (weak): 2 workers: ")
    )


def test_a_row_that_ran_out_of_memory_is_not_passed_over() -> None:
    over = make_launch(TWO, purpose="imported", outcome="out_of_memory", reason="As it says.")
    info = analyse(make_study([table_launch(ONE, throughput=100.0), over]))
    assert "no launch with 2 workers counts (out of memory: As it says)" in info.answer.headline
    (failed,) = [verdict for verdict in info.verdicts if verdict.kind == "cell_failed"]
    assert failed.action == ""  # an imported table has no output


def test_a_table_is_told_what_rows_it_lacks() -> None:
    rows = [table_launch(cell, throughput=rate) for cell, rate in ((ONE, 100.0), (TWO, 190.0))]
    assert answer_of(rows).next == "Add the rows of repeated runs to the table for intervals."
    assert answer_of(rows[:1]).next == "Add rows with other numbers of workers to the table."
    twice = answer_of(rows * 2)
    assert twice.next.startswith("Add a column with a metric")
    assert ", accuracy not measured; " in twice.headline  # nothing can be launched for it


def test_more_workers_that_do_not_pay() -> None:
    found = answer_of(repeated(ONE, [0.1, 0.101, 0.099]) + repeated(TWO, [0.25, 0.251, 0.249]))
    assert found.workers == 1
    assert found.headline.startswith(
        "More workers do not pay: 2 workers reach 0.80x (0.78 to 0.82) of 1 worker, "
        "accuracy not measured (--measure both); "
    )
    assert found.interval is None
    assert found.limited_by == "unknown"


def test_what_keeps_more_workers_from_paying_is_theirs() -> None:
    def starved(cell: Cell, step_s: float, **changes: Any) -> Launch:
        exposed = 0.0 if cell.workers == 1 else 0.7 * step_s
        steps = make_steps(step_s, data_s=0.0, exposed_s=exposed, samples=8.0)
        return make_launch(cell, [make_rank(n, steps) for n in range(cell.workers)], **changes)

    found = answer_of(repeated(ONE, [0.1], starved) + repeated(TWO, [0.3], starved))
    assert (found.workers, found.limited_by) == (1, "communication")
    assert "communication takes 70 %" in found.headline


def test_without_one_worker_the_baseline_is_named() -> None:
    found = answer_of([timed_launch(Cell(workers=n, batch=8), 0.1) for n in (2, 4)])
    assert found.baseline_workers == 2
    assert "4 workers: 2.00x faster than 2 workers" in found.headline


@pytest.mark.parametrize(
    ("launches", "words"),
    [
        ([], "no launches yet"),
        ([make_launch(ONE, outcome="failed", reason="no such file")], "failed: no such file"),
        ([trained_launch(ONE, 0, [0.5, 0.6])], "Accuracy was measured"),
        ([timed_launch(Cell(workers=64, batch=8), 0.1)], "more ranks than cores"),
        ([table_launch(ONE, {"accuracy": 0.9})], "no times and no throughput"),
    ],
)
def test_studies_without_a_launch_that_counts(launches: list[Launch], words: str) -> None:
    found = answer_of(launches)
    assert words in found.headline
    assert (found.workers, found.speedup) == (None, None)
    assert found.next


def test_a_machine_that_was_never_quiet_is_in_the_headline() -> None:
    found = answer_of(
        [
            timed_launch(ONE, 0.1, busy=True, foreign_share=0.07),
            timed_launch(TWO, 0.11, busy=True, foreign_share=0.12),
        ]
    )
    assert found.speedup == pytest.approx(2 * 0.1 / 0.11)
    assert found.headline.endswith("; others used up to 12 % of the machine.")
    assert "machine is quiet" in found.next


def test_more_than_linear_warns_in_the_headline() -> None:
    found = answer_of([timed_launch(ONE, 0.1), timed_launch(TWO, 0.07)])
    assert found.headline.endswith("more than linear, so check the baseline first.")


def test_a_loss_that_is_no_number_is_worse() -> None:
    launches = good(accuracy=False)
    launches += [trained_launch(ONE, s, [1.0, 0.5], name="val_loss") for s in range(3)]
    launches += [trained_launch(TWO, s, [1.0, math.nan], name="val_loss") for s in range(3)]
    assert answer_of(launches).accuracy == "worse"


def test_the_accuracy_of_a_lone_count_is_not_the_same_as_anything() -> None:
    found = answer_of([timed_launch(TWO, 0.1), trained_launch(TWO, 0, [0.5, 0.9])])
    assert (found.workers, found.accuracy) == (2, "inconclusive")


def test_a_baseline_that_diverged_is_not_called_the_same() -> None:
    slower = repeated(ONE, [0.1, 0.101, 0.099]) + repeated(TWO, [0.3, 0.301, 0.299])
    runs = [trained_launch(cell, s, [0.5, 0.9]) for cell in (ONE, TWO) for s in range(3)]
    assert answer_of(slower + runs).accuracy == "same"
    runs = [trained_launch(c, 0, [1.0, math.nan], name="loss") for c in (ONE, TWO)]
    assert answer_of(slower + runs).accuracy == "inconclusive"


def test_a_metric_in_some_rows_only_is_told() -> None:
    rows = [table_launch(ONE, {"val_acc": 0.9}, throughput=100.0)] * 2
    info = analyse(make_study([*rows, *[table_launch(TWO, throughput=190.0)] * 2]))
    assert info.answer.accuracy == "not_measured"
    assert info.answer.next == "Fill in val_acc where the table has none."
    assert any(verdict.kind == "metric_missing" for verdict in info.verdicts)


def test_the_job_and_its_price_are_in_the_sentences() -> None:
    launches = [
        table_launch(Cell(workers=n, batch=8), epoch_s=e, job_s=j, epochs=10.0)
        for n, e, j in ((1, 20.0, 662.0), (2, 11.0, 319.0))
    ]
    info = analyse(make_study(launches), price_per_worker_hour=3.6)
    words = " ".join(info.answer.sentences)
    assert (
        "Whole job: 11 min 2 s with 1 worker, 5 min 19 s with 2 workers (2.08x as fast)." in words
    )
    assert "At 3.6 per worker and hour, 2 workers: job 0.638, epoch 0.0220." in words


def test_a_study_of_splits_is_answered_by_the_best_one() -> None:
    # Every split of 2 cores at 8 samples per worker: no curve, since threads differ.
    one = Cell(workers=1, batch=8, threads=2)
    found = answer_of(repeated(one, [0.1, 0.101, 0.099]) + repeated(TWO, [0.1, 0.101, 0.099]))
    assert found.workers == 2
    assert found.headline == (
        "2 processes x 1 thread is best: 160 samples/s, 2.00x as fast as 1 x 2 (batch 8)."
    )
    assert found.next == "Use it: farandole run -np 2 --threads 1 ..."


def test_a_very_busy_machine_gets_a_rough_figure() -> None:
    found = answer_of(
        [timed_launch(cell, 0.1, busy=True, foreign_share=0.85) for cell in (ONE, TWO)]
    )
    assert found.speedup == pytest.approx(2.0)
    assert found.headline.endswith(
        "; not quotable: busy machine (others used up to 85 % of the machine)."
    )


def test_a_crash_is_not_hidden_behind_a_busy_machine() -> None:
    busy = timed_launch(ONE, 0.1, busy=True, foreign_share=0.8)
    crashed = make_launch(TWO, [], outcome="failed", reason="rank 1 exited with code 1")
    found = answer_of([busy, crashed])
    assert "no launch with 2 workers counts (failed: rank 1 exited with code 1)" in found.headline
    assert found.next.startswith(f"Look at launches/{crashed.id}/output.txt")


def test_a_launch_that_took_too_much_memory_says_what_to_do() -> None:
    alone = answer_of([make_launch(TWO, [], outcome="out_of_memory", reason="too large")])
    assert alone.headline == (
        "No launch counts: 1 cell, none with a figure (out of memory: too large)."
    )
    assert alone.next == "Use a smaller batch, or give each worker more memory (--memory)."


def test_two_seeds_say_what_they_can_detect_and_never_the_same() -> None:
    launches = good(accuracy=False)
    launches += [trained_launch(c, s, [0.5, 0.9 + s / 1e4]) for c in (ONE, TWO) for s in range(2)]
    found = answer_of(launches)
    assert found.accuracy == "inconclusive"
    assert "accuracy inconclusive (differences below 0.000" in found.headline


def test_a_study_without_launches_is_gone_on_with() -> None:
    found = analyse(make_study([])).answer
    assert found.headline == "This study has no launches yet."
    assert found.next == (
        "Go on with it: farandole study --resume DIR, with a longer --time-limit if it had one."
    )
