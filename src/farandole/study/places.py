"""Where the workers of cells are: `-np 1,2,4,1x8,2x4`, hosts x workers; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from farandole.errors import UsageError
from farandole.format import plural
from farandole.launch.placement import Shape, parse_shape
from farandole.study import values

if TYPE_CHECKING:
    from farandole.study.spec import Room

Place = tuple[int, int]
"""Workers, and the hosts that share them."""


def parse_places(text: str, *, room: Room, auto: Sequence[int]) -> tuple[Place, ...]:
    """Read counts and shapes; a count takes as few hosts as have room for it.

    Raises:
        UsageError: A part cannot be read, or needs more hosts than there are.
    """
    parts = [part.strip() for part in text.split(",")]
    shapes = {part: shape for part in parts if (shape := parse_shape(part)) is not None}
    for shape in shapes.values():
        _check(shape, room)
    found = {(shape.size, shape.hosts) for shape in shapes.values()}
    counts = [part for part in parts if part not in shapes]
    if counts:
        found |= {
            packed(count, room) for count in values.counts(",".join(counts), flag="-np", auto=auto)
        }
    return tuple(sorted(found))


def packed(workers: int, room: Room) -> Place:
    """Put workers on as few hosts as have room for them, all of them if none have."""
    return workers, min(room.hosts, workers, math.ceil(workers / room.per_host))


def per_host(workers: int, hosts: int) -> int:
    """Return the workers of the fullest host; hosts share workers as evenly as they can."""
    return math.ceil(workers / hosts)


def _check(shape: Shape, room: Room) -> None:
    if shape.hosts <= room.hosts:
        return
    have = plural(room.hosts, "host")
    raise UsageError(
        f"-np {shape} needs {plural(shape.hosts, 'host')}, but this study has {have}. Run "
        "it inside of a "
        "SLURM allocation, or name hosts: -H h1:4,h2:4."
    )
