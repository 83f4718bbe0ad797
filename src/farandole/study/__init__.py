"""Scaling studies. The package itself can be called: `farandole.study(["python", "train.py"])`.

A package and a function cannot both be `farandole.study`, so that this one is both.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A module that passes calls on to `farandole.api.study`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from farandole.api import study

        return study(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
