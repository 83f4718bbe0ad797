"""NumPy's types in messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from farandole.errors import ObjectFormatError, PickleRefusedError
from farandole.wire import decode, encode

NESTED = np.dtype([("a", "<f4"), ("b", [("c", "i1", (2, 2)), ("d", "S3")])])
PADDED = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8]})


def there_and_back(obj: Any) -> Any:
    return decode(encode(obj, allow_pickle=False), allow_pickle=False)


def same(a: Any, b: Any) -> bool:
    return (
        type(a) is type(b)
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.tobytes() == b.tobytes()
    )


@settings(deadline=None)
@given(hnp.arrays(hnp.scalar_dtypes() | hnp.byte_string_dtypes(), hnp.array_shapes(min_dims=0)))
def test_any_array_bit_for_bit(array: Any) -> None:
    assert same(there_and_back(array), array)


@pytest.mark.parametrize(
    "array",
    [
        np.array(1.5),
        np.zeros((0, 3), "i2"),
        np.array(["a", "üü"]),
        np.arange(12).reshape(3, 4).T,
        np.arange(12)[::-2],
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(3, dtype=">i4"),
        np.array(["2024-02-29", "NaT"], "M8[ns]"),
        np.zeros(2, NESTED),
        np.zeros(2, PADDED),
        np.frombuffer(b"read only", "u1"),
    ],
    ids=lambda a: f"{a.dtype.kind}{a.shape}",
)
def test_known_arrays(array: Any) -> None:
    out = there_and_back(array)
    assert same(out, array)
    assert out.flags.writeable
    assert out.flags.c_contiguous


@pytest.mark.parametrize(
    "scalar",
    [
        np.float32(0.1),
        np.float16("nan"),
        np.int64(-5),
        np.uint64(2**64 - 1),
        np.bool_(True),
        np.complex64(1 + 2j),
        np.longdouble(1) / 3,
        np.datetime64("2024-02-29T12:00", "s"),
        np.timedelta64(5, "D"),
        np.str_(""),
        np.str_("aü\0"),
        np.bytes_(b"a\0"),
        np.void(b"abc"),
        np.zeros(1, NESTED)[0],
    ],
    ids=lambda s: type(s).__name__,
)
def test_scalars_keep_their_type(scalar: Any) -> None:
    assert same(there_and_back(scalar), scalar)


def test_an_array_that_occurs_twice_arrives_as_one() -> None:
    array = np.ones(3)
    out = there_and_back([array, array])
    assert out[0] is out[1]


def test_a_structured_array_that_occurs_twice_is_not_taken_for_its_type() -> None:
    array, text = np.zeros(2, NESTED), "so long that it is remembered too"
    first, second, once, again = there_and_back([array, array, text, text])
    assert first is second
    assert same(first, array)
    assert once == again == text


@pytest.mark.parametrize(
    "array",
    [
        np.array([None, 1]),
        np.zeros(2, [("a", "f4"), ("b", "O")]),
        np.array(["a"], np.dtypes.StringDType()),
        np.zeros(3, "V0"),
        np.ma.masked_array([1, 2], [True, False]),
    ],
    ids=["object", "object-field", "string-dtype", "no-bytes", "subclass"],
)
def test_arrays_that_are_not_plain(array: Any) -> None:
    with pytest.raises(PickleRefusedError, match=r'part \["x"\] is'):
        encode({"x": array}, allow_pickle=False)


def loop() -> list[Any]:
    description: list[Any] = []
    description.append(("a", description))
    return description


def message(dtype: Any, shape: bytes, data: bytes) -> bytes:
    return (
        b"\xfa\x01\x40" + encode(dtype, allow_pickle=False)[2:] + shape + bytes((len(data),)) + data
    )


def test_the_hand_made_message_is_right() -> None:
    out = decode(message("<i2", b"\x01\x02", b"\1\0\2\0"), allow_pickle=False)
    assert out.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("dtype", "shape", "data"),
    [
        ("O", b"\x01\x01", bytes(8)),
        ([("a", "O")], b"\x01\x01", bytes(8)),
        ("<i2", b"\x01\x03", bytes(4)),
        ("V0", b"\x01\xff\xff\xff\xff\xff\xff\x7f", b""),
        ("S0", b"\x01\xff\xff\xff\xff\xff\xff\x7f", b""),
        ("S2000000000", b"\x01\x00", b""),
        ([("a", "<f4", (2**31, 2**31))], b"\x01\x00", b""),
        (loop(), b"\x01\x00", b""),
        ("f4,f4", b"\x00", bytes(8)),
        ([("a",)], b"\x00", b""),
        ("nonsense", b"\x00", b""),
        (3, b"\x00", b""),
        (None, b"\x00", bytes(8)),
        ({"names": ["a"], "formats": ["f4"], "itemsize": 1 << 30}, b"\x01\x00", b""),
    ],
    ids=str,
)
def test_hostile_arrays(dtype: Any, shape: bytes, data: bytes) -> None:
    with pytest.raises(ObjectFormatError):
        decode(message(dtype, shape, data), allow_pickle=False)
