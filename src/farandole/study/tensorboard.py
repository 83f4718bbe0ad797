"""Scalars from TensorBoard's event files, read without TensorBoard.

An event file is a sequence of TFRecords: a length, its checksum, a message, its checksum. The
messages are protocol buffers, of which a scalar needs five fields; they are read by hand, so that a
study needs neither TensorBoard nor TensorFlow.
"""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from farandole.study.records import Metric

_HEADER = struct.Struct("<QI")
_CHUNK = 1 << 20
# Numeric types (tensorflow/core/framework/types.proto): the struct format of one value in
# tensor_content, and the field for values outside of it (tensor.proto: float_val, double_val, ...).
_TYPES = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10), 10: ("<?", 11), 19: ("<e", 13)}
_FLOAT, _DOUBLE, _HALF = 1, 2, 19
# The folders of Keras' callback, and what its history calls their metrics.
_KERAS_PREFIXES = {"train": "", "validation": "val_"}

_Message = dict[int, list["int | bytes"]]
"""The fields of a protocol buffer: numbers, and bytes for everything else."""


class Scalar(NamedTuple):
    """One scalar of an event file."""

    wall_time_s: float
    """Unix time."""
    folder: str
    """Of the file, relative to where reading began; "" for that folder itself."""
    tag: str
    step: int
    value: float


def read_metrics(folder: Path, *, begin_unix_s: float = 0.0) -> tuple[Metric, ...]:
    """Read the scalars written since a launch began in the event files below a folder.

    They are named by their tag, with their folder where two have the same tag. Keras writes
    epoch_loss into the folders train and validation; these become loss and val_loss, as in its
    history.
    """
    scalars = sorted(
        scalar
        for path in folder.rglob("*tfevents*")
        for scalar in read_file(path, folder="" if path.parent == folder else path.parent.name)
        if scalar.wall_time_s >= begin_unix_s
    )
    folders = Counter(tag for tag, _ in {(scalar.tag, scalar.folder) for scalar in scalars})
    metrics = []
    for wall_time_s, place, tag, step, value in scalars:
        name, when = tag, dict[str, Any](step=step)
        if place in _KERAS_PREFIXES and tag.startswith("epoch_"):
            name, when = _KERAS_PREFIXES[place] + tag.removeprefix("epoch_"), {"epoch": float(step)}
        elif folders[tag] > 1 and place:
            name = f"{place}/{tag}"
        metrics.append(Metric(name=name, value=value, time_s=wall_time_s - begin_unix_s, **when))
    return tuple(metrics)


def read_file(path: Path, *, folder: str = "") -> Iterator[Scalar]:
    """Read the scalars of one event file; a file that cannot be read has none."""
    plugins: dict[str, str] = {}
    with contextlib.suppress(OSError), path.open("rb") as file:
        for record, checksum in _records(file):
            # Images and histograms are large, and their checksums nobody asks for.
            found = _scalars(record, folder, plugins)
            if found and _checksum(record) == checksum:
                yield from found


def _records(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield messages with their checksums, up to the end or to where the file is torn."""
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        length, checksum = _HEADER.unpack(header)
        if _checksum(header[:8]) != checksum:
            return  # there is no telling where the next record begins
        # By pieces: a file that is cut off must not make us allocate what it announces.
        pieces, missing = [], length
        while missing and (piece := file.read(min(missing, _CHUNK))):
            pieces.append(piece)
            missing -= len(piece)
        footer = file.read(4)
        if missing or len(footer) < 4:
            return
        yield b"".join(pieces), int.from_bytes(footer, "little")


def _scalars(event: bytes, folder: str, plugins: dict[str, str]) -> list[Scalar]:
    """Return the scalars of one event; of a message that is none of ours, nothing."""
    try:
        message = _parse(event)
        (wall_time_s,) = struct.unpack("<d", _bytes(message, 1) or bytes(8))
        found = []
        for value in _parse(_bytes(message, 5)).get(1, []):
            tag, number = _value(_parse(value), plugins)
            if number is not None:
                found.append(Scalar(wall_time_s, folder, tag, _integer(message, 2), number))
        return found
    except (ValueError, TypeError, LookupError, struct.error):
        return []


def _value(value: _Message, plugins: dict[str, str]) -> tuple[str, float | None]:
    """Return tag and number of a Summary.Value; None where it holds no scalar."""
    tag = _bytes(value, 1).decode(errors="replace")
    if metadata := _bytes(value, 9):
        # Written with a tag's first value, and meant for all of them.
        name = _bytes(_parse(_bytes(_parse(metadata), 1)), 1)
        plugins.setdefault(tag, name.decode(errors="replace") or "scalars")
    if simple := _bytes(value, 2):
        return tag, float(struct.unpack("<f", simple)[0])
    if (tensor := _bytes(value, 8)) and plugins.get(tag, "scalars") == "scalars":
        return tag, _tensor(_parse(tensor))
    return tag, None


def _tensor(tensor: _Message) -> float | None:
    """Return the number in a TensorProto that has exactly one."""
    kind, content = _integer(tensor, 1), _bytes(tensor, 4)
    # A shape with dimensions: [1] would be a scalar to some, a histogram's row to others.
    if kind not in _TYPES or _bytes(tensor, 2):
        return None
    form, field = _TYPES[kind]
    length = struct.calcsize(form)
    if not content and kind in (_FLOAT, _DOUBLE):
        content = _bytes(tensor, field) or bytes(length)  # zero is the default, and not written
    elif not content and kind == _HALF:
        content = _integer(tensor, field).to_bytes(length, "little")
    elif not content:
        return float(_integer(tensor, field))
    return float(struct.unpack(form, content)[0]) if len(content) == length else None


def _parse(data: int | bytes) -> _Message:
    """Return the fields of a message."""
    if isinstance(data, int):
        raise TypeError("a number where a message belongs")
    message: _Message = {}
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        content: int | bytes
        content, after = _varint(data, place) if key & 7 in (0, 2) else (0, place)
        if key & 7 != 0:
            length = {1: 8, 2: content, 5: 4}[key & 7]  # a LookupError for others
            content, after = data[after : after + length], after + length
            if after > len(data):
                raise ValueError("a field longer than its message")
        place = after
        message.setdefault(key >> 3, []).append(content)
    return message


def _bytes(message: _Message, field: int) -> bytes:
    """Return the last one, as the format has it; empty where there is none."""
    return next((x for x in reversed(message.get(field, [])) if isinstance(x, bytes)), b"")


def _integer(message: _Message, field: int) -> int:
    """Return a signed number, the first of a packed list; 0 where there is none."""
    part = message.get(field, [0])[-1]
    number = _varint(part, 0)[0] if isinstance(part, bytes) else part
    return number - (1 << 64) if number >= 1 << 63 else number


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 64, 7):
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise ValueError("a number of more than 64 bits")


def _table() -> list[int]:
    """Make the table of CRC-32C (Castagnoli), whose polynomial is 0x1EDC6F41, bits reversed."""
    table = list(range(256))
    for _ in range(8):
        table = [number >> 1 ^ (0x82F63B78 if number & 1 else 0) for number in table]
    return table


_TABLE = _table()


def _checksum(data: bytes) -> int:
    """Return TFRecord's checksum: CRC-32C, rotated and shifted by a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF
