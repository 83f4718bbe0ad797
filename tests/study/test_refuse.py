from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.study.records import Cell, Launch, Metric, Rank, Steps, Utilisation
from farandole.study.refuse import (
    StudyRefusedError,
    batch_mismatch,
    batch_seen,
    mismatch,
    never_trained,
    refuse,
    workers_mismatch,
)
from farandole.study.spec import Room, Spec

SPEC = Spec(command=("x", "{batch}"), room=Room(cores=2, physical=2), workers=(2,), batches=(64,))
NONE = np.empty(0)


def rank(*, seen: int | None = None, steps: int = 1) -> Rank:
    column = np.arange(float(steps))
    return Rank(
        rank=0,
        host="h",
        framework="torch",
        device="cpu",
        steps=Steps(**dict.fromkeys(Steps.__dataclass_fields__, column)),
        begin_s=0.0,
        end_s=1.0,
        bytes_sent={},
        gradient_bytes_per_step=None,
        parameters=None,
        peak_memory_bytes=None,
        peak_gpu_bytes=None,
        weights=None,
        sample_hashes=(),
        batch_seen=seen,
        epochs=(),
        dataset_size=None,
        utilisation=Utilisation(**dict.fromkeys(Utilisation.__dataclass_fields__, NONE)),
        metrics=(),
    )


def launch(*ranks: Rank, batch: int = 64) -> Launch:
    return Launch(
        id="a",
        cell=Cell(workers=2, batch=batch),
        repeat=0,
        seed=0,
        purpose="speed",
        outcome="ok",
        ranks=ranks,
    )


@pytest.mark.parametrize(
    ("seen", "why"),
    [(32, "divides the batch"), (128, "multiplies"), (50, "too few"), (70, "reaches the loader")],
)
def test_another_batch_is_named_with_both_numbers(seen: int, why: str) -> None:
    said = batch_mismatch(SPEC, launch(rank(seen=seen)))
    assert said is not None
    assert f"batch of 64 per worker, but the script trained with {seen}" in said
    assert why in said


def test_batches_that_agree_or_that_nobody_set() -> None:
    assert batch_mismatch(SPEC, launch(rank(seen=64))) is None
    assert batch_mismatch(SPEC, launch(rank(seen=None))) is None
    assert batch_mismatch(replace(SPEC, batch_check=False), launch(rank(seen=3))) is None
    assert batch_mismatch(replace(SPEC, batches=()), launch(rank(seen=3))) is None
    assert batch_seen(launch(rank(seen=None), rank(seen=3))) == 3
    assert batch_seen(launch()) is None


def test_a_launcher_that_starts_another_number_of_workers() -> None:
    own = replace(SPEC, launcher="accelerate launch")
    alone = launch(replace(rank(seen=64), size=1))
    said = workers_mismatch(own, alone)
    assert said is not None
    assert said.startswith("the cell has 2 workers, but accelerate launch started 1.")
    assert mismatch(own, alone) == said
    with pytest.raises(StudyRefusedError, match="accelerate launch started 1"):
        refuse(own, alone, [], Path("p"))
    assert workers_mismatch(own, launch(replace(rank(), size=2))) is None
    assert workers_mismatch(own, launch(rank())) is None  # nobody knows
    assert workers_mismatch(own, launch(replace(rank(steps=0), size=1))) is None
    assert workers_mismatch(SPEC, alone) is None  # Farandole starts as many as it says


def test_a_script_that_never_trains() -> None:
    said = never_trained(SPEC, launch(rank(steps=0)))
    assert said is not None
    assert "optimizer's step()" in said
    assert never_trained(SPEC, launch()) is not None
    assert never_trained(SPEC, launch(rank(steps=1))) is None
    figures = replace(launch(), figures={"throughput": 1.0})
    assert never_trained(SPEC, figures) is None
    metrics = replace(launch(), metrics=(Metric(name="acc", value=1.0),))
    assert never_trained(SPEC, metrics) is None
    assert never_trained(SPEC, replace(launch(), outcome="failed")) is None


def test_only_the_first_launch_stops_a_study() -> None:
    wrong = launch(rank(seen=3))
    with pytest.raises(StudyRefusedError, match="2 workers, batch 64: the cell has"):
        refuse(SPEC, wrong, [], Path("p"))
    refuse(SPEC, wrong, [launch(rank(seen=64))], Path("p"))
    with pytest.raises(StudyRefusedError, match=r"output is in p/output\.txt"):
        refuse(SPEC, launch(), [], Path("p"))


def test_jobs_that_slurm_does_not_take_end_a_study_before_it_begins() -> None:
    jobs = replace(SPEC, jobs=True)
    refused = replace(launch(), outcome="failed", reason="SLURM refused the job: Invalid account")
    with pytest.raises(UsageError, match=r"Invalid account\. Change --sbatch"):
        refuse(jobs, refused, [], Path("launches/a"))
    # One cell may ask for more than there is; the others are worth their time.
    refuse(jobs, refused, [launch()], Path("launches/b"))
    refuse(SPEC, refused, [], Path("launches/a"))
