"""`import horovod.torch as hvd` answered by Farandole, so that Horovod scripts run unchanged.

A finder by its method, not by its base class: see startup.py.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# The release whose names and meanings these are; scripts print it.
VERSION = "0.28.1"
_ROOMS = {
    "torch": "farandole.torch",
    "keras": "farandole.keras",
    "tensorflow": "farandole.tensorflow",
    "common": "farandole.horovod.common",
    "runner": "farandole.horovod.runner",
}
_MODULES = {"common.elastic": "farandole.elastic.state"}
_INSTEAD = {
    "ray": "Instead of RayExecutor, use farandole.ray.run(fn, num_workers=N): docs/how-to/ray.md.",
}
# Scripts import what they need at their top; a data file that is named like a script may be long.
_LOOKED_AT_BYTES = 1 << 20


def install(*, if_missing: bool = False) -> None:
    """Answer imports of horovod from here on.

    Args:
        if_missing: Let an installed Horovod through, and one that was imported before.

    Raises:
        ImportError: Another horovod was imported before.
    """
    before = sys.modules.get("horovod")
    if before is not None:
        if if_missing or _is_ours(before):
            return
        raise ImportError(
            "horovod was imported before farandole.horovod, so that it is not Farandole. Import "
            "farandole.horovod first.",
            name="horovod",
        )
    if if_missing and any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    withdraw(sys.meta_path)
    # Finders are asked in their order: the last one hears of what nobody has found.
    sys.meta_path.insert(len(sys.meta_path) if if_missing else 0, _Finder())


def withdraw(finders: list[Any]) -> None:
    """Answer no more imports that come by these finders (`sys.meta_path`)."""
    finders[:] = [finder for finder in finders if not isinstance(finder, _Finder)]


def wants_horovod(arguments: Sequence[str]) -> bool:
    """Say whether a command's script has the word horovod in it.

    Args:
        arguments: The command; its first Python file is looked at.
    """
    script = next((each for each in arguments if each.endswith(".py")), None)
    if script is None:
        return False
    try:
        # Not by pathlib: workers have not imported it when this is asked.
        with open(script, "rb") as file:  # noqa: PTH123
            return b"horovod" in file.read(_LOOKED_AT_BYTES)
    except OSError:
        return False


class _Finder:
    """Finds horovod, and below it whatever Farandole has of it."""

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
            _say_unless_said()
            return ModuleSpec(fullname, _Package(), is_package=True)  # type: ignore[arg-type]
        parent = sys.modules.get("horovod")
        if parent is not None and not _is_ours(parent):
            return None  # an installed Horovod without that part
        room, dot, rest = fullname.removeprefix("horovod.").partition(".")
        meant = _MODULES.get(f"{room}{dot}{rest}")
        meant = meant or f"{_ROOMS.get(room, f'farandole.{room}')}{dot}{rest}"
        if room not in _ROOMS or find_spec(_ROOMS[room]) is None or find_spec(meant) is None:
            advice = _INSTEAD.get(room, "docs/reference/horovod.md lists what it has.")
            # Of a module that is there, what it has is something else.
            what = meant if room not in _INSTEAD else f"Horovod's {room}"
            raise ModuleNotFoundError(
                f"{fullname} is not there: horovod resolves to Farandole here, which has no "
                f"{what}. {advice} Under `farandole run`, --horovod-alias off lets an installed "
                "Horovod through.",
                # Not the name asked for: Python's `from horovod import spark` would say instead
                # that it cannot import that name, and no more.
                name=meant,
            )
        return ModuleSpec(fullname, _Alias(meant))  # type: ignore[arg-type]


class _Package:
    """Makes the package `horovod`, which has a version, `run` and the rooms below it."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__version__ = VERSION  # type: ignore[attr-defined]
        module.__getattr__ = _attribute  # type: ignore[method-assign]


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


def _attribute(name: str) -> Any:
    """Find `horovod.run`; `from horovod import spark` says what is missing like `import` does."""
    if name == "run":
        from farandole.horovod.runner import run

        return run
    raise AttributeError(
        f"horovod has no {name}: it resolves to Farandole here. docs/reference/horovod.md lists "
        "what there is.",
        name=name,
    )


def _is_ours(module: ModuleType) -> bool:
    return isinstance(getattr(module, "__loader__", None), _Package)


def _say_unless_said() -> None:
    """Tell who answers, where the launcher could not see that it would be asked."""
    # A helper of the worker, such as a loader process, has nothing to tell.
    worker = os.environ.get("FARANDOLE_HOOKED") == str(os.getpid())
    if worker and os.environ.get("FARANDOLE_RANK") == "0" and not wants_horovod(sys.orig_argv):
        sys.stderr.write("farandole: `import horovod` resolves to Farandole.\n")
