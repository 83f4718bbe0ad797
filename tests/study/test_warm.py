"""Repeats that are forked from a process with their imports: which are, and what if they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.model.analyse import analyse
from farandole.study.progress import Listener
from farandole.study.records import Study
from tests.study import scripts
from tests.study.test_runner import _here, run  # noqa: F401

pytestmark = pytest.mark.ranks

# As if the framework could not be forked: it is there before the script has imported it.
BREAKS = f"""
import sys
if "torch" in sys.modules:
    raise SystemExit("already imported")
{scripts.HOROVOD}
"""


def starts(study: Study) -> list[tuple[int, int, bool]]:
    return [(x.cell.workers, x.repeat, x.warm) for x in study.launches]


def test_repeats_start_warm_and_the_job_is_timed_by_the_cold_launch(tmp_path: Path) -> None:
    script = scripts.write(tmp_path, scripts.HOROVOD)
    study = run(script, repeats=None, measure="accuracy", seeds=2, throughput=None)
    assert starts(study) == [(1, 0, False), (2, 0, False), (2, 1, True), (1, 1, True)]
    assert {one.outcome for one in study.launches} == {"ok"}
    assert all("torch" in rank.modules for one in study.launches for rank in one.ranks)
    for row, cold in zip(analyse(study).rows, study.launches[:2], strict=True):
        assert row.job is not None
        assert row.job.job_s is not None
        assert row.job.job_s.value == pytest.approx(cold.wall_s)
        assert row.job.epochs == 2


def test_cold_starts_on_request(tmp_path: Path) -> None:
    script = scripts.write(tmp_path, scripts.HOROVOD)
    study = run(script, workers=[1], repeats=2, throughput=None, cold=True, steps=8)
    assert starts(study) == [(1, 0, False), (1, 1, False)]


def test_a_script_that_cannot_be_forked_goes_on_cold(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    listener = Listener()
    listener.say = said.append  # type: ignore[method-assign]
    script = scripts.write(tmp_path, BREAKS)
    study = run(script, workers=[1], repeats=3, throughput=None, steps=8, listener=listener)
    assert starts(study) == [(1, 0, False), (1, 1, False), (1, 2, False)]
    assert all(one.succeeded for one in study.launches)
    assert sum("failed when forked" in line for line in said) == 1
