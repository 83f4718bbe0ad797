"""How a launch ends early: the exception that leaves the script, and what is refused after it."""

from __future__ import annotations

from farandole.errors import CollectiveError

_REFUSAL = (
    "The study has ended this launch at an agreed step: it knows what it wanted to know, and the "
    "other workers have left. No more is exchanged between them; nothing needs to be done."
)

_ended = False


class StopLaunch(SystemExit):
    """The study has seen enough: leave the script, with success.

    Not an Exception, so that `except Exception` around a training step does not take it for one.
    """

    def __init__(self) -> None:
        super().__init__(0)


class LaunchEndedError(CollectiveError):
    """A collective operation after the study has ended the launch: refused, not hung."""

    def __init__(self) -> None:
        super().__init__(_REFUSAL)


def ended() -> bool:
    """Say whether the study has ended this launch in this process."""
    return _ended


def refuse_if_ended() -> None:
    """Raise LaunchEndedError if the other workers have left for good."""
    if _ended:
        raise LaunchEndedError


def end() -> None:
    """Refuse all collectives from here on."""
    global _ended
    _ended = True
