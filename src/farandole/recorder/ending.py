"""How a launch ends early: the exception that leaves the script, and what is refused after it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from types import TracebackType
from typing import Any

from farandole.errors import CollectiveError

_REFUSAL = (
    "The study has ended this launch at an agreed step: it knows what it wanted to know, and the "
    "other workers have left. No more is exchanged between them; nothing needs to be done."
)
# torch.distributed by function and by method of a group: scripts may hold on to either.
_FUNCTIONS = (
    *("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object"),
    *("all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier"),
    *("batch_isend_irecv", "broadcast", "broadcast_object_list", "gather", "gather_object"),
    *("irecv", "isend", "monitored_barrier", "recv", "reduce", "reduce_scatter"),
    *("reduce_scatter_tensor", "scatter", "scatter_object_list", "send"),
)
_METHODS = (
    *("allgather", "_allgather_base", "allgather_coalesced", "allreduce", "allreduce_coalesced"),
    *("alltoall", "alltoall_base", "barrier", "broadcast", "gather", "monitored_barrier", "recv"),
    *("recv_anysource", "reduce", "reduce_scatter", "_reduce_scatter_base", "scatter", "send"),
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
    """Refuse all collectives from here on, and let this process end with success."""
    global _ended
    if _ended:
        return
    _ended = True
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None:
        _refuse(distributed)
    _silence_consequences()
    atexit.register(_leave)


def is_consequence(error: BaseException | None) -> bool:
    """Say whether an error came of the launch's end: a refusal, or what failed on the way out."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, StopLaunch | LaunchEndedError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _refuse(distributed: Any) -> None:
    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise LaunchEndedError

    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    for module in (distributed, c10d):
        for name in _FUNCTIONS:
            if hasattr(module, name):
                setattr(module, name, refused)
    group = getattr(distributed, "ProcessGroup", None)
    for kind in (group, *group.__subclasses__()) if group is not None else ():
        for name in _METHODS:
            if hasattr(kind, name):
                with contextlib.suppress(TypeError):  # a class that cannot be changed
                    setattr(kind, name, refused)


def _silence_consequences() -> None:
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not is_consequence(error):
            before(kind, error, trace)
            return
        # Nobody who looks later for what ended the script shall find a failure.
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            sys.__dict__.pop(name, None)

    sys.excepthook = hook


def _leave() -> None:
    """Run whatever else is to run at exit, then end with success whatever the script made of it."""
    atexit.unregister(_leave)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _finalise_mpi()
    os._exit(0)


def _finalise_mpi() -> None:
    """Take leave of MPI, which mpi4py does later than this process lives; mpirun minds."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()
