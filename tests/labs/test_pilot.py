"""The rate of one worker, from a study's records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from farandole.labs.pilot import rate_of
from farandole.model.analyse import analyse
from farandole.study.records import Cell, Launch, Rank, Steps, Study, Utilisation

NOTHING = np.array([])


def launch(number: int, *, workers: int = 1, step_s: float = 0.1, wall_s: float = 9.0) -> Launch:
    """41 steps of 8 samples each, the first ending 3 s after the launch."""
    ends = 103.0 + step_s * np.arange(41)
    unknown = np.full(41, np.nan)
    steps = Steps(
        end_s=ends,
        data_s=unknown,
        optimizer_s=unknown,
        communication_s=unknown,
        exposed_s=unknown,
        ready_s=unknown,
        done_s=unknown,
        passes=unknown,
        samples=np.full(41, 8.0),
    )
    use = Utilisation(
        time_s=NOTHING, cpu=NOTHING, memory_bytes=NOTHING, gpu=NOTHING, gpu_energy_j=NOTHING
    )
    ranks = tuple(
        Rank(
            rank=rank,
            host="h",
            framework="farandole.torch",
            device="cpu",
            steps=steps,
            begin_s=100.5,
            end_s=None,
            bytes_sent={"gradients": 4},
            gradient_bytes_per_step=4,
            parameters=1,
            peak_memory_bytes=None,
            peak_gpu_bytes=None,
            weights="same",
            sample_hashes=(),
            batch_seen=8,
            epochs=(),
            dataset_size=None,
            utilisation=use,
            metrics=(),
        )
        for rank in range(workers)
    )
    return Launch(
        id=f"{number:04d}-w{workers}-r{number}",
        cell=Cell(workers=workers, threads=1, batch=8),
        repeat=number,
        seed=0,
        purpose="speed",
        outcome="stopped",
        begin_s=100.0,
        wall_s=wall_s,
        ranks=ranks,
    )


def study(*launches: Launch) -> Study:
    return Study(path="", label="", command=(), spec={}, machine={}, created="", launches=launches)


def test_speed_and_what_lies_around_it() -> None:
    found = study(launch(0), launch(1, workers=2, step_s=0.2))
    rate = rate_of(analyse(found), found)
    assert rate is not None
    assert rate.samples_per_s == pytest.approx(80.0)
    # 9 s in all, of which 40 steps of 0.1 s.
    assert rate.startup_s == pytest.approx(5.0)


def test_a_machine_that_is_never_quiet_has_a_rate_too() -> None:
    found = study(replace(launch(0), busy=True, foreign_share=0.6))
    rate = rate_of(analyse(found), found)
    assert rate is not None
    assert rate.samples_per_s == pytest.approx(80.0)


def test_without_one_worker_there_is_no_rate() -> None:
    found = study(launch(0, workers=2))
    assert rate_of(analyse(found), found) is None
