from __future__ import annotations

from pathlib import Path

import pytest

from farandole.launch.plan import count_gpus


@pytest.mark.parametrize(
    ("present", "visible", "count"),
    [(0, None, 0), (0, "0,1", 0), (4, None, 4), (4, "0,2", 2), (4, "", 0), (4, "-1", 0)],
)
def test_counts(tmp_path: Path, present: int, visible: str | None, count: int) -> None:
    for number in range(present):
        (tmp_path / f"proc/driver/nvidia/gpus/{number}").mkdir(parents=True)
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert count_gpus(environ, tmp_path) == count
