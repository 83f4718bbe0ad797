"""Scalars from TensorBoard's event files, read without TensorBoard.

An event file is a sequence of TFRecords: a length, its checksum, a message, its checksum. The
messages are protocol buffers, of which a scalar needs five fields; they are read by hand, so that a
study needs neither TensorBoard nor TensorFlow to take along what a script wrote for them.
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
# tensorflow/core/framework/types.proto: the numeric types, as struct formats for tensor_content.
_TENSOR_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 10: "<?", 19: "<e"}
# tensorflow/core/framework/tensor.proto: where a value of the type stands when not in
# tensor_content: float_val, double_val, int_val, int64_val, bool_val, half_val.
_TENSOR_FIELDS = {1: 5, 2: 6, 3: 7, 9: 10, 10: 11, 19: 13}
# The folders of Keras' callback, and what its history calls their metrics.
_KERAS_PREFIXES = {"train": "", "validation": "val_"}


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
    """Read all scalars in the event files below a folder, in the order of their writing.

    They are named by their tag, with their folder where two have the same tag. Keras writes
    epoch_loss into the folders train and validation; these become loss and val_loss, as in its
    history.

    Args:
        folder: Where to look, subfolders included.
        begin_unix_s: When the launch began: what was written earlier is left out, and times count
            from there.
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
        message = _Message(event)
        (wall_time_s,) = struct.unpack("<d", message.bytes(1) or bytes(8))
        found = []
        for value in _Message(message.bytes(5)).all(1):
            tag, number = _value(_Message(value), plugins)
            if number is not None:
                found.append(Scalar(wall_time_s, folder, tag, message.integer(2), number))
        return found
    except (ValueError, IndexError, struct.error):
        return []


def _value(value: _Message, plugins: dict[str, str]) -> tuple[str, float | None]:
    """Return tag and number of a Summary.Value; None where it holds no scalar."""
    tag = value.bytes(1).decode(errors="replace")
    if metadata := value.bytes(9):
        # Written with a tag's first value, and meant for all of them.
        name = _Message(_Message(metadata).bytes(1)).bytes(1)
        plugins.setdefault(tag, name.decode(errors="replace") or "scalars")
    if simple := value.bytes(2):
        return tag, float(struct.unpack("<f", simple)[0])
    if (tensor := value.bytes(8)) and plugins.get(tag, "scalars") == "scalars":
        return tag, _tensor(_Message(tensor))
    return tag, None


def _tensor(tensor: _Message) -> float | None:
    """Return the number in a TensorProto that has exactly one."""
    kind, content = tensor.integer(1), tensor.bytes(4)
    form = _TENSOR_FORMATS.get(kind)
    # A shape with dimensions: [1] would be a scalar to some, a histogram's row to others.
    if form is None or tensor.bytes(2):
        return None
    if not content and kind in (1, 2):
        # Zero is the default, and a default is not written.
        content = tensor.bytes(_TENSOR_FIELDS[kind]) or bytes(8 if kind == 2 else 4)
    if not content and kind == 19:
        content = tensor.integer(_TENSOR_FIELDS[kind]).to_bytes(2, "little")
    if not content:
        return float(tensor.integer(_TENSOR_FIELDS[kind]))
    one = len(content) == struct.calcsize(form)
    return float(struct.unpack(form, content)[0]) if one else None


class _Message:
    """The fields of a protocol buffer: numbers, and bytes for everything else."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        place = 0
        while place < len(data):
            key, place = _varint(data, place)
            wire = key & 7
            content: int | bytes
            if wire == 0:
                content, place = _varint(data, place)
            else:
                length = {1: 8, 5: 4}.get(wire)
                if wire == 2:
                    length, place = _varint(data, place)
                if length is None or place + length > len(data):
                    raise ValueError(f"wire type {wire}, or a field longer than its message")
                content = data[place : place + length]
                place += length
            self._fields.setdefault(key >> 3, []).append(content)

    def all(self, field: int) -> list[bytes]:
        return [part for part in self._fields.get(field, []) if isinstance(part, bytes)]

    def bytes(self, field: int) -> bytes:
        """Return the last one, as the format has it; empty where there is none."""
        return next(reversed(self.all(field)), b"")

    def integer(self, field: int) -> int:
        """Return a signed number, the first of a packed list; 0 where there is none."""
        part = next(reversed(self._fields.get(field, [])), 0)
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
