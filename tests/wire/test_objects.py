"""Round trips, refusals, and bytes that nobody wrote."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import math
import pathlib
import struct
import subprocess
import sys
import threading
import types
from collections import Counter, OrderedDict, namedtuple
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.errors import ObjectFormatError, PickleRefusedError, UsageError
from farandole.wire import decode, encode
from farandole.wire.plain import MAX_DEPTH

# A shared machine stalls now and then; how long one example takes says nothing here.
unhurried = settings(deadline=None)

Point = namedtuple("Point", "x y")


class Config:
    """A user's own class, importable on both sides."""

    def __init__(self, lr: float) -> None:
        self.lr = lr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and other.lr == self.lr

    __hash__ = None  # type: ignore[assignment]


def there_and_back(obj: Any) -> Any:
    return decode(encode(obj, allow_pickle=False), allow_pickle=False)


def nested(levels: int) -> list[Any]:
    obj: list[Any] = []
    for _ in range(levels - 1):
        obj = [obj]
    return obj


def same(a: Any, b: Any) -> bool:
    """Equal in type and value at every level, nan equal to nan, 0.0 not to -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, set | frozenset):
        return len(a) == len(b)
    if isinstance(a, argparse.Namespace | types.SimpleNamespace):
        return same(vars(a), vars(b))
    return bool(a == b)


atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.text(alphabet=st.characters(categories=["Cs"]))
    | st.binary(max_size=100)
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.datetimes(timezones=st.none() | st.just(datetime.timezone.utc) | st.timezones())
    | st.text(alphabet="ab./", max_size=8).map(pathlib.PurePosixPath)
)
keys = st.recursive(
    atoms, lambda k: st.lists(k, max_size=3).map(tuple) | st.frozensets(k, max_size=3), max_leaves=5
)
names = st.text(alphabet="abcdef_", min_size=1, max_size=6)
plain_objects = st.recursive(
    atoms | st.binary(max_size=20).map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(keys, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4).map(OrderedDict)
        | st.dictionaries(names, inner, max_size=4).map(lambda d: argparse.Namespace(**d))
        | st.dictionaries(names, inner, max_size=4).map(lambda d: types.SimpleNamespace(**d))
    ),
    max_leaves=15,
)


class TestRoundTrip:
    @unhurried
    @given(plain_objects)
    def test_any_plain_object_arrives_equal_and_of_the_same_types(self, obj: Any) -> None:
        assert same(there_and_back(obj), obj)

    @pytest.mark.parametrize(
        "obj",
        [
            0,
            -1,
            127,
            128,
            -128,
            -129,
            2**64,
            -(2**64),
            10**4000,
            0.0,
            -0.0,
            5e-324,
            math.inf,
            -math.inf,
            math.nan,
            ...,
            "",
            "ünïcödé \U0001f483 \udcff",
            b"",
            bytes(range(256)),
            bytearray(b"\x00\x01"),
            [],
            (),
            set(),
            frozenset({1, 2}),
            {},
            {(1, "a"): [None], None: ..., frozenset({1}): 2},
            OrderedDict([("b", 1), ("a", 2)]),
            argparse.Namespace(lr=0.1, name="x"),
            types.SimpleNamespace(lr=0.1),
            pathlib.Path("/tmp/a b"),
            pathlib.PureWindowsPath("C:\\data"),
            datetime.date(2024, 2, 29),
            datetime.time(23, 59, 59, 999999, fold=1),
            datetime.timedelta(days=-999999999),
            datetime.timedelta.max,
            datetime.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1),
            datetime.timezone(datetime.timedelta(hours=5, minutes=30), "IST"),
            datetime.timezone(datetime.timedelta(seconds=-1)),
        ],
        ids=lambda obj: repr(obj)[:40],
    )
    def test_known_cases(self, obj: Any) -> None:
        assert same(there_and_back(obj), obj)

    def test_nan_keeps_its_payload(self) -> None:
        (strange,) = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))
        assert struct.pack("<d", there_and_back(strange)).hex() == "010000000000f8ff"

    def test_order_of_a_dict_is_kept(self) -> None:
        assert list(there_and_back({"z": 1, "a": 2, 3: 3})) == ["z", "a", 3]

    def test_the_fold_of_a_time_counts(self) -> None:
        assert there_and_back(datetime.time(1, fold=1)).fold == 1

    def test_an_object_that_occurs_twice_arrives_as_one(self) -> None:
        row = [1]
        text = "a long text, which is worth remembering" * 2
        out = there_and_back({"a": row, "b": (row, text), "c": text})
        assert out["a"] is out["b"][0]
        assert out["b"][1] is out["c"]

    def test_a_long_object_is_written_once(self) -> None:
        data = bytes(100_000)
        assert len(encode([data] * 50, allow_pickle=False)) < 101_000

    def test_a_list_that_holds_itself(self) -> None:
        loop: list[Any] = [1]
        loop.append({"me": loop})
        out = there_and_back(loop)
        assert out[1]["me"] is out

    def test_attributes_of_an_ordered_dict_come_along(self) -> None:
        state = OrderedDict(a=1)
        state._metadata = {"": {"version": 1}}  # type: ignore[attr-defined]
        assert there_and_back(state)._metadata == {"": {"version": 1}}

    def test_the_deepest_object_that_is_plain(self) -> None:
        deepest = nested(MAX_DEPTH)
        assert there_and_back(deepest) == deepest

    def test_small_values_stay_small(self) -> None:
        assert len(encode({"epoch": 3, "loss": 0.5}, allow_pickle=False)) < 40


class TestPickle:
    @pytest.mark.parametrize(
        ("obj", "where", "what"),
        [
            (Config(0.1), "The object is a", "Config"),
            ({"state": [Config(0.1)]}, 'part ["state"][0] ', "Config"),
            (argparse.Namespace(model=Point(1, 2)), "part .model ", "Point"),
            ((1, {2: Counter("a")}), "part [1][2] ", "Counter"),
            ({1, Point(1, 2)}, "part member ", "Point"),
            ({Point(1, 2): 0}, "part key Point(x=1, y=2) ", "Point"),
            (nested(MAX_DEPTH + 1), "part [0][0]", "levels deep"),
        ],
        ids=["itself", "dict-list", "namespace", "tuple-dict", "set", "key", "deep"],
    )
    def test_refusal_names_the_type_the_place_and_the_way_out(
        self, obj: Any, where: str, what: str
    ) -> None:
        with pytest.raises(PickleRefusedError) as caught:
            encode(obj, allow_pickle=False)
        text = str(caught.value)
        assert where in text
        assert what in text
        assert "FARANDOLE_ALLOW_PICKLE=1" in text

    @pytest.mark.parametrize("obj", [Config(0.1), Point(1, 2), Counter("aab"), {"a": [Config(1)]}])
    def test_other_objects_go_through_pickle_when_allowed(self, obj: Any) -> None:
        out = decode(encode(obj, allow_pickle=True), allow_pickle=True)
        assert out == obj
        assert type(out) is type(obj)

    def test_references_hold_across_plain_and_pickled_parts(self) -> None:
        config = Config(0.1)
        out = decode(encode([config, {"again": config}], allow_pickle=True), allow_pickle=True)
        assert out[0] is out[1]["again"]

    def test_a_lambda_travels_by_value(self) -> None:
        out = decode(encode(lambda x: x + 1, allow_pickle=True), allow_pickle=True)
        assert out(1) == 2

    def test_plain_data_never_use_pickle_even_when_allowed(self) -> None:
        assert encode([1], allow_pickle=True) == encode([1], allow_pickle=False)

    def test_a_pickle_from_a_peer_is_refused(self) -> None:
        with pytest.raises(PickleRefusedError, match="FARANDOLE_ALLOW_PICKLE=1"):
            decode(encode(Config(1), allow_pickle=True), allow_pickle=False)

    def test_what_no_pickle_can_send_is_named(self) -> None:
        with pytest.raises(UsageError, match=r'part \["lock"\] is a _thread.lock'):
            encode({"lock": threading.Lock()}, allow_pickle=True)

    def test_a_pickle_that_does_not_load(self) -> None:
        broken = encode(Config(1), allow_pickle=True).replace(b"Config", b"Konfig")
        with pytest.raises(ObjectFormatError, match="same modules"):
            decode(broken, allow_pickle=True)


class TestHostileBytes:
    @unhurried
    @given(st.binary(max_size=300))
    def test_random_bytes(self, data: bytes) -> None:
        for message in (data, b"\xfa\x01" + data):
            self.decode_or_refuse(message)

    @settings(max_examples=300, deadline=None)
    @given(plain_objects, st.data())
    def test_one_changed_byte(self, obj: Any, data: st.DataObject) -> None:
        message = bytearray(encode(obj, allow_pickle=False))
        # The kind of the message stays, or pickle would be refused before anything is read.
        position = data.draw(st.integers(2, len(message) - 1))
        message[position] = data.draw(st.integers(0, 255))
        self.decode_or_refuse(bytes(message))

    @unhurried
    @given(plain_objects)
    def test_every_cut_is_noticed(self, obj: Any) -> None:
        message = encode(obj, allow_pickle=False)
        for length in range(len(message)):
            with pytest.raises(ObjectFormatError):
                decode(message[:length], allow_pickle=False)

    def test_bytes_left_over(self) -> None:
        with pytest.raises(ObjectFormatError, match="1 bytes are left over"):
            decode(encode(1, allow_pickle=False) + b"\0", allow_pickle=False)

    @pytest.mark.parametrize(
        ("body", "complaint"),
        [
            ("7f", "unknown tag 0x7f"),
            ("10ffffffffffffffff7f", "values cannot be in"),  # list
            ("14ffffffffffffffff7f", "values cannot be in"),  # dict
            ("07ffffffffffffffff7f", "bytes expected, 0 are there"),  # bytes
            ("03ffffffffffffffff7f", "bytes expected, 0 are there"),  # int
            ("10ffffffffffffffffff01", "more than 63 bits"),
            ("1f00", "reference to object 0 of 0"),
            ("14011000", "0 of|bytes expected|cannot be in"),  # dict with a list as its key
            ("1201140000", "damaged|left over"),  # set of a dict
            ("06021fff", "damaged"),  # not UTF-8
            ("250000000000", "damaged"),  # year 0
            ("2600000000000000001002", "damaged"),  # a list as time zone
            ("1601030100" + "00", "attribute whose name is not a string"),
            ("29" + "0a" + "2e2e2f2e2e2f61626364", "damaged"),  # zone ../../abcd
        ],
    )
    def test_known_attacks(self, body: str, complaint: str) -> None:
        with pytest.raises(ObjectFormatError, match=complaint):
            decode(b"\xfa\x01" + bytes.fromhex(body), allow_pickle=False)

    def test_deep_nesting_ends_in_an_error(self) -> None:
        with pytest.raises(ObjectFormatError, match="levels deep"):
            decode(b"\xfa\x01" + b"\x10\x01" * 100_000 + b"\0", allow_pickle=False)

    @pytest.mark.parametrize("data", [b"", b"\xfa", b"\xfa\x03abc", b"\x80\x04N."])
    def test_what_is_not_ours_at_all(self, data: bytes) -> None:
        with pytest.raises(ObjectFormatError, match="same version of Farandole"):
            decode(data, allow_pickle=True)

    @staticmethod
    def decode_or_refuse(message: bytes) -> None:
        with contextlib.suppress(ObjectFormatError, PickleRefusedError):
            decode(message, allow_pickle=False)


def test_plain_data_need_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from farandole.wire import decode, encode;"
        "assert decode(encode({'a': [1.5]}, allow_pickle=False), allow_pickle=False)"
        " == {'a': [1.5]};"
        "assert not {'torch', 'numpy', 'cloudpickle'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
