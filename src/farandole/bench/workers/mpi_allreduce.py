"""Open MPI's all-reduce through mpi4py. Options: sizes {series: [elements, repeats]}."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

if TYPE_CHECKING:
    from farandole.bench.workers import harness
else:
    import harness


def main() -> None:
    given = harness.options()
    world = MPI.COMM_WORLD
    series = {}
    for name, (num_elements, repeats) in given["sizes"].items():
        array = np.ones(num_elements, dtype=np.float32)
        series[name] = harness.time_allreduces(
            partial(world.Allreduce, MPI.IN_PLACE, array),
            array,
            array.fill,
            num_ranks=world.size,
            repeats=repeats,
        )
    harness.forbid_farandole()
    harness.report(
        given,
        rank=world.rank,
        series=series,
        facts={"mpi": MPI.Get_library_version().split(",")[0]},
    )


if __name__ == "__main__":
    main()
