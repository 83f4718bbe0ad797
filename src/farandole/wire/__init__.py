"""Turn the objects that ranks exchange into bytes and back.

Plain data (numbers, strings, containers, paths, dates, tensors, arrays: `plain.py`, `arrays.py` and
`tensors.py` list them) travel in a tagged binary format of our own, which cannot run code
when it is read. Anything else needs pickle, which can, and is therefore the caller's choice.

A message is two bytes of header (format, kind) and a body. One object that is not plain sends the
whole message through pickle, not only itself: references between its parts stay intact that way.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from farandole.errors import FarandoleError, ObjectFormatError, PickleRefusedError, UsageError
from farandole.wire.plain import NotPlainError, Reader, Writer

__all__ = ["decode", "encode", "with_parts"]

_FORMAT = 0xFA
_PLAIN = 0x01
_PICKLE = 0x02


def encode(obj: Any, *, allow_pickle: bool) -> bytes:
    """Return `obj` as bytes.

    Tensors and arrays travel as values: they arrive contiguous, on the CPU, and without history.
    An object that occurs twice arrives as one object that occurs twice.

    Args:
        obj: What to send.
        allow_pickle: Whether objects that are not plain data may be pickled.

    Raises:
        PickleRefusedError: `obj` holds something that is not plain data and pickle is off.
        UsageError: Not even pickle can send it (an open file, a lock).
    """
    try:
        return Writer(bytes((_FORMAT, _PLAIN))).write(obj)
    except NotPlainError as exc:
        not_plain = exc
    if not allow_pickle:
        raise PickleRefusedError(
            f"{not_plain.where()} {not_plain.reason}, so it can only be sent with pickle, which "
            "Farandole uses between processes of one user on one host and nowhere else. Send plain "
            "data (numbers, strings, lists, dicts, tensors, arrays), or set "
            "FARANDOLE_ALLOW_PICKLE=1 on every rank if you trust every host of this job."
        ) from None
    return bytes((_FORMAT, _PICKLE)) + _pickled(obj, not_plain)


def with_parts(obj: Any, use: Callable[[Sequence[bytes | memoryview]], None]) -> None:
    """Have plain data used as the parts of its bytes, large tensors and arrays where they lie.

    Raises:
        UsageError: `obj` holds something that is not plain data.
    """
    writer = Writer(bytes((_FORMAT, _PLAIN)))
    try:
        writer.put(obj)
    except NotPlainError as error:
        raise UsageError(
            f"{error.where()} {error.reason}: only plain data is kept beyond this process "
            "(numbers, strings, lists, dicts, tensors, arrays)."
        ) from None
    use(writer.parts)


def decode(data: bytes, *, allow_pickle: bool) -> Any:
    """Return the object that `encode` turned into `data`.

    Safe on any input as long as `allow_pickle` is off: at worst an error, and never an allocation
    that the length of `data` does not justify.

    Raises:
        ObjectFormatError: `data` did not come from `encode`, or not all of it arrived.
        PickleRefusedError: `data` is a pickle and `allow_pickle` is off.
        MissingExtraError: `data` holds a tensor and torch is not installed here.
    """
    if len(data) < 2 or data[0] != _FORMAT or data[1] not in (_PLAIN, _PICKLE):
        raise ObjectFormatError(
            f"A peer sent {len(data)} bytes that are not an object of this version of Farandole "
            f"(they begin with {bytes(data[:4]).hex() or 'nothing'}). Use the same version of "
            "Farandole on every rank."
        )
    body = memoryview(data)[2:]
    if data[1] == _PLAIN:
        return _read_plain(body)
    if not allow_pickle:
        raise PickleRefusedError(
            "A peer sent a pickled object, and pickle is off on this rank because it can run any "
            "code. Set FARANDOLE_ALLOW_PICKLE=1 on every rank if you trust every host of this "
            "job, or send plain data."
        )
    try:
        return pickle.loads(body)
    except Exception as exc:
        raise ObjectFormatError(
            f"A peer's pickled object cannot be read here ({type(exc).__name__}: {exc}). Every "
            "rank needs the same modules, and the class must be defined before the call."
        ) from exc


def _read_plain(body: memoryview) -> Any:
    try:
        return Reader(body).read()
    except FarandoleError:
        raise
    # Whatever hostile bytes make a constructor raise (a year 0, a dict as a key, a shape that
    # overflows), the caller gets one error to handle.
    except Exception as exc:
        raise ObjectFormatError(
            f"A peer's object is damaged ({type(exc).__name__}: {exc}); {len(body)} bytes arrived. "
            "Use the same version of Farandole on every rank."
        ) from exc


def _pickled(obj: Any, not_plain: NotPlainError) -> bytes:
    # pickle first: it keeps the classes of the script itself (`__main__`) by name, so that
    # isinstance holds on the other side. cloudpickle would send them by value.
    try:
        return pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as exc:
        first = exc
    try:
        import cloudpickle

        by_value: bytes = cloudpickle.dumps(obj)
    except Exception:
        raise UsageError(
            f"{not_plain.where()} {not_plain.reason}, and it cannot be pickled either "
            f"({type(first).__name__}: {first}). Send the values it is made from."
        ) from first
    return by_value
