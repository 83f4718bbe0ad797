"""Joining torch's own Gloo group on one host, without a port that might be taken."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


def join(given: dict[str, Any]) -> None:
    """Initialise torch's default group; the ranks find each other through a file."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{given['rendezvous']}",
        rank=given["rank"],
        world_size=given["num_ranks"],
    )
