"""A SLURM of two nodes for all tests that need a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from farandole.testing.slurm import SlurmCluster, why_not


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := why_not():
        pytest.skip(f"{reason} (.ci/run installs it, and runs this as root)")
    with SlurmCluster(tmp_path_factory.mktemp("slurm") / "cluster") as made:
        yield made
