"""Where a typical step goes."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.study.records import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSplit:
    """Where a typical step of a cell goes. The parts that were measured add up to `step_s`."""

    cell: Cell
    label: str
    step_s: float
    data_s: float | None
    compute_s: float | None
    """Forward, backward, and whatever of the others was not measured."""
    transfer_s: float | None
    """Exposed communication without the wait for slower ranks."""
    waiting_s: float | None
    """For the slowest peer; None across hosts."""
    exposed_s: float | None
    """transfer + waiting, known also where the two cannot be told apart."""
    optimizer_s: float | None
    hidden_s: float | None
    """Communication that ran beside computing; not part of the sum."""
    slowest_rank: int | None
    """The rank that the others waited for most often."""
    slowest_share: float | None
    """In which share of the steps."""
    compute_by_rank_s: tuple[tuple[int, float], ...] = ()

    def parts(self) -> dict[str, float | None]:
        """Return the parts in the order in which they are stacked."""
        parts = {
            "data": self.data_s,
            "compute": self.compute_s,
            "transfer": self.transfer_s,
            "waiting": self.waiting_s,
            "optimizer": self.optimizer_s,
        }
        if self.transfer_s is None and self.exposed_s is not None:
            parts["transfer"] = self.exposed_s
        return parts
