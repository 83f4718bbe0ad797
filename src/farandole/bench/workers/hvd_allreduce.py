"""The all-reduce of Horovod's API, Farandole's or Horovod's own.

Options: module ("farandole.torch" or "horovod.torch"), sizes {series: [elements, repeats]}.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from farandole.bench.workers import harness
else:
    import harness


def main() -> None:
    given = harness.options()
    hvd = importlib.import_module(given["module"])
    torch.set_num_threads(1)
    hvd.init()
    series = {}
    for name, (num_elements, repeats) in given["sizes"].items():
        tensor = torch.ones(num_elements)
        series[name] = harness.time_allreduces(
            partial(hvd.allreduce_, tensor, name=name, op=hvd.Sum),
            tensor,
            tensor.fill_,
            num_ranks=hvd.size(),
            repeats=repeats,
        )
    harness.report(given, rank=hvd.rank(), series=series)
    hvd.shutdown()


if __name__ == "__main__":
    main()
