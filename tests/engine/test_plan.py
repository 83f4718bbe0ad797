"""The layout of gradient buckets: everything has one place, and buckets are bounded."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from farandole.engine.buckets import BUCKET_BYTES, Gradient, make_plan

ITEMSIZES = {"float32": 4, "float16": 2, "float64": 8, "complex128": 16, "int8": 1}


@st.composite
def gradient_lists(draw: st.DrawFn) -> list[Gradient]:
    kinds = draw(st.lists(st.sampled_from(sorted(ITEMSIZES)), max_size=30))
    indices = draw(st.permutations(range(len(kinds))))
    return [
        Gradient(
            index=index,
            count=draw(st.integers(0, 5000)),
            dtype=dtype,
            itemsize=ITEMSIZES[dtype],
        )
        for index, dtype in zip(indices, kinds, strict=True)
    ]


@given(gradient_lists(), st.integers(1, 20_000))
def test_every_gradient_has_a_place_of_its_own(
    gradients: list[Gradient], bucket_bytes: int
) -> None:
    plan = make_plan(gradients, bucket_bytes)
    assert sorted(plan.places) == sorted(g.index for g in gradients)
    assert len(plan.shapes) == len(plan.members)
    taken: dict[int, list[tuple[int, int]]] = {}
    for gradient in gradients:
        place = plan.places[gradient.index]
        count, dtype = plan.shapes[place.bucket]
        assert dtype == gradient.dtype
        assert place.offset + gradient.count <= count
        assert place.offset * gradient.itemsize % 64 == 0
        assert plan.members[place.bucket][place.position] == gradient.index
        taken.setdefault(place.bucket, []).append((place.offset, place.offset + gradient.count))
    for stretches in taken.values():
        stretches.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(stretches))


@given(gradient_lists(), st.integers(1, 20_000))
def test_buckets_are_closed_when_full_and_filled_in_order(
    gradients: list[Gradient], bucket_bytes: int
) -> None:
    plan = make_plan(gradients, bucket_bytes)
    sizes = {g.index: g for g in gradients}
    order = [g.index for g in gradients]
    for members in plan.members:
        assert list(members) == [index for index in order if index in set(members)]
        # Without its last gradient a bucket was not full yet.
        last = sizes[members[-1]]
        assert plan.places[last.index].offset * last.itemsize < bucket_bytes
    for dtype in ITEMSIZES:
        alike = [i for i, (_, kind) in enumerate(plan.shapes) if kind == dtype]
        for bucket in alike[:-1]:
            assert plan.shapes[bucket][0] * ITEMSIZES[dtype] >= bucket_bytes


@given(gradient_lists())
def test_the_same_gradients_give_the_same_plan(gradients: list[Gradient]) -> None:
    assert make_plan(gradients) == make_plan(list(gradients))


def test_a_gradient_larger_than_a_bucket_ends_it() -> None:
    big = BUCKET_BYTES
    gradients = [
        Gradient(index=0, count=10, dtype="float32", itemsize=4),
        Gradient(index=1, count=big, dtype="float32", itemsize=4),
        Gradient(index=2, count=10, dtype="float32", itemsize=4),
    ]
    assert make_plan(gradients).members == ((0, 1), (2,))


def test_nothing_to_place() -> None:
    plan = make_plan([])
    assert (plan.shapes, plan.members, plan.places) == ((), (), {})
