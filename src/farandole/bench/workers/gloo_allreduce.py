"""torch's own Gloo all-reduce. Options: sizes {series: [elements, repeats]}, and the start's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from farandole.bench.workers import gloo, harness
else:
    import gloo
    import harness


def main() -> None:
    given = harness.options()
    torch.set_num_threads(1)
    gloo.join(given)
    series = {}
    for name, (num_elements, repeats) in given["sizes"].items():
        tensor = torch.ones(num_elements)
        series[name] = harness.time_allreduces(
            partial(dist.all_reduce, tensor),
            tensor,
            tensor.fill_,
            num_ranks=given["num_ranks"],
            repeats=repeats,
        )
    harness.forbid_farandole()
    harness.report(given, rank=given["rank"], series=series)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
