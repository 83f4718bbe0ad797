"""The tagged format: one table says for each type its tag, what writes it and what reads it.

After its tag a value has its fields; a count or a length is an unsigned LEB128 number; text is
UTF-8 with lone surrogates let through, as Python's own strings have them (file names).

Only exact types are written, because a subclass may carry more than its base shows. Bytes are read
that nobody vouches for: every length is checked against what is left before anything is allocated,
and every number of items against the bytes that so many items need at least.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import struct
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from farandole.errors import ObjectFormatError

# Deep enough for any configuration, shallow enough for Python's recursion limit of 1000 at three
# frames a level under a notebook's own hundred.
MAX_DEPTH = 200
# NumPy's limit since 2.0, and that of torch's loops over tensors.
MAX_DIMS = 64
# Shorter text (in characters) and bytes are cheaper to repeat than to remember.
_MIN_SHARED_LENGTH = 32
# 2**63 - 1 in groups of seven bits.
_MAX_SIZE_BYTES = 9


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


class Form(NamedTuple):
    """How the objects of one type travel."""

    tag: int
    write: Callable[[Writer, Any], None]
    read: Callable[..., Any]
    """Given the reader, and with `empty` what to fill."""
    shared: bool = False
    """Whether one that occurs twice is written once."""
    empty: Callable[[], Any] | None = None
    """Makes a container to be filled, which may hold itself."""


class Writer:
    """Writes one object; parts are kept as buffers so that a large tensor is copied once."""

    def __init__(self, header: bytes) -> None:
        self.parts: list[bytes | memoryview] = [header]
        self._owners: list[Any] = []
        self._depth = 0
        # By id, with the object itself: an id is only its own while it lives.
        self._shared: dict[int, tuple[int, Any]] = {}

    def write(self, obj: Any) -> bytes:
        """Return the message."""
        self.put(obj)
        return b"".join(self.parts)

    def put(self, obj: Any) -> None:
        """Write `obj` with its tag."""
        kind = type(obj)
        form = _FORMS.get(kind) or _form_of_loaded_library(obj)
        if form is None:
            name = kind.__qualname__
            if kind.__module__ != "builtins":
                name = f"{kind.__module__}.{name}"
            raise NotPlainError(f"is a {name}, which is not plain data")
        if form.shared and _is_shared(obj):
            known = self._shared.get(id(obj))
            if known is not None:
                self.raw(bytes((_SHARED,)))
                self.size(known[0])
                return
            self._shared[id(obj)] = (len(self._shared), obj)
        # True is the one constant whose type has two tags.
        self.raw(bytes((form.tag if obj is not True else _TRUE,)))
        form.write(self, obj)

    def size(self, number: int) -> None:
        """Write a count or a length."""
        out = bytearray()
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
        self.raw(bytes(out))

    def shape(self, shape: Sequence[int]) -> None:
        """Write a tensor's shape."""
        for number in (len(shape), *shape):
            self.size(number)

    def raw(self, data: bytes | memoryview) -> None:
        """Write bytes whose length the reader knows."""
        self.parts.append(data)

    def blob(self, data: bytes | memoryview, *, owner: Any = None) -> None:
        """Write bytes after their length; `owner` lives on if `data` is a view without one."""
        self.size(len(data))
        self.raw(data)
        self._owners.append(owner)

    def text(self, text: str) -> None:
        """Write a string."""
        self.blob(text.encode("utf-8", "surrogatepass"))

    def items(self, items: Collection[Any], step: Callable[[int], str]) -> None:
        """Write the values of a container, which says how to name the n-th in a message."""
        self._enter()
        self.size(len(items))
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


class Reader:
    """Reads one object from one buffer."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._pos = 0
        self._depth = 0
        self._shared: list[Any] = []

    def read(self) -> Any:
        """Return the object."""
        obj = self.get()
        if self._pos != len(self._data):
            raise self.damaged(f"{len(self._data) - self._pos} bytes are left over")
        return obj

    def get(self) -> Any:
        """Read a tag and the value after it."""
        tag = self.raw(1)[0]
        form = _FORMS_BY_TAG.get(tag) or _form_of_library(tag)
        if form is None:
            raise self.damaged(f"unknown tag 0x{tag:02x}")
        self._depth += 1
        if self._depth > MAX_DEPTH + 1:  # a leaf below the deepest container
            raise self.damaged(f"nested more than {MAX_DEPTH} levels deep")
        if form.empty is not None:
            obj = form.empty()
            self._shared.append(obj)
            form.read(self, obj)
        else:
            number = len(self._shared)
            if form.shared:
                # Before its parts, as the writer counts: a structured dtype is a list, too.
                self._shared.append(None)
            obj = form.read(self)
            if form.shared and _is_shared(obj):
                self._shared[number] = obj
            elif form.shared:
                self._shared.pop()
        self._depth -= 1
        return obj

    def damaged(self, what: str) -> ObjectFormatError:
        """Return the error for bytes that no writer writes."""
        return ObjectFormatError(
            f"A peer's object is damaged at byte {self._pos} of {len(self._data)}: {what}. "
            "Use the same version of Farandole on every rank."
        )

    def raw(self, num_bytes: int) -> memoryview:
        """Read so many bytes."""
        end = self._pos + num_bytes
        if end > len(self._data):
            raise self.damaged(
                f"{num_bytes} bytes expected, {len(self._data) - self._pos} are there"
            )
        out = self._data[self._pos : end]
        self._pos = end
        return out

    def size(self) -> int:
        """Read a count or a length."""
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
        """Read bytes after their length."""
        return self.raw(self.size())

    def text(self) -> str:
        """Read a string."""
        return str(self.blob(), "utf-8", "surrogatepass")

    def fields(self, layout: str) -> tuple[Any, ...]:
        """Read numbers of fixed sizes."""
        return struct.unpack(layout, self.raw(struct.calcsize(layout)))

    def shape(self) -> tuple[int, ...]:
        """Read a tensor's shape."""
        num_dims = self.count(1)
        if num_dims > MAX_DIMS:
            raise self.damaged(f"{num_dims} dimensions")
        return tuple(self.size() for _ in range(num_dims))

    def items(self) -> Iterator[Any]:
        """Read the values of a container, one by one: they may refer to what is filled."""
        for _ in range(self.count(1)):
            yield self.get()

    def pairs(self, mapping: dict[Any, Any]) -> None:
        """Read keys and values into a mapping."""
        for _ in range(self.count(2)):
            key = self.get()
            mapping[key] = self.get()

    def attributes(self, owner: Any) -> None:
        """Read names and values into an object's attributes."""
        found: dict[str, Any] = {}
        for _ in range(self.count(2)):
            name = self.get()
            if type(name) is not str:
                raise self.damaged("an attribute whose name is not a string")
            found[name] = self.get()
        vars(owner).update(found)

    def earlier(self) -> Any:
        """Return the object that a reference stands for."""
        index = self.size()
        if index >= len(self._shared):
            raise self.damaged(f"reference to object {index} of {len(self._shared)}")
        return self._shared[index]


def _is_shared(obj: Any) -> bool:
    return type(obj) not in (str, bytes) or len(obj) >= _MIN_SHARED_LENGTH


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


def _write_int(w: Writer, obj: int) -> None:
    # One bit more than the magnitude for the sign.
    w.blob(obj.to_bytes(obj.bit_length() // 8 + 1, "little", signed=True))


def _write_ordered_dict(w: Writer, obj: OrderedDict[Any, Any]) -> None:
    # torch hangs `_metadata` on the OrderedDict of a state_dict; it comes along like any attribute
    # that was set by hand.
    w.pairs(obj, _at_key)
    w.pairs(vars(obj), _at_attribute)


def _read_ordered_dict(r: Reader, out: OrderedDict[Any, Any]) -> None:
    r.pairs(out)
    r.attributes(out)


def _write_date(w: Writer, obj: datetime.date) -> None:
    w.raw(struct.pack(_DATE, obj.year, obj.month, obj.day))


def _write_clock(w: Writer, obj: datetime.time | datetime.datetime) -> None:
    w.raw(struct.pack(_CLOCK, obj.hour, obj.minute, obj.second, obj.microsecond, obj.fold))
    try:
        w.put(obj.tzinfo)
    except NotPlainError as exc:
        exc.steps.append(".tzinfo")
        raise


def _write_datetime(w: Writer, obj: datetime.datetime) -> None:
    _write_date(w, obj)
    _write_clock(w, obj)


def _read_datetime(r: Reader) -> datetime.datetime:
    year, month, day = r.fields(_DATE)
    clock = _read_time(r)
    return datetime.datetime.combine(datetime.date(year, month, day), clock)


def _read_time(r: Reader) -> datetime.time:
    hour, minute, second, microsecond, fold = r.fields(_CLOCK)
    zone = r.get()
    if zone is not None and not isinstance(zone, datetime.tzinfo):
        raise r.damaged("a time zone of another type")
    return datetime.time(hour, minute, second, microsecond, tzinfo=zone, fold=fold)


def _write_timezone(w: Writer, obj: datetime.timezone) -> None:
    offset = obj.utcoffset(None)
    # A zone without a name of its own answers with one made from its offset.
    own_name = obj.tzname(None) != datetime.timezone(offset).tzname(None)
    w.put(offset)
    w.put(obj.tzname(None) if own_name else None)


def _read_timezone(r: Reader) -> datetime.timezone:
    offset, name = r.get(), r.get()
    return datetime.timezone(offset) if name is None else datetime.timezone(offset, name)


def _write_zone_info(w: Writer, obj: ZoneInfo) -> None:
    if obj.key is None:
        raise NotPlainError("is a ZoneInfo without a name (read from a file)")
    w.text(obj.key)


def _read_list(r: Reader, out: list[Any]) -> None:
    for item in r.items():
        out.append(item)  # noqa: PERF402 - an item may refer to the list that it is in


def _read_set(r: Reader, out: set[Any]) -> None:
    for item in r.items():
        out.add(item)


def _nothing(w: Writer, obj: Any) -> None:
    """Write a constant, of which the tag says all."""


def _container(
    tag: int,
    empty: Callable[[], Any],
    write: Callable[[Writer, Any], None],
    fill: Callable[[Reader, Any], None],
) -> Form:
    return Form(tag, write, fill, shared=True, empty=empty)


def _namespace(tag: int, empty: Callable[[], Any]) -> Form:
    return _container(
        tag, empty, lambda w, obj: w.pairs(vars(obj), _at_attribute), Reader.attributes
    )


def _path(tag: int, kind: Callable[[str], Any]) -> Form:
    return Form(tag, lambda w, obj: w.text(str(obj)), lambda r: kind(r.text()))


_DATE = "<HBB"
_CLOCK = "<BBBIB"
_TIMEDELTA = "<iII"

_TRUE = 0x02
_SHARED = 0x1F
"""An object that came before: its number among those that are shared."""

_FORMS: dict[type, Form] = {
    type(None): Form(0x00, _nothing, lambda r: None),
    bool: Form(0x01, _nothing, lambda r: False),
    type(...): Form(0x09, _nothing, lambda r: ...),
    int: Form(0x03, _write_int, lambda r: int.from_bytes(r.blob(), "little", signed=True)),
    float: Form(0x04, lambda w, obj: w.raw(struct.pack("<d", obj)), lambda r: r.fields("<d")[0]),
    complex: Form(
        0x05,
        lambda w, obj: w.raw(struct.pack("<dd", obj.real, obj.imag)),
        lambda r: complex(*r.fields("<dd")),
    ),
    str: Form(0x06, Writer.text, Reader.text, shared=True),
    bytes: Form(0x07, Writer.blob, lambda r: bytes(r.blob()), shared=True),
    bytearray: Form(
        0x08, lambda w, obj: w.blob(bytes(obj)), lambda r: bytearray(r.blob()), shared=True
    ),
    list: _container(0x10, list, lambda w, obj: w.items(obj, _at_index), _read_list),
    # Never shared: a tuple of shared tuples of shared tuples takes exponential time to hash, so
    # that a reader who allowed it could be stopped by a hundred bytes.
    tuple: Form(0x11, lambda w, obj: w.items(obj, _at_index), lambda r: tuple(r.items())),
    set: _container(0x12, set, lambda w, obj: w.items(obj, _at_member), _read_set),
    frozenset: Form(0x13, lambda w, obj: w.items(obj, _at_member), lambda r: frozenset(r.items())),
    dict: _container(0x14, dict, lambda w, obj: w.pairs(obj, _at_key), Reader.pairs),
    OrderedDict: _container(0x15, OrderedDict, _write_ordered_dict, _read_ordered_dict),
    argparse.Namespace: _namespace(0x16, argparse.Namespace),
    types.SimpleNamespace: _namespace(0x17, types.SimpleNamespace),
    pathlib.PosixPath: _path(0x20, pathlib.PosixPath),
    pathlib.WindowsPath: _path(0x21, pathlib.WindowsPath),
    pathlib.PurePosixPath: _path(0x22, pathlib.PurePosixPath),
    pathlib.PureWindowsPath: _path(0x23, pathlib.PureWindowsPath),
    datetime.datetime: Form(0x24, _write_datetime, _read_datetime),
    datetime.date: Form(0x25, _write_date, lambda r: datetime.date(*r.fields(_DATE))),
    datetime.time: Form(0x26, _write_clock, _read_time),
    datetime.timedelta: Form(
        0x27,
        lambda w, obj: w.raw(struct.pack(_TIMEDELTA, obj.days, obj.seconds, obj.microseconds)),
        lambda r: datetime.timedelta(*r.fields(_TIMEDELTA)),
    ),
    datetime.timezone: Form(0x28, _write_timezone, _read_timezone),
    ZoneInfo: Form(0x29, _write_zone_info, lambda r: ZoneInfo(r.text())),
}

_FORMS_BY_TAG = {form.tag: form for form in _FORMS.values()} | {
    _TRUE: Form(_TRUE, _nothing, lambda r: True),
    _SHARED: Form(_SHARED, _nothing, Reader.earlier),
}
# The library whose types a module writes, and their tags.
_LIBRARIES = {
    "farandole.wire.tensors": ("torch", range(0x30, 0x35)),
    "farandole.wire.arrays": ("numpy", range(0x40, 0x44)),
}


def _form_of_loaded_library(obj: Any) -> Form | None:
    # An object of a library cannot exist before the library is loaded, so nothing is imported
    # for the sake of asking.
    for module, (library, _) in _LIBRARIES.items():
        if library in sys.modules:
            form: Form | None = import_module(module).form_of(obj)
            if form is not None:
                return form
    return None


def _form_of_library(tag: int) -> Form | None:
    for module, (_, tags) in _LIBRARIES.items():
        if tag in tags:
            form: Form = import_module(module).FORMS[tag]
            return form
    return None
