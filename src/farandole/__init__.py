"""Data-parallel training, and how many workers it pays to use.

Importing this package imports neither torch nor numpy; the names below load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farandole.version import __version__

if TYPE_CHECKING:
    from farandole.api import study
    from farandole.launch.function import run
    from farandole.recorder.record import param, record
    from farandole.study.records import Study

__all__ = ["Study", "__version__", "param", "record", "run", "study"]

_LAZY = {
    "Study": "farandole.study.records",
    "param": "farandole.recorder.record",
    "record": "farandole.recorder.record",
    "run": "farandole.launch.function",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "study":
        # A package that can be called; importing it puts it here.
        return import_module("farandole.study")
    if name in _LAZY:
        # Kept: a script may report in every step.
        found = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return found
    raise AttributeError(f"module 'farandole' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
