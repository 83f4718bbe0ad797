"""What agreement on names costs: of a model's parameter tensors, and of operations in any order."""

from __future__ import annotations

from farandole.bench.roster import FARANDOLE, hvd
from farandole.bench.rows import Claim, Group, Quantity, RowPlan, Settings

# ResNet-50 has 161 parameter tensors.
_TENSORS = 161
_OPERATIONS, _ELEMENTS = 1000, 256


def names(settings: Settings) -> list[Group]:
    """Return the rows of `farandole bench names`."""
    options = {
        "tensors": _TENSORS,
        "steps": settings.timed(300),
        "operations": _OPERATIONS,
        "elements": _ELEMENTS,
        "rounds": settings.timed(60),
    }
    contestants = [hvd(FARANDOLE, "hvd_names", settings.num_ranks, options)]
    if "horovod" in settings.peers:
        contestants.append(hvd("horovod", "hvd_names", settings.num_ranks, options))
    together = tuple(contestant.name for contestant in contestants)
    rows = (
        RowPlan(
            key="names-agreement",
            title=f"synchronize() of {_TENSORS} gradients of one number each",
            series="agreement",
            contestants=together,
            claims=(_at_most("200 us at most", 200e-6),),
        ),
        RowPlan(
            key="names-opposite",
            title=f"{_OPERATIONS:,} named all-reduces of {_ELEMENTS} float32, in opposite orders",
            series="opposite",
            contestants=together,
            claims=(_at_most("15 ms at most", 15e-3),),
        ),
    )
    return [Group(key="names", contestants=tuple(contestants), rows=rows)]


def _at_most(text: str, to_reach: float) -> Claim:
    return Claim(text=text, quantity=Quantity.TIME_S, subject=FARANDOLE, to_reach=to_reach)
