"""Records as strict JSON and back, by the types of their fields; pure.

Fields that a reader does not know are left alone, fields that a writer did not know have their
defaults: only a change of meaning needs another schema number.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from farandole.study.records import Metric

_Record = TypeVar("_Record")
Reader = Callable[[Any], Any]


def encode(value: Any, *, leave: tuple[str, ...] = ()) -> Any:
    """Return a value as what strict JSON can hold, a record without the fields named by `leave`."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return {str(name): encode(entry) for name, entry in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [encode(entry) for entry in value]
    if is_dataclass(value):
        found = {each.name: getattr(value, each.name) for each in fields(value)}
        # There are many metrics, and most of them know little.
        sparse = isinstance(value, Metric)
        return {
            name: encode(entry)
            for name, entry in found.items()
            if name not in leave and not (sparse and entry is None)
        }
    # A NumPy scalar; or a path, for one.
    return encode(value.item()) if hasattr(value, "item") else str(value)


def number(value: float) -> float | str:
    """Return a float as strict JSON has it: what is not finite becomes "nan", "inf", "-inf"."""
    return float(value) if math.isfinite(value) else str(float(value))


def decode(record: type[_Record], content: Mapping[str, Any], **given: Any) -> _Record:
    """Return a record from JSON; errors of Python's own say that it does not hold one."""
    for name, read, required in _readers(typing.cast(Any, record)):
        if name in given:
            continue
        if name in content:
            given[name] = read(content[name])
        elif required:
            raise KeyError(name)
    return record(**given)


@functools.cache
def _readers(record: Any) -> tuple[tuple[str, Reader, bool], ...]:
    """Return name, reader and whether it must be there, of each field."""
    hints = typing.get_type_hints(record)
    return tuple(
        (each.name, _reader(hints[each.name]), each.default is each.default_factory)
        for each in fields(record)
    )


def _reader(hint: Any) -> Reader:
    """Return what reads a value of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return functools.partial(_choice, arguments)
    if origin in (Union, types.UnionType):
        (inner,) = (_reader(each) for each in arguments if each is not type(None))
        return lambda value: None if value is None else inner(value)
    if origin is tuple and arguments[-1] is Ellipsis:
        each = _reader(arguments[0])
        return lambda value: tuple(map(each, value))
    if origin is tuple:
        parts = [_reader(each) for each in arguments]
        return lambda value: tuple(read(entry) for read, entry in zip(parts, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        entry = _reader(arguments[1])
        return lambda value: {name: entry(found) for name, found in value.items()}
    if is_dataclass(hint):
        return functools.partial(decode, typing.cast(type, hint))
    return _SCALARS.get(hint, lambda value: value)


def _float(value: Any) -> float:
    return math.nan if value is None else float(value)


def _choice(choices: tuple[Any, ...], value: Any) -> Any:
    if value not in choices:
        raise ValueError(f"{value!r} is none of {', '.join(choices)}")
    return value


_SCALARS: dict[Any, Reader] = {int: int, bool: bool, float: _float, Path: Path}
