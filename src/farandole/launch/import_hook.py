"""What modules a script imports: which take long, and doing something once some are there."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

SLOW_IMPORTS = (
    *("numpy", "scipy", "pandas", "PIL.Image", "h5py", "sklearn", "sklearn.datasets"),
    # The compiler: optimizers import it at their first step.
    *("torch", "torch._dynamo", "torch.utils.data", "torchvision", "accelerate", "transformers"),
    *("lightning", "pytorch_lightning", "tensorflow", "jax", "keras"),
)
"""Modules that take long to import, and that can be imported before a process forks."""


def after_import(names: Sequence[str], action: Callable[[], None]) -> None:
    """Call the action as soon as all these modules have been imported completely."""
    missing = {name for name in names if name not in sys.modules}
    if missing:
        sys.meta_path.insert(0, _Watcher(missing, action))
    else:
        action()


class _Watcher:
    """Sees modules come, and lets the other finders find them.

    A finder by its method, not by its base class: importing that takes 20 ms of a worker's start.
    """

    def __init__(self, missing: set[str], action: Callable[[], None]) -> None:
        self._missing = missing
        self._action = action

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname not in self._missing:
            return None
        # Out of the way while the others look, or they would ask here again.
        sys.meta_path.remove(self)
        try:
            spec = find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        loader = spec.loader if spec else None
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # The loader is as it was before the module's own code sees it.
            loader.__dict__.pop("exec_module", None)
            execute(module)
            self._arrived(fullname)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _arrived(self, name: str) -> None:
        self._missing.discard(name)
        if not self._missing:
            sys.meta_path.remove(self)
            self._action()
