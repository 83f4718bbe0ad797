"""What scripts ask before they begin: which frameworks and libraries there are."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar

from farandole.engine.names import ccl_built, ddl_built, gloo_built, mpi_built, nccl_built

__all__ = [
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "ddl_built",
    "env",
    "extension_available",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]

T = TypeVar("T")


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Say whether a framework ("torch", "tensorflow", "keras") can be used.

    Args:
        ext_base_name: Its name.
        verbose: Taken and not needed: nothing is started to find out.
    """
    return all(
        find_spec(name) is not None for name in (ext_base_name, f"farandole.{ext_base_name}")
    )


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Say whether a framework sees a GPU.

    Args:
        ext_base_name: Its name; "torch" and "tensorflow" are known.
        verbose: Taken and not needed.
    """
    if not extension_available(ext_base_name):
        return False
    if ext_base_name == "torch":
        import torch

        return torch.cuda.is_available()
    import tensorflow

    return bool(tensorflow.config.list_physical_devices("GPU"))


@contextlib.contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """Set variables of the environment for a while; those of None stay as they are."""
    given = {name: value for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    try:
        os.environ.update(given)
        yield
    finally:
        _set(before)


def split_list(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Cut a list into parts of equal length, the first ones longer by one if need be."""
    each, more = divmod(len(items), parts)
    stops = [(number + 1) * each + min(number + 1, more) for number in range(parts)]
    return [items[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def num_rank_is_power_2(num_rank: int) -> bool:
    """Say whether a number of ranks is 1, 2, 4, 8 and so on."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Say whether a version such as "2.1.0" is another one or a later one.

    Raises:
        ValueError: `target` is not a version of three numbers, or `ver` is none at all.
    """
    wanted = _numbers(target)
    if len(wanted) < 3:
        raise ValueError(f"{target!r} is not a version of three numbers, such as 2.1.0.")
    found = _numbers(ver)
    return (*found, 0, 0)[:3] >= wanted


def is_iterable(x: Any) -> bool:
    """Say whether one can go through a value, as through a list."""
    return isinstance(x, Iterable)


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raise ImportError unless `horovod.<framework>` can be imported.

    Args:
        ext_name: Such as "horovod.torch".
        ext_env_var: What would have had Horovod compiled for it; nothing is compiled here.
        pkg_path: Where Horovod would have been compiled to.
        args: More of such names.
    """
    framework = ext_name.rpartition(".")[2]
    if not extension_available(framework):
        raise ImportError(
            f"{ext_name} cannot be used: {framework} is not installed. Install it with "
            f"pip install 'farandole[{framework}]'.",
            name=ext_name,
        )


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Do nothing: Farandole is not compiled for a version of a framework that could be another.

    Args:
        name: Of the framework.
        version: That is installed.
        exception: What its import raised.
    """


def _cache(function: Callable[..., T]) -> Callable[..., T]:
    """Call a function once for each choice of arguments."""
    return functools.cache(function)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _numbers(version: Any) -> tuple[int, ...]:
    """Return up to three numbers of a version: "2.1.0+cpu" and "2.1.0a0" are of 2.1.0."""
    parts = version.partition("+")[0].split(".")[:3] if isinstance(version, str) else []
    digits = ["".join(itertools.takewhile(str.isdecimal, part)) for part in parts]
    if not digits or not all(digits):
        raise ValueError(f"{version!r} is not a version, such as 2.1.0.")
    return tuple(int(part) for part in digits)
