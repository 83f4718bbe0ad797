"""Scalars from TensorBoard's event files, read without TensorBoard.

An event file is a sequence of TFRecords: a length, its checksum, a message, its checksum. The
messages are protocol buffers, of which a scalar needs five fields; they are read by hand, so that a
study needs neither TensorBoard nor TensorFlow to take along what a script wrote for them.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from farandole.study.records import Metric

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_CHUNK = 1 << 20
# Wire types of protocol buffers.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# tensorflow/core/framework/types.proto: the numeric types, as struct formats for tensor_content.
_TENSOR_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 10: "<?", 19: "<e"}
# tensorflow/core/framework/tensor.proto: where a value of the type stands when not in
# tensor_content: float_val, double_val, int_val, int64_val, bool_val, half_val.
_TENSOR_FIELDS = {1: 5, 2: 6, 3: 7, 9: 10, 10: 11, 19: 13}
# The folders of Keras' callback, and what its history calls their metrics.
_KERAS_PREFIXES = {"train": "", "validation": "val_"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One scalar of an event file."""

    folder: str
    """Of the file, relative to where reading began; "" for that folder itself."""
    tag: str
    step: int
    value: float
    wall_time_s: float
    """Unix time."""


def read_metrics(folder: Path, *, begin_unix_s: float | None = None) -> tuple[Metric, ...]:
    """Read all scalars in the event files below a folder, in the order of their writing.

    Args:
        folder: Where to look, subfolders included.
        begin_unix_s: When the launch began: what was written earlier is left out, and times count
            from there.
    """
    scalars = [
        scalar
        for path in sorted(folder.rglob("*tfevents*"))
        for scalar in read_file(path, folder="" if path.parent == folder else path.parent.name)
        if begin_unix_s is None or scalar.wall_time_s >= begin_unix_s
    ]
    return to_metrics(scalars, begin_unix_s=begin_unix_s)


def to_metrics(scalars: list[Scalar], *, begin_unix_s: float | None = None) -> tuple[Metric, ...]:
    """Name scalars as metrics: by their tag, with their folder where two have the same tag.

    Keras writes epoch_loss into the folders train and validation; these become loss and val_loss,
    as in its history.
    """
    folders = Counter(tag for tag, _ in {(scalar.tag, scalar.folder) for scalar in scalars})
    metrics = []
    for scalar in sorted(scalars, key=lambda scalar: scalar.wall_time_s):
        name, epoch = scalar.tag, None
        prefix = _KERAS_PREFIXES.get(scalar.folder)
        if prefix is not None and name.startswith("epoch_"):
            name, epoch = prefix + name.removeprefix("epoch_"), float(scalar.step)
        elif folders[name] > 1 and scalar.folder:
            name = f"{scalar.folder}/{name}"
        metrics.append(
            Metric(
                name=name,
                value=scalar.value,
                step=None if epoch is not None else scalar.step,
                epoch=epoch,
                time_s=None if begin_unix_s is None else scalar.wall_time_s - begin_unix_s,
            )
        )
    return tuple(metrics)


def read_file(path: Path, *, folder: str = "") -> Iterator[Scalar]:
    """Read the scalars of one event file; a file that cannot be read has none."""
    plugins: dict[str, str] = {}
    try:
        with path.open("rb") as file:
            for record, checksum in _records(file):
                # Images and histograms are large, and their checksums nobody asks for.
                if (found := _scalars(record, folder, plugins)) and _masked(record) == checksum:
                    yield from found
    except OSError:
        return


def _records(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield messages with their checksums, up to the end or to where the file is torn."""
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        length, checksum = _HEADER.unpack(header)
        if _masked(header[:8]) != checksum:
            return  # there is no telling where the next record begins
        # By pieces: a file that is cut off must not make us allocate what it announces.
        pieces, missing = [], length
        while missing and (piece := file.read(min(missing, _CHUNK))):
            pieces.append(piece)
            missing -= len(piece)
        footer = file.read(_FOOTER.size)
        if missing or len(footer) < _FOOTER.size:
            return
        yield b"".join(pieces), _FOOTER.unpack(footer)[0]


def _scalars(event: bytes, folder: str, plugins: dict[str, str]) -> list[Scalar]:
    """Return the scalars of one event; of a message that is none of ours, nothing."""
    try:
        wall_time_s, step, values = 0.0, 0, []
        for field, _, content in _fields(event):
            if field == 1 and isinstance(content, bytes):
                wall_time_s = struct.unpack("<d", content)[0]
            elif field == 2 and isinstance(content, int):
                step = _signed(content)
            elif field == 5 and isinstance(content, bytes):
                values += [v for f, _, v in _fields(content) if f == 1 and isinstance(v, bytes)]
        found = []
        for value in values:
            tag, number = _value(value, plugins)
            if number is not None:
                found.append(
                    Scalar(folder=folder, tag=tag, step=step, value=number, wall_time_s=wall_time_s)
                )
        return found
    except (ValueError, IndexError, struct.error):
        return []


def _value(message: bytes, plugins: dict[str, str]) -> tuple[str, float | None]:
    """Return tag and number of a Summary.Value; None where it holds no scalar."""
    tag, number, tensor = "", None, None
    for field, wire, content in _fields(message):
        if field == 1 and isinstance(content, bytes):
            tag = content.decode(errors="replace")
        elif field == 2 and wire == _FIXED32 and isinstance(content, bytes):
            number = struct.unpack("<f", content)[0]
        elif field == 8 and isinstance(content, bytes):
            tensor = content
        elif field == 9 and isinstance(content, bytes):
            # Written with a tag's first value, and meant for all of them.
            plugins.setdefault(tag, _plugin(content))
    if number is None and tensor is not None and plugins.get(tag, "scalars") == "scalars":
        number = _tensor(tensor)
    return tag, number


def _plugin(metadata: bytes) -> str:
    for field, _, content in _fields(metadata):
        if field == 1 and isinstance(content, bytes):
            for inner, _, name in _fields(content):
                if inner == 1 and isinstance(name, bytes):
                    return name.decode(errors="replace")
    return "scalars"


def _tensor(message: bytes) -> float | None:
    """Return the number in a TensorProto that has exactly one."""
    kind, fields, content = 0, {}, b""
    for field, wire, part in _fields(message):
        if field == 1 and isinstance(part, int):
            kind = part
        elif field == 2 and part:
            # A shape with dimensions: [1] would be a scalar to some, a histogram's row to others.
            return None
        elif field == 4 and isinstance(part, bytes):
            content = part
        else:
            fields[field] = (wire, part)
    form = _TENSOR_FORMATS.get(kind)
    if form is None:
        return None
    if content:
        return float(struct.unpack(form, content)[0]) if len(content) == _size(form) else None
    # Zero is the default, and a default is not written.
    wire, part = fields.get(_TENSOR_FIELDS[kind], (_VARINT, 0))
    if kind in (1, 2):
        return float(struct.unpack(form, part)[0]) if isinstance(part, bytes) else 0.0
    number = _varint(part, 0)[0] if isinstance(part, bytes) else part
    if kind == 19:
        return float(struct.unpack("<e", struct.pack("<H", number))[0])
    return float(_signed(number))


def _size(form: str) -> int:
    return struct.calcsize(form)


def _fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield number, wire type and content of each field of a protocol buffer."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        wire = key & 7
        if wire == _VARINT:
            number, place = _varint(message, place)
            yield key >> 3, wire, number
            continue
        if wire == _BYTES:
            length, place = _varint(message, place)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if place + length > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, wire, message[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _table() -> tuple[int, ...]:
    """Make the table of CRC-32C (Castagnoli), whose polynomial is 0x1EDC6F41, bits reversed."""
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return tuple(table)


_TABLE = _table()


def _masked(data: bytes) -> int:
    """Return TFRecord's checksum: CRC-32C, rotated and shifted by a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF
