"""The demo's arithmetic and its sentence, without a launch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from farandole.labs.demo import (
    Comparison,
    DemoError,
    Launch,
    Result,
    command,
    compare,
    parse_result,
    plan,
    sentence,
    table_lines,
)

TWO = Launch(num_workers=2, repeat=0, threads_per_worker=1, seed=0)


def result(
    num_workers: int,
    repeat: int,
    samples_per_s: float,
    accuracy: float = 0.9,
    foreign_share: float = 0.0,
) -> Result:
    return Result(
        num_workers=num_workers,
        repeat=repeat,
        samples_per_s=samples_per_s,
        step_time_s=0.01,
        accuracy=accuracy,
        foreign_share=foreign_share,
    )


def comparison(*pairs: tuple[float, float]) -> Comparison:
    results = [
        result(count, repeat, speed)
        for repeat, pair in enumerate(pairs)
        for count, speed in zip((1, 2), pair, strict=True)
    ]
    return compare(results, threads_per_worker=1, num_cores=2)


def test_the_numbers_of_workers_take_turns() -> None:
    launches = plan(repeats=2, num_cores=2)
    assert [(x.num_workers, x.repeat) for x in launches] == [(1, 0), (2, 0), (1, 1), (2, 1)]


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (3, 1), (8, 4)])
def test_every_worker_has_the_same_threads(cores: int, threads: int) -> None:
    assert {x.threads_per_worker for x in plan(repeats=1, num_cores=cores)} == {threads}


def test_both_workers_of_a_pair_start_from_the_same_seed() -> None:
    seeds = [x.seed for x in plan(repeats=3, num_cores=2)]
    assert seeds == [0, 0, 1, 1, 2, 2]


def test_the_command_is_farandole_run() -> None:
    argv = command(TWO, epochs=3, result=Path("a b/result.json"))
    assert argv[:4] == [sys.executable, "-m", "farandole.cli.main", "run"]
    assert argv[4:9] == ["-np", "2", "--threads", "1", "--"]
    assert argv[argv.index("--result") + 1] == str(Path("a b/result.json"))


def test_speed_is_the_median_and_accuracy_the_mean() -> None:
    found = compare(
        [
            result(1, 0, 100, 0.90),
            result(1, 1, 110, 0.92),
            result(1, 2, 500, 0.94),
            result(2, 0, 200, 0.80),
            result(2, 1, 198, 0.90),
            result(2, 2, 190, 0.94),
        ],
        threads_per_worker=1,
        num_cores=2,
    )
    one, two = found.rows
    assert (one.samples_per_s, two.samples_per_s) == (110, 198)
    assert (one.speedup, two.speedup) == (1, pytest.approx(1.8))
    assert one.accuracy == pytest.approx(0.92)
    assert two.accuracy == pytest.approx(0.88)
    assert found.lowest_speedup == pytest.approx(190 / 500)
    assert found.highest_speedup == pytest.approx(2)


@pytest.mark.parametrize(
    ("pairs", "beginning"),
    [
        ([(100, 180), (100, 190)], "2 workers train 1.85 times as fast as one (1.80 to 1.90 in 2 "),
        ([(100, 180)], "2 workers train 1.80 times as fast as one (in one pair of runs)"),
        ([(100, 180), (100, 101)], "No clear gain from a second worker here: 1.4"),
        ([(100, 50), (100, 60)], "2 workers train more slowly than one here, at 0.55 of"),
    ],
)
def test_the_sentence_says_no_more_than_every_pair_does(
    pairs: list[tuple[float, float]], beginning: str
) -> None:
    text = sentence(comparison(*pairs))
    assert text.startswith(beginning)
    assert text.endswith("on 2 cores, 1 thread per worker; test accuracy 90.0% against 90.0%.")


def test_speeds_of_a_busy_machine_are_not_called_a_speedup() -> None:
    found = compare(
        [result(1, 0, 100), result(2, 0, 190, foreign_share=0.4)],
        threads_per_worker=1,
        num_cores=2,
    )
    assert sentence(found).startswith("Other programs used up to 40% of this machine")


def test_the_table_lines_up() -> None:
    lines = table_lines(comparison((3_000, 5_400)))
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split() == ["2", "5,400", "1.80", "90.0%"]


def written(**changes: object) -> str:
    base = {
        "workers": 2,
        "weights_equal": True,
        "samples_per_s": 5.0,
        "step_time_s": 0.1,
        "accuracy": 0.9,
    }
    return json.dumps(base | changes)


def test_a_result_is_read() -> None:
    assert parse_result(written(), TWO, foreign_share=0.02) == Result(
        num_workers=2,
        repeat=0,
        samples_per_s=5.0,
        step_time_s=0.1,
        accuracy=0.9,
        foreign_share=0.02,
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"workers": 1}, "asked for 2 workers, but the script saw 1"),
        ({"weights_equal": False}, "different weights"),
    ],
)
def test_workers_that_did_not_train_together_have_no_speed(
    change: dict[str, object], complaint: str
) -> None:
    with pytest.raises(DemoError, match=complaint):
        parse_result(written(**change), TWO, foreign_share=0.0)
