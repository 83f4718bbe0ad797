"""On the PYTHONPATH of what tests start: spares imports that take seconds and that no test needs.

Every optimizer of torch's, DistributedDataParallel and Keras import torch._dynamo, which takes as
long as torch itself, only to tell it to stay away. Half of what torch itself takes to import is
what its operations give for tensors without data, exporting models, transforms of functions,
quantization, distributions. Light modules stand in the place of these until something, such as
torch.compile, wants more of them: then they are imported as ever. Keras imports whatever it finds
installed; TESTS_WITHOUT names what shall seem not to be.

Python imports this before anything else; it costs nothing where there is no torch.
"""

from __future__ import annotations

import atexit
import os
import sys
from importlib.machinery import PathFinder

# Not typing's own: importing that would be most of what this module costs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any

_Module = type(sys)
_ORDER = ("torch.func", "torch._higher_order_ops")
_REGION = "torch._higher_order_ops.invoke_subgraph"
_META = "torch._meta_registrations"
# What nothing else of torch's needs.
_ALONE = (
    "torch._subclasses",
    "torch.distributions",
    "torch.hub",
    "torch.masked",
    "torch.nested",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
    "torch.quantization",
)


class _Light(_Module):
    """Stands for a module that nobody wants anything of yet, and is replaced when somebody does."""

    def __getattr__(self, name: str) -> Any:
        # Whoever goes through all modules looks at such names; the path is for who imports a part.
        imported = sys.modules.get(self.__name__) is self
        if name.startswith("__") and not (name == "__path__" and imported):
            raise AttributeError(name)
        return getattr(_real(self.__name__), name)


class _Part:
    """A module within torch._dynamo, of which one function is answered here."""

    def __init__(self, name: str, **known: Any) -> None:
        self._name = name
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(_real("torch._dynamo"), self._name), name)


class _Dynamo(_Light):
    """Takes the word of those who want nothing of it."""

    utils = _Part("utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
    trace_rules = _Part("trace_rules", clear_lru_cache=lambda: None)

    @staticmethod
    def disable(fn: Any = None, *_: Any, **__: Any) -> Any:
        return fn if fn is not None else lambda fn: fn

    @staticmethod
    def graph_break() -> None:
        pass


class _Functions(_Light):
    """Has functions that torch puts among its own; a call imports what they are of."""

    # For `from ... import`, which asks for it; the finder knows better where parts are.
    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name not in ("vmap", "cond", "while_loop", "tqdm"):
            return super().__getattr__(name)

        def function(*arguments: Any, **named: Any) -> Any:
            return getattr(_real(self.__name__), name)(*arguments, **named)

        return function


class _Region(_Functions):
    """Has a type that torch.compiler annotates an argument with."""

    NestedCompileRegionOptions = object


def _real(name: str) -> Any:
    """Import a module in place of the light one."""
    if name == "torch._subclasses" and _ORDER[0] in _finder.light:
        _real(_ORDER[0])
    from importlib import import_module

    if name in ("torch._dynamo", "torch.export"):
        _real(_META)
    if name not in _ALONE:
        # In torch's own order: they import each other.
        for first in _ORDER[: _ORDER.index(name) if name in _ORDER else None]:
            if first in _finder.light:
                _real(first)
    if name == "torch._higher_order_ops" and _finder.light.pop(_REGION, None):
        sys.modules.pop(_REGION, None)
    _finder.light.pop(name, None)
    if isinstance(sys.modules.get(name), _Light):
        del sys.modules[name]
    return import_module(name)


class _Finder:
    """Finds light modules first; loads them, too."""

    def __init__(self) -> None:
        self.light: dict[str, type[_Light]] = {
            "torch._dynamo": _Dynamo,
            "torch.export": _Light,
            # Nobody asks for these by name: what tensors without data can do.
            _META: _Light,
            "torchgen.model": _Light,
            "torch.func": _Functions,
            "torch._higher_order_ops": _Functions,
            _REGION: _Region,
            "torch._subclasses": _Light,
            "torch.distributions": _Light,
            "torch.hub": _Functions,
            "torch.masked": _Light,
            "torch.nested": _Light,
            "torch.nn.intrinsic": _Light,
            "torch.nn.qat": _Light,
            "torch.nn.quantizable": _Light,
            "torch.nn.quantized": _Light,
            "torch.quantization": _Light,
        }
        self._parts = tuple(f"{name}." for name in self.light)
        # Who computes with such tensors.
        self._users = {"keras", "torch.distributed.fsdp", "torch.distributed.tensor"}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        package = name.rpartition(".")[0]
        light = package in sys.modules and self.light.get(package) is _Functions
        if light and name not in self.light:
            found = _real(package)
            if name not in sys.modules:
                return PathFinder.find_spec(name, found.__path__)
        if name in self._users and self.light.pop(_META, None) and _META in sys.modules:
            _real(_META)
        if name not in self.light and not (name in sys.modules and name.startswith(self._parts)):
            return None
        from importlib.machinery import ModuleSpec

        if name in self.light:
            return ModuleSpec(name, self)  # type: ignore[arg-type]
        # Asking the light one for its path has just imported all of it.
        return ModuleSpec(name, _Loaded(sys.modules[name]))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> Any:
        return self.light[spec.name](spec.name)

    def exec_module(self, module: Any) -> None:
        if module.__name__ == "torch.func":
            # With which torch itself would import it; others ask torch for it.
            import torch._subclasses  # noqa: F401
        if module.__name__ == _META:
            # The one thing among all that comes with it which tensors with data need, too.
            from torch import _C
            from torch._opaque_base import OpaqueBaseMeta

            _C._set_generator_metaclass(OpaqueBaseMeta)


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

    names = ("torch.distributed.distributed_c10d", "torch._dynamo")
    if names[0] not in sys.modules or names[1] not in _finder.light:
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
