"""Agreement on named operations, without a process: any interleaving gives the same answers."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from farandole.engine.coordinator import (
    FUSE_EACH_BYTES,
    FUSE_TOTAL_BYTES,
    Coordinator,
    Decision,
    size_of,
)
from farandole.engine.signature import Signature
from farandole.transport.reduction import Reduction
from farandole.transport.shm import eager


def allreduce(count: int, dtype: str = "float32", op: str = "sum") -> Signature:
    return Signature.reducing("allreduce", dtype, (count,), Reduction(op=op))


VARIETY = [
    allreduce(3),
    allreduce(5000, "float64"),
    allreduce(7, op="max"),
    allreduce(1_000_000),
    Signature("broadcast", "float32", (4,), root=1),
    Signature("barrier", "uint8", ()),
]


@st.composite
def schedules(draw: st.DrawFn) -> tuple[int, dict[str, list[Signature]], list[Any]]:
    """Ranks, what each submits under each name, and when: a submission, or a look (None)."""
    size = draw(st.integers(1, 4))
    names = {}
    for i in range(draw(st.integers(1, 12))):
        common = draw(st.sampled_from(VARIETY))
        odd = draw(st.sampled_from([None, None, None, *VARIETY]))
        said = [common] * size
        if odd is not None:
            said[draw(st.integers(0, size - 1))] = odd
        names[f"n{i}"] = said
    orders = [draw(st.permutations(sorted(names))) for _ in range(size)]
    turns = draw(st.permutations([rank for rank in range(size) for _ in names]))
    left = [list(order) for order in orders]
    events: list[Any] = []
    for rank in turns:
        events.append((rank, left[rank].pop(0)))
        if draw(st.booleans()):
            events.append(None)
    return size, names, [*events, None]


@given(schedules())
def test_any_interleaving_gives_every_name_one_decision(
    schedule: tuple[int, dict[str, list[Signature]], list[Any]],
) -> None:
    size, names, events = schedule
    coordinator = Coordinator(size, eager_bytes=eager.DATA_BYTES)
    submitted: dict[str, set[int]] = {name: set() for name in names}
    decisions: list[Decision] = []
    for event in events:
        if event is None:
            new = coordinator.decide()
            for decision in new:
                assert all(len(submitted[name]) == size for name in decision.names)
            decisions += new
        else:
            rank, name = event
            submitted[name].add(rank)
            coordinator.submit(rank, name, names[name][rank], extra=[name, rank])
            assert coordinator.missing().get(name, []) == [
                r for r in range(size) if r not in submitted[name]
            ]
    decided = [name for decision in decisions for name in decision.names]
    assert sorted(decided) == sorted(names)
    assert coordinator.missing() == {}
    assert coordinator.decide() == []
    for decision in decisions:
        check_decision(decision, names, size)


def check_decision(decision: Decision, names: dict[str, list[Signature]], size: int) -> None:
    assert len(decision.names) == len(decision.extras) == len(decision.tickets)
    for name, extras, ticket in zip(decision.names, decision.extras, decision.tickets, strict=True):
        assert extras == [[name, rank] for rank in range(size)]
        differ = len(set(names[name])) > 1
        assert bool(decision.error) == differ
        if differ:
            assert repr(name) in decision.error
            assert ticket is None
    if len(decision.names) > 1:
        first = names[decision.names[0]][0]
        members = [names[name][0] for name in decision.names]
        assert first.kind == "allreduce"
        assert {member._replace(shape=()) for member in members} == {first._replace(shape=())}
        assert all(size_of(member) <= FUSE_EACH_BYTES for member in members)
        assert sum(map(size_of, members)) <= FUSE_TOTAL_BYTES
    assert Decision.decode(decision.encode()) == decision


def decided(coordinator: Coordinator, **operations: Signature) -> list[Decision]:
    for name, signature in operations.items():
        coordinator.submit(0, name, signature)
    return coordinator.decide()


def test_the_order_is_that_of_completion() -> None:
    coordinator = Coordinator(2)
    for rank, name in [(0, "a"), (0, "b"), (1, "b"), (1, "a")]:
        coordinator.submit(rank, name, Signature("barrier", "uint8", ()))
    assert [d.names for d in coordinator.decide()] == [["b"], ["a"]]


def test_small_allreduces_of_a_kind_run_as_one() -> None:
    together = decided(Coordinator(1), a=allreduce(3), b=allreduce(5), c=allreduce(3, op="max"))
    assert [decision.names for decision in together] == [["a", "b"], ["c"]]


def test_a_fused_operation_is_bounded() -> None:
    count = FUSE_EACH_BYTES // 4
    operations = {f"n{i:02}": allreduce(count) for i in range(20)}
    together = decided(Coordinator(1), **operations)
    most = FUSE_TOTAL_BYTES // FUSE_EACH_BYTES
    assert [len(decision.names) for decision in together] == [most, 20 - most]
    alone = decided(Coordinator(1), a=allreduce(count + 1), b=allreduce(count + 1))
    assert [decision.names for decision in alone] == [["a"], ["b"]]


def test_what_is_on_a_gpu_is_neither_fused_nor_eager() -> None:
    there = allreduce(3)._replace(device="cuda")
    both = decided(Coordinator(1, eager_bytes=eager.DATA_BYTES), a=there, b=there)
    assert [(decision.names, decision.tickets) for decision in both] == [
        (["a"], [None]),
        (["b"], [None]),
    ]


def test_small_operations_get_a_place_on_the_eager_board_and_keep_it() -> None:
    coordinator = Coordinator(1, eager_bytes=eager.DATA_BYTES)
    (first,) = decided(coordinator, a=allreduce(3))
    (again,) = decided(coordinator, a=allreduce(3))
    (other,) = decided(coordinator, a=allreduce(5))
    assert first.tickets == again.tickets
    (ticket,), (variant,) = first.tickets, other.tickets
    assert ticket is not None
    assert variant is not None
    assert ticket.ticket == variant.ticket
    assert ticket.variant != variant.variant
    assert ticket.variant != eager.SLOW
    assert variant.offset >= ticket.offset + 2 * size_of(allreduce(3))


def test_large_ones_and_other_kinds_get_none() -> None:
    coordinator = Coordinator(1, eager_bytes=eager.DATA_BYTES)
    for signature in (
        allreduce(eager.LARGEST_BYTES // 4 + 1),
        Signature("allgather", "float32", (3,)),
        Signature("bucket", "uint8", ()),
    ):
        (decision,) = decided(coordinator, x=signature)
        assert decision.tickets == [None]


def test_a_full_board_gives_no_more_places() -> None:
    coordinator = Coordinator(1, eager_bytes=4 * eager.LARGEST_BYTES)
    largest = allreduce(eager.LARGEST_BYTES // 4)
    tickets = [decided(coordinator, **{name: largest})[0].tickets[0] for name in "abc"]
    assert [ticket is None for ticket in tickets] == [False, False, True]


def test_a_name_has_no_more_variants_than_a_word_can_say() -> None:
    coordinator = Coordinator(1, eager_bytes=eager.DATA_BYTES)
    tickets = [
        decided(coordinator, a=allreduce(count))[0].tickets[0]
        for count in range(eager.MOST_VARIANTS + 5)
    ]
    numbers = [ticket.variant for ticket in tickets if ticket is not None]
    assert numbers == list(range(1, eager.MOST_VARIANTS + 1))
    assert tickets[eager.MOST_VARIANTS :] == [None] * 5


def test_who_is_missing() -> None:
    coordinator = Coordinator(3)
    coordinator.submit(1, "a", allreduce(3))
    assert coordinator.missing() == {"a": [0, 2]}


def test_what_sums_goes_on_without_those_who_have_joined() -> None:
    coordinator = Coordinator(3)
    coordinator.submit(0, "a", allreduce(3))
    coordinator.join(2, [])
    assert coordinator.decide() == []
    coordinator.submit(1, "a", allreduce(3))
    (decision,) = coordinator.decide()
    assert (decision.names, decision.error, decision.absent) == (["a"], "", [allreduce(3)])
    assert Decision.decode(decision.encode()) == decision
    # Who joins last may be the one that was waited for.
    coordinator.submit(0, "b", allreduce(4))
    coordinator.join(1, [])
    (decision,) = coordinator.decide()
    assert decision.names == ["b"]
    coordinator.join(0, [])
    (decision,) = coordinator.decide()
    assert (decision.names, decision.last_joined) == ([], 0)
    # All are back.
    coordinator.submit(0, "c", allreduce(3))
    coordinator.submit(1, "c", allreduce(3))
    assert coordinator.decide() == []


def test_other_operations_fail_while_some_have_joined() -> None:
    coordinator = Coordinator(3, ranks=(1, 4, 6))
    coordinator.join(1, [])
    for kind in ("allgather", "broadcast", "alltoall", "reducescatter", "barrier"):
        for rank in (0, 2):
            coordinator.submit(rank, kind, Signature(kind, "float32", (3,)), 3)
        (decision,) = coordinator.decide()
        assert decision.names == [kind]
        assert "needs all ranks, but rank 4 called join()" in decision.error
    for rank, count in ((0, 3), (2, 4)):
        coordinator.submit(rank, "differ", allreduce(count))
    (decision,) = coordinator.decide()
    assert "rank 1: allreduce of float32[3]" in decision.error
    assert "rank 6: allreduce of float32[4]" in decision.error
    assert "rank 4" not in decision.error


def test_rows_of_those_who_have_joined_are_none() -> None:
    coordinator = Coordinator(2)
    coordinator.join(0, [])
    coordinator.submit(1, "m", Signature("meeting", "uint8", (5,)), 5)
    (decision,) = coordinator.decide()
    assert decision.extras == [[0, 5]]


def test_what_is_owed_is_waited_for() -> None:
    coordinator = Coordinator(2)
    coordinator.submit(0, "a", allreduce(3))
    coordinator.join(1, ["a", "b"])
    coordinator.join(0, [])
    assert coordinator.decide() == []
    coordinator.submit(1, "a", allreduce(3))
    (decision,) = coordinator.decide()
    assert (decision.names, decision.absent) == (["a"], [None])
    coordinator.settle(1, "b")
    (decision,) = coordinator.decide()
    assert decision.last_joined == 0


def test_buckets_are_asked_for_once() -> None:
    coordinator = Coordinator(3)
    bucket = Signature.reducing("bucket", "float32", (8,), Reduction())
    coordinator.join(2, [])
    for step in range(2):
        coordinator.submit(0, "b", bucket, [2, "00"])
        (decision,) = coordinator.decide()
        assert (decision.names, decision.wanted) == ([], ("b",)), step
        assert Decision.decode(decision.encode()) == decision
        coordinator.submit(1, "b", bucket, [2, "00"])
        assert coordinator.decide() == []
        coordinator.submit(2, "b", bucket, [2, "00"])
        (decision,) = coordinator.decide()
        assert (decision.names, decision.absent) == (["b"], [None])


def test_who_saw_all_others_join_is_the_last_whoever_is_heard_first() -> None:
    coordinator = Coordinator(3)
    coordinator.join(0, [], 2)
    coordinator.join(1, [], 0)
    coordinator.join(2, [], 1)
    assert [decision.last_joined for decision in coordinator.decide()] == [0]
    # Two that joined at once saw the third: any of them will do, if all say the same.
    for rank, after in ((2, 1), (0, 0), (1, 1)):
        coordinator.join(rank, [], after)
    assert [decision.last_joined for decision in coordinator.decide()] == [1]


def test_buckets_are_asked_for_again_of_one_who_joins_later() -> None:
    coordinator = Coordinator(3)
    bucket = Signature.reducing("bucket", "float32", (8,), Reduction())
    coordinator.submit(0, "b", bucket, [2, "00"])
    for rank in (1, 2):
        # Rank 2 hears the first question too, when it does not concern it yet.
        coordinator.join(rank, [])
        assert [decision.wanted for decision in coordinator.decide()] == [("b",)], rank
    coordinator.submit(1, "b", bucket, [2, "00"])
    coordinator.submit(2, "b", bucket, [2, "00"])
    assert [decision.names for decision in coordinator.decide()] == [["b"]]


@given(st.data())
def test_ranks_may_join_at_any_time(data: st.DataObject) -> None:
    """Every rank submits the first few of some names in its own order, and joins."""
    size = data.draw(st.integers(1, 4))
    names = [f"n{i}" for i in range(5)]
    todo = []
    for rank in range(size):
        mine = data.draw(st.permutations(names))[: data.draw(st.integers(0, 5))]
        todo.append([*mine, None])
        del rank
    coordinator = Coordinator(size)
    decisions: list[Decision] = []
    order = []
    while any(todo):
        rank = data.draw(st.sampled_from([r for r in range(size) if todo[r]]))
        name = todo[rank].pop(0)
        if name is None:
            coordinator.join(rank, [])
            order.append(rank)
        else:
            coordinator.submit(rank, name, allreduce(3))
        if data.draw(st.booleans()):
            decisions += coordinator.decide()
    decisions += coordinator.decide()
    assert [d.last_joined for d in decisions if not d.names] == [order[-1]]
    assert not coordinator.missing()
    assert not any(decision.error for decision in decisions)
