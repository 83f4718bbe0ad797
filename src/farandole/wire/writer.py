"""Write plain data: exact types only, because a subclass may carry more than its base shows."""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import struct
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from farandole.wire.tags import MAX_DEPTH, MIN_SHARED_LENGTH, Tag


class NotPlainError(Exception):
    """Something in the object is not plain data; the way to it is collected while unwinding."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def where(self) -> str:
        """Return the subject of a sentence: which part of the object it is about."""
        if not self.steps:
            return "The object"
        return f"The object's part {''.join(reversed(self.steps)).strip()}"


class Writer:
    """Writes one object; parts are kept as buffers so that a large tensor is copied once."""

    def __init__(self, header: bytes) -> None:
        self._parts: list[bytes | memoryview] = [header]
        self._owners: list[Any] = []
        self._depth = 0
        # By id, with the object itself: an id is only its own while it lives.
        self._shared: dict[int, tuple[int, Any]] = {}

    def write(self, obj: Any) -> bytes:
        self.put(obj)
        return b"".join(self._parts)

    def put(self, obj: Any) -> None:
        """Write `obj` with its tag."""
        put = _PLAIN.get(type(obj))
        if put is None:
            put = _put_of_loaded_library(obj)
        if put is None:
            raise NotPlainError(f"is a {type_name(obj)}, which is not plain data")
        put(self, obj)

    def tag(self, tag: Tag) -> None:
        self._parts.append(bytes((tag,)))

    def size(self, number: int) -> None:
        """Write a count or a length."""
        out = bytearray()
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
        self._parts.append(bytes(out))

    def raw(self, data: bytes | memoryview) -> None:
        """Write bytes whose length the reader knows."""
        self._parts.append(data)

    def blob(self, data: bytes | memoryview, *, owner: Any = None) -> None:
        """Write bytes after their length; `owner` lives on if `data` is a view without one."""
        self.size(len(data))
        self._parts.append(data)
        self._owners.append(owner)

    def text(self, text: str) -> None:
        self.blob(text.encode("utf-8", "surrogatepass"))

    def seen(self, obj: Any) -> bool:
        """Write a reference if `obj` was written before; else remember it, the reader does too."""
        known = self._shared.get(id(obj))
        if known is None:
            self._shared[id(obj)] = (len(self._shared), obj)
            return False
        self.tag(Tag.SHARED)
        self.size(known[0])
        return True

    def items(self, items: Iterable[Any], step: Callable[[int], str]) -> None:
        """Write the values of a container, which says how to name the n-th in a message."""
        self._enter()
        position = 0
        try:
            for item in items:
                self.put(item)
                position += 1
        except NotPlainError as exc:
            exc.steps.append(step(position))
            raise
        self._depth -= 1

    def pairs(self, mapping: Mapping[Any, Any], step: Callable[[Any], str]) -> None:
        """Write the keys and values of a mapping, which says how to name one in a message."""
        self._enter()
        self.size(len(mapping))
        key, at_key = None, True
        try:
            for key, value in mapping.items():
                at_key = True
                self.put(key)
                at_key = False
                self.put(value)
        except NotPlainError as exc:
            exc.steps.append(f" key {_brief(key)}" if at_key else step(key))
            raise
        self._depth -= 1

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotPlainError(f"is nested more than {MAX_DEPTH} levels deep")


def type_name(obj: Any) -> str:
    kind = type(obj)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _brief(key: Any) -> str:
    if type(key) is str:
        return json.dumps(key)  # double quotes, as in the scripts of most people
    text = repr(key)
    return text if len(text) <= 60 else text[:57] + "..."


def _at_index(position: int) -> str:
    return f"[{position}]"


def _at_member(position: int) -> str:
    return " member"  # a set has no positions


def _at_key(key: Any) -> str:
    return f"[{_brief(key)}]"


def _at_attribute(key: Any) -> str:
    return f".{key}"


def _put_none(w: Writer, obj: None) -> None:
    w.tag(Tag.NONE)


def _put_bool(w: Writer, obj: bool) -> None:
    w.tag(Tag.TRUE if obj else Tag.FALSE)


def _put_ellipsis(w: Writer, obj: types.EllipsisType) -> None:
    w.tag(Tag.ELLIPSIS)


def _put_int(w: Writer, obj: int) -> None:
    w.tag(Tag.INT)
    # One bit more than the magnitude for the sign.
    w.blob(obj.to_bytes(obj.bit_length() // 8 + 1, "little", signed=True))


def _put_float(w: Writer, obj: float) -> None:
    w.tag(Tag.FLOAT)
    w.raw(struct.pack("<d", obj))


def _put_complex(w: Writer, obj: complex) -> None:
    w.tag(Tag.COMPLEX)
    w.raw(struct.pack("<dd", obj.real, obj.imag))


def _put_str(w: Writer, obj: str) -> None:
    if len(obj) >= MIN_SHARED_LENGTH and w.seen(obj):
        return
    w.tag(Tag.STR)
    w.text(obj)


def _put_bytes(w: Writer, obj: bytes) -> None:
    if len(obj) >= MIN_SHARED_LENGTH and w.seen(obj):
        return
    w.tag(Tag.BYTES)
    w.blob(obj)


def _put_bytearray(w: Writer, obj: bytearray) -> None:
    if w.seen(obj):
        return
    w.tag(Tag.BYTEARRAY)
    w.blob(bytes(obj))


def _put_list(w: Writer, obj: list[Any]) -> None:
    if w.seen(obj):
        return
    w.tag(Tag.LIST)
    w.size(len(obj))
    w.items(obj, _at_index)


def _put_tuple(w: Writer, obj: tuple[Any, ...]) -> None:
    # Never shared: a tuple of shared tuples of shared tuples takes exponential time to hash, so
    # that a reader who allowed it could be stopped by a hundred bytes.
    w.tag(Tag.TUPLE)
    w.size(len(obj))
    w.items(obj, _at_index)


def _put_set(w: Writer, obj: set[Any]) -> None:
    if w.seen(obj):
        return
    w.tag(Tag.SET)
    w.size(len(obj))
    w.items(obj, _at_member)


def _put_frozenset(w: Writer, obj: frozenset[Any]) -> None:
    w.tag(Tag.FROZENSET)
    w.size(len(obj))
    w.items(obj, _at_member)


def _put_dict(w: Writer, obj: dict[Any, Any]) -> None:
    if w.seen(obj):
        return
    w.tag(Tag.DICT)
    w.pairs(obj, _at_key)


def _put_ordered_dict(w: Writer, obj: OrderedDict[Any, Any]) -> None:
    # torch hangs `_metadata` on the OrderedDict of a state_dict; it comes along like any attribute
    # that was set by hand.
    if w.seen(obj):
        return
    w.tag(Tag.ORDERED_DICT)
    w.pairs(obj, _at_key)
    w.pairs(vars(obj), _at_attribute)


def _put_namespace(w: Writer, obj: argparse.Namespace) -> None:
    if w.seen(obj):
        return
    w.tag(Tag.NAMESPACE)
    w.pairs(vars(obj), _at_attribute)


def _put_simple_namespace(w: Writer, obj: types.SimpleNamespace) -> None:
    if w.seen(obj):
        return
    w.tag(Tag.SIMPLE_NAMESPACE)
    w.pairs(vars(obj), _at_attribute)


_PATH_TAGS: dict[type, Tag] = {
    pathlib.PosixPath: Tag.POSIX_PATH,
    pathlib.WindowsPath: Tag.WINDOWS_PATH,
    pathlib.PurePosixPath: Tag.PURE_POSIX_PATH,
    pathlib.PureWindowsPath: Tag.PURE_WINDOWS_PATH,
}


def _put_path(w: Writer, obj: pathlib.PurePath) -> None:
    w.tag(_PATH_TAGS[type(obj)])
    w.text(str(obj))


def _put_datetime(w: Writer, obj: datetime.datetime) -> None:
    w.tag(Tag.DATETIME)
    w.raw(struct.pack("<HBB", obj.year, obj.month, obj.day))
    _put_clock(w, obj)


def _put_date(w: Writer, obj: datetime.date) -> None:
    w.tag(Tag.DATE)
    w.raw(struct.pack("<HBB", obj.year, obj.month, obj.day))


def _put_time(w: Writer, obj: datetime.time) -> None:
    w.tag(Tag.TIME)
    _put_clock(w, obj)


def _put_clock(w: Writer, obj: datetime.time | datetime.datetime) -> None:
    w.raw(struct.pack("<BBBIB", obj.hour, obj.minute, obj.second, obj.microsecond, obj.fold))
    try:
        w.put(obj.tzinfo)
    except NotPlainError as exc:
        exc.steps.append(".tzinfo")
        raise


def _put_timedelta(w: Writer, obj: datetime.timedelta) -> None:
    w.tag(Tag.TIMEDELTA)
    w.raw(struct.pack("<iII", obj.days, obj.seconds, obj.microseconds))


def _put_timezone(w: Writer, obj: datetime.timezone) -> None:
    offset = obj.utcoffset(None)
    # A zone without a name of its own answers with one made from its offset.
    own_name = obj.tzname(None) != datetime.timezone(offset).tzname(None)
    w.tag(Tag.TIMEZONE)
    w.put(offset)
    w.put(obj.tzname(None) if own_name else None)


def _put_zone_info(w: Writer, obj: ZoneInfo) -> None:
    if obj.key is None:
        raise NotPlainError("is a ZoneInfo without a name (read from a file)")
    w.tag(Tag.ZONE_INFO)
    w.text(obj.key)


_PLAIN: dict[type, Callable[[Writer, Any], None]] = {
    type(None): _put_none,
    bool: _put_bool,
    type(...): _put_ellipsis,
    int: _put_int,
    float: _put_float,
    complex: _put_complex,
    str: _put_str,
    bytes: _put_bytes,
    bytearray: _put_bytearray,
    list: _put_list,
    tuple: _put_tuple,
    set: _put_set,
    frozenset: _put_frozenset,
    dict: _put_dict,
    OrderedDict: _put_ordered_dict,
    argparse.Namespace: _put_namespace,
    types.SimpleNamespace: _put_simple_namespace,
    datetime.datetime: _put_datetime,
    datetime.date: _put_date,
    datetime.time: _put_time,
    datetime.timedelta: _put_timedelta,
    datetime.timezone: _put_timezone,
    ZoneInfo: _put_zone_info,
    **dict.fromkeys(_PATH_TAGS, _put_path),
}


def _put_of_loaded_library(obj: Any) -> Callable[[Writer, Any], None] | None:
    # An object of a library cannot exist before the library is loaded, so nothing is imported
    # for the sake of asking.
    put: Callable[[Writer, Any], None] | None = None
    if "torch" in sys.modules:
        from farandole.wire import tensors

        put = tensors.put_function(obj)
    if put is None and "numpy" in sys.modules:
        from farandole.wire import arrays

        put = arrays.put_function(obj)
    return put
