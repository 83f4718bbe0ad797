"""join(): a rank that has no more data lets the others go on without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from farandole.engine import context
from farandole.engine.engine import Engine


class Sitting(Protocol):
    """Something with buckets, in which the others' steps need this rank."""

    def sit_out(self) -> bool:
        """Bring zeros to a step of the others, if they have begun one; say whether one is on.

        Called again and again. A step that has ended is counted, as the others count it.
        """

    def come_back(self) -> None:
        """Leave out a step's number, as every rank does.

        Who learns first that all have joined may begin a step while others still look for steps to
        sit out: theirs have the number that is left out.
        """


def join(engine: Engine, sitting: Sequence[Sitting]) -> int:
    """Wait until every rank has called this, taking part in the others' steps meanwhile.

    Args:
        engine: of all ranks.
        sitting: all that has buckets among them. What goes by name goes without those who have
            joined.

    Returns:
        The rank that joined last, the same on every rank.

    Raises:
        StopTraining: all ranks leave the script here.
    """
    handle, now = engine.join(), context.current()

    def all_joined() -> bool:
        in_step = [each.sit_out() for each in sitting]
        return (handle.check() or now.stopping) and not any(in_step)

    engine.loop.wait(all_joined)
    # The others leave after the step that was sat out last: nobody will join any more.
    now.stop_if_asked()
    for each in sitting:
        each.come_back()
    last = engine.wait(handle)
    now.handles.count_anew(engine.number)
    assert isinstance(last, int)
    return last
