"""A real SLURM in a folder: its nodes are there, and nothing of it is left."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from farandole.errors import UsageError
from farandole.testing import slurm
from farandole.testing.slurm import SlurmCluster, why_not

pytestmark = pytest.mark.ranks


def test_nodes_run_jobs_and_nothing_is_left(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(f"{reason} (.ci/run installs it, and runs this as root)")
    with SlurmCluster(tmp_path / "cluster", num_nodes=1, cpus=3) as cluster:
        assert cluster.nodes == ("n1",)
        assert cluster.call("sinfo", "--noheader", "--Node", "--format=%N %c %T") == "n1 3 idle\n"
        assert cluster.call("srun", "printenv", "SLURMD_NODENAME") == "n1\n"
    left = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"]]
    assert [line for line in left if str(tmp_path) in " ".join(line)] == []


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_PATH", str(tmp_path))
    why_not.cache_clear()
    try:
        with pytest.raises(UsageError, match="apt-get install slurm-wlm munge"):
            SlurmCluster(tmp_path / "cluster")
    finally:
        why_not.cache_clear()
