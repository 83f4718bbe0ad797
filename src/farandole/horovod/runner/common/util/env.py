"""Who this process is, before `hvd.init()`."""

from __future__ import annotations

import os

from farandole.world.environment import read_world


def get_env_rank_and_size() -> tuple[int, int]:
    """Return the rank and size that the launcher set; (0, 1) without one."""
    world = read_world(os.environ)
    return world.rank, world.size
