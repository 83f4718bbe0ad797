"""One setting to project to: workers on hosts, what connects them, what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from farandole.model.projection.asked import Price
from farandole.model.projection.records import LinkSpeed

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Workers, and where they run."""

    workers: int
    per_host: int
    link: LinkSpeed | None = None
    """Between hosts, or between the workers of one; None: as measured."""
    price: Price | None = None
    whole_hosts: bool = False
    """Whether one host is billed as a whole, too, its size being given."""
    speed: float = 1.0
    """How many times as fast as the measured machine's a worker computes."""
    measured_hosts: int | None = None
    """How many it was measured on; None where it was not."""

    @property
    def hosts(self) -> int:
        """How many it is on: those it was measured on, or as many as are needed."""
        return self.measured_hosts or math.ceil(self.workers / self.per_host)

    @property
    def linked(self) -> int:
        """How many places the link connects: hosts, or the workers of a single one."""
        return self.workers if self.link is not None and self.hosts == 1 else self.hosts

    @property
    def cost_per_s(self) -> float | None:
        """What a second costs, whole hosts billed; None without a price.

        A price of a worker pays for all workers of every host. On a single host of a size that
        nobody gave, only those in use are paid for: it may be rented smaller.
        """
        if self.price is None:
            return None
        if self.price.per == "host":
            return self.hosts * self.price.amount / _HOUR_S
        whole = self.hosts > 1 or self.whole_hosts
        billed = self.hosts * self.per_host if whole else self.workers
        return billed * self.price.amount / _HOUR_S
