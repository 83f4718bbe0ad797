"""Read plain data from bytes that nobody vouches for.

Every length is checked against what is left before anything is allocated, and every number of
items against the bytes that so many items need at least.
"""

from __future__ import annotations

import argparse
import datetime
import pathlib
import struct
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from farandole.errors import ObjectFormatError
from farandole.wire.tags import MAX_DEPTH, MAX_DIMS, MIN_SHARED_LENGTH, Tag

# 2**63 - 1 in groups of seven bits.
_MAX_SIZE_BYTES = 9


class Reader:
    """Reads one object from one buffer."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._pos = 0
        self._depth = 0
        self._shared: list[Any] = []

    def read(self) -> Any:
        obj = self.get()
        if self._pos != len(self._data):
            raise self.damaged(f"{len(self._data) - self._pos} bytes are left over")
        return obj

    def get(self) -> Any:
        """Read a tag and the value after it."""
        tag = self.raw(1)[0]
        get = _GETTERS.get(tag)
        if get is None:
            raise self.damaged(f"unknown tag 0x{tag:02x}")
        self._depth += 1
        if self._depth > MAX_DEPTH + 1:  # a leaf below the deepest container
            raise self.damaged(f"nested more than {MAX_DEPTH} levels deep")
        obj = get(self)
        self._depth -= 1
        return obj

    def damaged(self, what: str) -> ObjectFormatError:
        return ObjectFormatError(
            f"A peer's object is damaged at byte {self._pos} of {len(self._data)}: {what}. "
            "Use the same version of Farandole on every rank."
        )

    def raw(self, num_bytes: int) -> memoryview:
        end = self._pos + num_bytes
        if end > len(self._data):
            raise self.damaged(
                f"{num_bytes} bytes expected, {len(self._data) - self._pos} are there"
            )
        out = self._data[self._pos : end]
        self._pos = end
        return out

    def size(self) -> int:
        number = 0
        for position in range(_MAX_SIZE_BYTES):
            byte = self.raw(1)[0]
            number |= (byte & 0x7F) << (7 * position)
            if byte < 0x80:
                return number
        raise self.damaged("a length of more than 63 bits")

    def count(self, min_bytes_each: int) -> int:
        """Read how many values follow, each of which takes at least that many bytes."""
        number = self.size()
        left = len(self._data) - self._pos
        if number * min_bytes_each > left:
            raise self.damaged(f"{number} values cannot be in {left} bytes")
        return number

    def blob(self) -> memoryview:
        return self.raw(self.size())

    def text(self) -> str:
        return str(self.blob(), "utf-8", "surrogatepass")

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.raw(layout.size))

    def shape(self) -> tuple[int, ...]:
        num_dims = self.count(1)
        if num_dims > MAX_DIMS:
            raise self.damaged(f"{num_dims} dimensions")
        return tuple(self.size() for _ in range(num_dims))

    def remember(self, obj: Any) -> Any:
        """Keep an object that may be referred to later; containers before they are filled."""
        self._shared.append(obj)
        return obj

    def shared(self) -> Any:
        index = self.size()
        if index >= len(self._shared):
            raise self.damaged(f"reference to object {index} of {len(self._shared)}")
        return self._shared[index]

    def fill(self, mapping: dict[Any, Any]) -> None:
        for _ in range(self.count(2)):
            key = self.get()
            mapping[key] = self.get()

    def attributes(self) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for _ in range(self.count(2)):
            name = self.get()
            if type(name) is not str:
                raise self.damaged("an attribute whose name is not a string")
            mapping[name] = self.get()
        return mapping


_FLOAT = struct.Struct("<d")
_COMPLEX = struct.Struct("<dd")
_DATE = struct.Struct("<HBB")
_CLOCK = struct.Struct("<BBBIB")
_TIMEDELTA = struct.Struct("<iII")


def _get_str(r: Reader) -> str:
    text = r.text()
    if len(text) >= MIN_SHARED_LENGTH:
        r.remember(text)
    return text


def _get_bytes(r: Reader) -> bytes:
    data = bytes(r.blob())
    if len(data) >= MIN_SHARED_LENGTH:
        r.remember(data)
    return data


def _get_list(r: Reader) -> list[Any]:
    out: list[Any] = r.remember([])
    for _ in range(r.count(1)):
        out.append(r.get())  # noqa: PERF401 - an item may refer to the list that it is in
    return out


def _get_tuple(r: Reader) -> tuple[Any, ...]:
    return tuple([r.get() for _ in range(r.count(1))])


def _get_set(r: Reader) -> set[Any]:
    out: set[Any] = r.remember(set())
    for _ in range(r.count(1)):
        out.add(r.get())
    return out


def _get_frozenset(r: Reader) -> frozenset[Any]:
    return frozenset([r.get() for _ in range(r.count(1))])


def _get_dict(r: Reader) -> dict[Any, Any]:
    out: dict[Any, Any] = r.remember({})
    r.fill(out)
    return out


def _get_ordered_dict(r: Reader) -> OrderedDict[Any, Any]:
    out: OrderedDict[Any, Any] = r.remember(OrderedDict())
    r.fill(out)
    vars(out).update(r.attributes())
    return out


def _get_namespace(r: Reader) -> argparse.Namespace:
    out: argparse.Namespace = r.remember(argparse.Namespace())
    vars(out).update(r.attributes())
    return out


def _get_simple_namespace(r: Reader) -> types.SimpleNamespace:
    out: types.SimpleNamespace = r.remember(types.SimpleNamespace())
    vars(out).update(r.attributes())
    return out


def _get_datetime(r: Reader) -> datetime.datetime:
    year, month, day = r.fields(_DATE)
    hour, minute, second, microsecond, fold = r.fields(_CLOCK)
    return datetime.datetime(
        year, month, day, hour, minute, second, microsecond, tzinfo=_get_tzinfo(r), fold=fold
    )


def _get_time(r: Reader) -> datetime.time:
    hour, minute, second, microsecond, fold = r.fields(_CLOCK)
    return datetime.time(hour, minute, second, microsecond, tzinfo=_get_tzinfo(r), fold=fold)


def _get_tzinfo(r: Reader) -> datetime.tzinfo | None:
    zone = r.get()
    if zone is None or isinstance(zone, datetime.tzinfo):
        return zone
    raise r.damaged("a time zone of another type")


def _get_timedelta(r: Reader) -> datetime.timedelta:
    days, seconds, microseconds = r.fields(_TIMEDELTA)
    return datetime.timedelta(days, seconds, microseconds)


def _get_timezone(r: Reader) -> datetime.timezone:
    offset, name = r.get(), r.get()
    if name is None:
        return datetime.timezone(offset)
    return datetime.timezone(offset, name)


def _get_tensor(r: Reader) -> Any:
    from farandole.wire import tensors

    return r.remember(tensors.get_tensor(r))


def _get_parameter(r: Reader) -> Any:
    from farandole.wire import tensors

    return r.remember(tensors.get_parameter(r))


def _get_torch_size(r: Reader) -> Any:
    from farandole.wire import tensors

    return tensors.get_size(r)


def _get_torch_dtype(r: Reader) -> Any:
    from farandole.wire import tensors

    return tensors.get_dtype(r)


def _get_torch_device(r: Reader) -> Any:
    from farandole.wire import tensors

    return tensors.get_device(r)


def _get_array(r: Reader) -> Any:
    from farandole.wire import arrays

    return r.remember(arrays.get_array(r))


def _get_numpy_scalar(r: Reader) -> Any:
    from farandole.wire import arrays

    return arrays.get_scalar(r)


def _get_numpy_str(r: Reader) -> Any:
    from farandole.wire import arrays

    return arrays.get_str(r)


def _get_numpy_bytes(r: Reader) -> Any:
    from farandole.wire import arrays

    return arrays.get_bytes(r)


_GETTERS: dict[int, Callable[[Reader], Any]] = {
    Tag.NONE: lambda r: None,
    Tag.FALSE: lambda r: False,
    Tag.TRUE: lambda r: True,
    Tag.ELLIPSIS: lambda r: ...,
    Tag.INT: lambda r: int.from_bytes(r.blob(), "little", signed=True),
    Tag.FLOAT: lambda r: r.fields(_FLOAT)[0],
    Tag.COMPLEX: lambda r: complex(*r.fields(_COMPLEX)),
    Tag.STR: _get_str,
    Tag.BYTES: _get_bytes,
    Tag.BYTEARRAY: lambda r: r.remember(bytearray(r.blob())),
    Tag.LIST: _get_list,
    Tag.TUPLE: _get_tuple,
    Tag.SET: _get_set,
    Tag.FROZENSET: _get_frozenset,
    Tag.DICT: _get_dict,
    Tag.ORDERED_DICT: _get_ordered_dict,
    Tag.NAMESPACE: _get_namespace,
    Tag.SIMPLE_NAMESPACE: _get_simple_namespace,
    Tag.SHARED: lambda r: r.shared(),
    Tag.POSIX_PATH: lambda r: pathlib.PosixPath(r.text()),
    Tag.WINDOWS_PATH: lambda r: pathlib.WindowsPath(r.text()),
    Tag.PURE_POSIX_PATH: lambda r: pathlib.PurePosixPath(r.text()),
    Tag.PURE_WINDOWS_PATH: lambda r: pathlib.PureWindowsPath(r.text()),
    Tag.DATETIME: _get_datetime,
    Tag.DATE: lambda r: datetime.date(*r.fields(_DATE)),
    Tag.TIME: _get_time,
    Tag.TIMEDELTA: _get_timedelta,
    Tag.TIMEZONE: _get_timezone,
    Tag.ZONE_INFO: lambda r: ZoneInfo(r.text()),
    Tag.TENSOR: _get_tensor,
    Tag.PARAMETER: _get_parameter,
    Tag.TORCH_SIZE: _get_torch_size,
    Tag.TORCH_DTYPE: _get_torch_dtype,
    Tag.TORCH_DEVICE: _get_torch_device,
    Tag.ARRAY: _get_array,
    Tag.NUMPY_SCALAR: _get_numpy_scalar,
    Tag.NUMPY_STR: _get_numpy_str,
    Tag.NUMPY_BYTES: _get_numpy_bytes,
}
