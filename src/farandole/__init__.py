"""Data-parallel training, and how many workers it pays to use.

Importing this package imports neither torch nor numpy; the names below load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farandole.version import __version__

if TYPE_CHECKING:
    from farandole.launch.function import run
    from farandole.recorder.param import param
    from farandole.recorder.record import record

__all__ = ["__version__", "param", "record", "run"]

_LAZY = {
    "param": "farandole.recorder.param",
    "record": "farandole.recorder.record",
    "run": "farandole.launch.function",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        # Kept: a script may report in every step.
        found = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return found
    raise AttributeError(f"module 'farandole' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
