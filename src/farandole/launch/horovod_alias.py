"""`import horovod.torch as hvd` answered by Farandole, so that Horovod scripts run unchanged.

A finder by its method, not by its base class: see import_hook.py.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_ROOMS = ("torch", "keras", "tensorflow")
# The release whose names and meanings these are; scripts print it.
_VERSION = "0.28.1"


def install(*, if_missing: bool = False) -> None:
    """Answer imports of horovod from here on; those that were made before stay.

    Args:
        if_missing: Let an installed Horovod through.
    """
    if "horovod" not in sys.modules:
        # Finders are asked in their order: the last one hears of what nobody has found.
        sys.meta_path.insert(len(sys.meta_path) if if_missing else 0, _Finder())


class _Finder:
    """Finds horovod, and below it whatever front doors Farandole has."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != "horovod" and not fullname.startswith("horovod."):
            return None
        from importlib.machinery import ModuleSpec
        from importlib.util import find_spec

        if fullname == "horovod":
            # Ours from here on: its parts are not to be looked for in our own folders.
            sys.meta_path.remove(self)
            sys.meta_path.insert(0, self)
            return ModuleSpec(fullname, _Package(), is_package=True)  # type: ignore[arg-type]
        parent = sys.modules.get("horovod")
        if parent is not None and not isinstance(getattr(parent, "__loader__", None), _Package):
            return None  # an installed Horovod without that part
        meant = fullname.replace("horovod", "farandole", 1)
        room = meant.split(".")[1]
        if room not in _ROOMS or find_spec(f"farandole.{room}") is None or find_spec(meant) is None:
            raise ModuleNotFoundError(
                f"{fullname} is not there: Farandole answers for horovod under `farandole run` "
                f"and has no {meant}. With --horovod-alias off an installed Horovod is used.",
                name=fullname,
            )
        return ModuleSpec(fullname, _Alias(meant))  # type: ignore[arg-type]


class _Package:
    """Makes the package `horovod`, which has a version and its front doors."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__version__ = _VERSION  # type: ignore[attr-defined]


class _Alias:
    """Puts the module that is meant into the place of the one asked for."""

    def __init__(self, meant: str) -> None:
        self._meant = meant

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        from importlib import import_module

        # Python's import takes what it finds here after this call.
        sys.modules[module.__name__] = import_module(self._meant)
