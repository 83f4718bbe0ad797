"""On the PYTHONPATH of what tests start: spares imports that take seconds and that no test needs.

Every optimizer of torch's, DistributedDataParallel and Keras import torch._dynamo, which takes as
long as torch itself, only to tell it to stay away. A module that takes their word stands in its
place until something, such as torch.compile, wants more of it: then it is imported as ever. Keras
imports whatever it finds installed; TESTS_WITHOUT names what shall seem not to be.

Python imports this before anything else; it costs nothing where there is no torch.
"""

from __future__ import annotations

import atexit
import os
import sys

# Not typing's own: importing that would be most of what this module costs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any

_NAME = "torch._dynamo"
_Module = type(sys)


class _Part:
    """A module within it, of which one function is answered here."""

    def __init__(self, name: str, **known: Any) -> None:
        self._name = name
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(_real(), self._name), name)


class _Light(_Module):
    """Takes the word of those who want nothing of it, and is replaced for all others."""

    utils = _Part("utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
    trace_rules = _Part("trace_rules", clear_lru_cache=lambda: None)

    @staticmethod
    def disable(fn: Any = None, *_: Any, **__: Any) -> Any:
        return fn if fn is not None else lambda fn: fn

    @staticmethod
    def graph_break() -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        # Whoever goes through all modules looks at such names; the path is for who imports a part.
        imported = sys.modules.get(_NAME) is self
        if name.startswith("__") and not (name == "__path__" and imported):
            raise AttributeError(name)
        return getattr(_real(), name)


def _real() -> Any:
    from importlib import import_module

    if isinstance(sys.modules.get(_NAME), _Light):
        del sys.modules[_NAME]
        _finder.light = False
    return import_module(_NAME)


class _Finder:
    """Finds the light module first; loads it, too."""

    light = True

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        if not name.startswith(_NAME):
            return None
        from importlib.machinery import ModuleSpec

        if name == _NAME and self.light:
            return ModuleSpec(name, self)  # type: ignore[arg-type]
        if name.startswith(f"{_NAME}.") and name in sys.modules:
            # Asking the light one for its path has just imported all of it.
            return ModuleSpec(name, _Loaded(sys.modules[name]))  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> Any:
        return _Light(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


class _Loaded:
    """Gives a module that is there already, as it was."""

    def __init__(self, module: Any) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._module

    def exec_module(self, module: Any) -> None:
        # Some of torch's let nobody change it.
        if module.__spec__ is not self._spec:
            module.__spec__ = self._spec


class _Hiding:
    """Another finder, which does not find some packages.

    None in sys.modules would hide them from imports, and show Keras that they were imported.
    """

    def __init__(self, finder: Any, hidden: set[str]) -> None:
        self._finder, self._hidden = finder, hidden

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        return None if name in self._hidden else self._finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def _let_gloo_rest() -> None:
    """Wait until Gloo's threads are idle.

    They let go of a last operation when its result is there already, and need the interpreter for
    it, because its tensors are Python's. A thread that asks for it while Python ends is ended on
    the spot, inside of C++ that does not allow for that: the process aborts. All of torch takes
    long enough to end.
    """
    import time
    from threading import get_native_id

    if "torch.distributed.distributed_c10d" not in sys.modules or not _finder.light:
        return
    idle, deadline = 0, time.monotonic() + 2.0
    while idle < 3 and time.monotonic() < deadline:
        time.sleep(0.001)  # which leaves the interpreter to them
        others = set(os.listdir("/proc/self/task")) - {str(get_native_id())}  # noqa: PTH208
        idle = 0 if any(map(_runs, others)) else idle + 1


def _runs(thread: str) -> bool:
    """Say whether a thread of this process computes, or waits for a core."""
    try:
        with open(f"/proc/self/task/{thread}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False


_finder = _Finder()
atexit.register(_let_gloo_rest)
_hidden = set(filter(None, os.environ.get("TESTS_WITHOUT", "").split(",")))
for _place, _other in enumerate(sys.meta_path):
    # The one that looks for files; others, such as Farandole's, look for themselves in the list.
    if _hidden and getattr(_other, "__name__", "") == "PathFinder":
        sys.meta_path[_place] = _Hiding(_other, _hidden)  # type: ignore[call-overload]
sys.meta_path.insert(0, _finder)  # type: ignore[arg-type]
