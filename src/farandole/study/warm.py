"""Which launches of a study start warm, and the process that they are forked from.

The first launch of each cell starts cold: its length is that of the user's job. What it imported is
imported ahead for its repeats, of which steps, epochs and accuracy count.
"""

from __future__ import annotations

import sys

from farandole.launch.warm import WarmServer
from farandole.study.records import Launch
from farandole.study.spec import Spec


class WarmStarts:
    """Decides for each launch of a study, and holds the process; as a context it ends that."""

    def __init__(self, spec: Spec, *, here: bool = True) -> None:
        """Begin; only workers that start here, and use no GPU that their parent has seen, fork."""
        here = here and spec.launcher is None and not spec.room.gpus
        self._wanted = spec.warm and here and sys.platform == "linux"
        self._server: WarmServer | None = None
        self._cold: set[object] = set()
        """Cells and purposes that have had their cold launch."""

    def __enter__(self) -> WarmStarts:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_up()

    def server(self, launch: Launch) -> WarmServer | None:
        """Return what to fork the workers of a launch from; None where it is to start cold."""
        return self._server if (launch.cell, launch.purpose) in self._cold else None

    def learn(self, launch: Launch) -> None:
        """Take note of a launch that has ended, by what its first worker imported."""
        if not self._wanted or launch.warm or not launch.succeeded or not launch.ranks:
            return
        modules = launch.ranks[0].modules
        if self._server is None and modules:
            self._server = WarmServer(modules)
        self._cold.add((launch.cell, launch.purpose))

    def cpu_s(self) -> float:
        """Return the CPU time of the process and of what was forked from it and has ended."""
        return 0.0 if self._server is None else self._server.cpu_s()

    def give_up(self) -> None:
        """Start all further launches cold."""
        self._wanted = False
        if self._server is not None:
            self._server.close()
            self._server = None
