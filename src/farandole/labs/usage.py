"""What workers used, and what a step consists of, in words."""

from __future__ import annotations

from farandole.format import listed, percent, plural, seconds, size
from farandole.model.info.step import StepSplit
from farandole.model.info.utilisation import UtilisationRow

_PARTS = {
    "data": "waiting for data",
    "compute": "computing",
    "transfer": "the transfer of gradients",
    "waiting": "waiting for the slowest worker",
    "optimizer": "the update",
}
_LEAST_SHARE = 0.005


def use_words(row: UtilisationRow) -> str:
    """Say how busy the workers of a cell were, and what memory each took."""
    shares = [cpu for _, cpu, _, _ in row.by_rank if cpu is not None]
    memory = [taken for *_, taken in row.by_rank if taken is not None]
    words = f"{plural(row.cell.workers, 'worker')}: "
    parts = []
    if shares:
        parts.append(f"{_span(percent(min(shares)), percent(max(shares)))} of its cores busy")
    if memory:
        parts.append(f"{_span(size(min(memory)), size(max(memory)))} of memory")
    return f"{words}each has {listed(parts) or 'no figure of its use'}."


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def split_words(split: StepSplit) -> str:
    """Say what a typical step of a cell consists of, the largest part first."""
    parts = [(part, name) for name, part in split.parts().items() if part is not None]
    told = [
        f"{percent(part / split.step_s)} {_PARTS[name]}"
        for part, name in sorted(parts, reverse=True)
        if part / split.step_s >= _LEAST_SHARE
    ]
    return (
        f"A step of {seconds(split.step_s)} on {plural(split.cell.workers, 'worker')} is "
        f"{listed(told)}."
    )
