"""Who waits for whom."""

from __future__ import annotations

from farandole.stalls.pages import JOIN, Key, RankStatus, Stall, deadlock, stalls, unchanged

ALL = (0, 1, 2)


def waits(*names: str, blocked: bool = True, members: tuple[int, ...] = ALL) -> RankStatus:
    return RankStatus(waiting=frozenset(Key(members, name) for name in names), blocked=blocked)


def missing(found: list[Stall]) -> dict[str, tuple[int, ...]]:
    return {stall.key.name: stall.missing for stall in found}


def test_who_has_not_submitted_is_missing() -> None:
    said = {0: waits("a", "b"), 1: waits("b"), 2: RankStatus()}
    found = stalls(0, said, {})
    assert missing(found) == {"a": (1, 2), "b": (2,)}
    assert [stall.waiting for stall in found] == [(0,), (0, 1)]


def test_what_all_have_submitted_is_no_stall() -> None:
    assert stalls(1, dict.fromkeys(ALL, waits("a")), {}) == []


def test_only_members_of_a_set_can_be_missing() -> None:
    said = {0: waits("a", members=(0, 2)), 1: RankStatus(), 2: RankStatus()}
    assert missing(stalls(0, said, {})) == {"a": (2,)}


def test_one_name_in_two_sets_is_two_operations() -> None:
    said = {0: waits("a", members=(0, 1)), 1: waits("a", members=(1, 2)), 2: RankStatus()}
    assert missing(stalls(0, said, {})) == {"a": (1,)}
    assert missing(stalls(1, said, {})) == {"a": (2,)}


def test_a_page_that_was_too_short_accuses_nobody() -> None:
    said = {0: waits("a"), 1: RankStatus(complete=False), 2: waits("a")}
    assert stalls(0, said, {}) == []


def test_ranks_of_other_hosts_are_missing_only_if_that_is_known() -> None:
    said = {0: waits("a")}
    assert stalls(0, said, {}) == []
    assert missing(stalls(0, said, {Key(ALL, "a"): [2]})) == {"a": (2,)}


def test_who_has_joined_takes_part_in_everything() -> None:
    said = {0: waits("a"), 1: waits(JOIN), 2: RankStatus()}
    assert missing(stalls(0, said, {})) == {"a": (2,)}
    assert missing(stalls(0, said, {Key(ALL, "a"): [1, 2]})) == {"a": (2,)}
    assert missing(stalls(1, said, {})) == {JOIN: (0, 2)}


def test_two_ranks_that_wait_for_each_other() -> None:
    found = deadlock(2, {0: waits("a", members=(0, 1)), 1: waits("b", members=(0, 1))})
    assert [(stall.waiting, stall.key.name, stall.missing) for stall in found] == [
        ((0,), "a", (1,)),
        ((1,), "b", (0,)),
    ]


def test_a_ring_of_sets_is_one_too() -> None:
    said = {rank: waits("x", members=(rank, (rank + 1) % 3)) for rank in ALL}
    assert len(deadlock(3, said)) == 3


def test_no_deadlock_while_one_of_them_can_go_on() -> None:
    stuck = waits("a")
    assert deadlock(3, {0: stuck, 1: stuck, 2: waits("b", blocked=False)}) == []
    assert deadlock(3, {0: stuck, 1: stuck, 2: RankStatus()}) == []
    assert deadlock(3, {0: stuck, 1: waits("b")}) == [], "rank 2 is not seen"
    both = waits("a", "b")
    assert deadlock(3, {0: stuck, 1: both, 2: both}) == [], "a is there on all of them"


def test_nothing_is_sure_before_everybody_has_looked_again() -> None:
    before = {0: RankStatus(version=1, looks=5), 1: RankStatus(version=2, looks=9)}
    now = {0: RankStatus(version=1, looks=8), 1: RankStatus(version=2, looks=12)}
    assert unchanged(before, now, looks=3)
    assert not unchanged(before, now, looks=4)
    assert not unchanged(before, {**now, 1: RankStatus(version=3, looks=12)}, looks=3)
    assert not unchanged(before, {0: now[0]}, looks=3)
