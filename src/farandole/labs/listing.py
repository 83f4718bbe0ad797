"""The labs that there are, each imported when it is used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from farandole.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from farandole.labs.lab import Lab

# In the order in which they are listed, with the frameworks that their scripts import. What data
# need beside them (Pillow, scikit-learn) depends on the data: their loaders say so.
_NEEDS: dict[str, tuple[str, ...]] = {
    "cifar10": ("torch",),
    "mnist": ("keras", "torch"),
    "driving": ("keras", "torch"),
    "fruits": ("keras", "torch"),
    "caltech": ("keras", "torch"),
    "faces": ("keras", "torch"),
}
_EXTRAS = {"torch": "torch", "keras": "labs"}


def names() -> tuple[str, ...]:
    """Name the labs of this installation."""
    return tuple(name for name in _NEEDS if _is_there(f"farandole.labs.{name}"))


def load(name: str) -> Lab:
    """Return a lab.

    Raises:
        UsageError: There is none of this name; the message lists those that there are.
    """
    if name not in names():
        listed = ", ".join(names()) or "none in this installation"
        raise UsageError(f"there is no lab {name!r}. Labs: {listed}.")
    module = importlib.import_module(f"farandole.labs.{name}")
    if not hasattr(module, "LAB"):  # a lab that is still a folder
        module = importlib.import_module(f"farandole.labs.{name}.lab")
    lab: Lab = module.LAB
    return lab


def check_packages(name: str, is_there: Callable[[str], bool] | None = None) -> None:
    """Refuse a lab whose script could not be run.

    Args:
        name: The lab's.
        is_there: Tells whether a module can be imported; this Python's own when None.

    Raises:
        MissingExtraError: A package is not installed; names the extra that brings it.
    """
    there = is_there or _is_there
    missing = [module for module in _NEEDS.get(name, ()) if not there(module)]
    if not missing:
        return
    named = " and ".join(missing)
    extras = ",".join(_EXTRAS[module] for module in missing)
    cpu = (
        " (a machine without a GPU can do with the smaller CPU build of torch; pytorch.org shows "
        "its pip line)"
        if "torch" in missing
        else ""
    )
    raise MissingExtraError(
        f"farandole lab {name} needs {named}, which this Python ({sys.executable}) does not have. "
        f"Run: pip install 'farandole[{extras}]'{cpu}."
    )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # the package around it is not there
