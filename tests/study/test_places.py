from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.study.places import packed, parse_places, per_host
from farandole.study.spec import Room, default_workers, shared_threads

TWO = Room(cores=4, physical=4, hosts=2)
ONE = Room(cores=4, physical=4)


@pytest.mark.parametrize(
    ("text", "room", "places"),
    [
        ("1,2,4,1x8,2x4", TWO, [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2)]),
        ("1,2,4,8", TWO, [(1, 1), (2, 1), (4, 1), (8, 2)]),
        ("4,2x2", TWO, [(4, 1), (4, 2)]),
        ("2x4,8", TWO, [(8, 2)]),
        ("1-3", TWO, [(1, 1), (2, 1), (3, 1)]),
        # More than there is room for: on all hosts, for accuracy.
        ("5,16", TWO, [(5, 2), (16, 2)]),
        ("auto,1x8", ONE, [(1, 1), (2, 1), (4, 1), (8, 1)]),
        ("1x2,16", ONE, [(2, 1), (16, 1)]),
        (" 2 x 2 , 1 ", TWO, [(1, 1), (4, 2)]),
    ],
)
def test_places(text: str, room: Room, places: list[tuple[int, int]]) -> None:
    assert parse_places(text, room=room, auto=default_workers(ONE)) == tuple(places)


@pytest.mark.parametrize(
    ("text", "room", "says"),
    [
        ("2x4", ONE, "-np 2x4 needs 2 hosts, but this study has 1 host"),
        ("1,3x1", TWO, "-np 3x1 needs 3 hosts, but this study has 2 hosts"),
        ("0x4", TWO, "from 1 up"),
        ("2x", TWO, "give numbers from 1 up"),
        ("x", TWO, "give numbers from 1 up"),
    ],
)
def test_what_cannot_be_placed_is_named(text: str, room: Room, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_places(text, room=room, auto=(1, 2))
    assert says in str(caught.value)


def test_defaults_go_up_to_all_hosts() -> None:
    assert default_workers(TWO) == (1, 2, 4, 8)
    assert [packed(count, TWO) for count in default_workers(TWO)][-1] == (8, 2)


def test_slots_limit_workers_and_not_threads() -> None:
    named = Room(cores=8, physical=8, hosts=2, slots=2)
    assert default_workers(named) == (1, 2, 4)
    assert (named.per_host, named.workers) == (2, 4)
    assert shared_threads(named, ((1, 1), (4, 2))) == 4
    # More slots than cores are for accuracy only.
    assert Room(cores=2, physical=2, slots=4).per_host == 2


def test_threads_are_what_the_fullest_host_leaves() -> None:
    assert shared_threads(TWO, ((1, 1), (4, 2))) == 2
    assert shared_threads(TWO, ((1, 1), (8, 2))) == 1
    # 1x8 does not fit, and takes no part.
    assert shared_threads(TWO, ((2, 1), (8, 1))) == 2
    assert per_host(7, 2) == 4
