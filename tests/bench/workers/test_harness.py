"""The clock loops of the workers, with operations that are played."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from farandole.bench.contestant import WORKERS
from farandole.bench.workers import harness


def test_warm_up_steps_are_run_and_not_timed() -> None:
    seen: list[int] = []
    times_s = harness.time_steps(seen.append, warmup=2, steps=3)
    assert seen == [0, 1, 2, 3, 4]
    assert len(times_s) == 3


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8, 64])
def test_sums_neither_overflow_nor_go_unchecked(num_ranks: int) -> None:
    array = np.ones(4, dtype=np.float32)

    def allreduce() -> None:
        np.multiply(array, num_ranks, out=array)

    times_s = harness.time_allreduces(allreduce, array, array.fill, num_ranks=num_ranks, repeats=50)
    assert len(times_s) == 50
    assert np.isfinite(array).all()


def test_a_wrong_sum_ends_the_worker() -> None:
    array = np.ones(4, dtype=np.float32)
    with pytest.raises(SystemExit, match="the sum is wrong"):
        harness.time_allreduces(lambda: None, array, array.fill, num_ranks=2, repeats=1)


def test_a_report_is_a_file_for_the_benchmark_and_a_line_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.report({"report_dir": str(tmp_path)}, rank=1, series={"step": [1.0]})
    harness.report({}, rank=1, series={"step": [1.0]})
    expected = {"rank": 1, "series": {"step": [1.0]}}
    assert json.loads((tmp_path / "rank-1.json").read_text()) == expected
    assert json.loads(capsys.readouterr().out) == expected


def test_a_worker_that_imported_farandole_is_refused() -> None:
    with pytest.raises(SystemExit, match="may not import farandole"):
        harness.forbid_farandole()


def test_the_limit_imports_no_farandole() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import harness, meeting, training, plain_train, gloo, ddp_train\n"
        "harness.forbid_farandole()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(WORKERS)], check=True, timeout=100)


def test_memory_is_read_by_kind() -> None:
    found = harness.memory_kb()
    assert found.keys() == {"pss", "pss_anon", "pss_shmem"}
    assert found["pss"] >= found["pss_anon"] > 0
