"""The hosts of a study: which of them a cell's workers are on, and what starts them there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farandole.launch.placement import HostShare, Placement

if TYPE_CHECKING:
    from farandole.launch.output import Show
    from farandole.launch.plan import Plan
    from farandole.launch.starters import Starter
    from farandole.launch.supervision import Outcome, Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Hosts in order, and a way to start workers on them."""

    names: tuple[str, ...]
    starter: Starter

    def launch(
        self,
        plan: Plan,
        num_hosts: int,
        *,
        environ: Mapping[str, str],
        show: Show,
        watch: Watch,
    ) -> Outcome:
        """Start the workers of a plan on the first hosts and stay until all have ended.

        Raises:
            StartError: A host cannot be used.
        """
        from farandole.launch.hosts import launch_hosts

        return launch_hosts(
            plan,
            share_out(self.names[:num_hosts], plan.num_workers),
            self.starter,
            environ=environ,
            show=show,
            # What this launch sets for its workers, whatever it is called.
            extra_variables=[
                f"{name}={text}" for name, text in environ.items() if os.environ.get(name) != text
            ],
            watch=watch,
        )


def share_out(names: tuple[str, ...], num_workers: int) -> Placement:
    """Share workers as evenly as hosts can, the first ones having one more where it does not go."""
    each, more = divmod(num_workers, len(names))
    shares, first = [], 0
    for number, name in enumerate(names):
        last = first + each + (number < more)
        shares.append(HostShare(name=name, ranks=tuple(range(first, last))))
        first = last
    return Placement(hosts=tuple(shares))
