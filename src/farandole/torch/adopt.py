"""What Farandole adds to torch.distributed in a worker that `farandole run` has started.

It makes the backend "farandole" known. With `--transport shm`, said explicitly, a script's own
Gloo group is answered by shared memory; otherwise it is left alone, and one line tells of it.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

_HINT = (
    "farandole: this script's own Gloo group goes over TCP; `farandole run --transport shm` "
    "answers it with shared memory.\n"
)


def install(distributed: Any) -> None:
    """Wrap torch.distributed's init_process_group; called when torch.distributed was imported."""
    original = distributed.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return original(_backend(distributed, backend), *args, **kwargs)

    distributed.init_process_group = init_process_group
    distributed.distributed_c10d.init_process_group = init_process_group


def _backend(distributed: Any, asked: str | None) -> str | None:
    """Return the backend to use in place of the one asked for."""
    from farandole.engine.context import is_initialized
    from farandole.torch import process_group

    process_group.register()
    if asked is None:
        import torch

        gloo = not torch.cuda.is_available()
    else:
        gloo = asked.lower() in ("gloo", "cpu:gloo")
    if not gloo or os.environ.get("FARANDOLE_SIZE") == "1":
        return asked
    if os.environ.get("FARANDOLE_TRANSPORT") == "shm":
        return process_group.NAME
    asked_for_tcp = os.environ.get("FARANDOLE_TRANSPORT") == "gloo"
    # Who uses Farandole's own operations, too, has a group of their own for a reason.
    if os.environ.get("FARANDOLE_RANK") == "0" and not asked_for_tcp and not is_initialized():
        sys.stderr.write(_HINT)
    return asked
