"""Projections against real ranks on shaped links, and what counts there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from farandole.bench.live import QUICK, TO_REACH, WIDE, lines_of, mean_error, prove
from farandole.model.projection.records import Projected
from farandole.testing import Nursery
from farandole.testing.rehearsal import Compared, Rehearsed, Scenario, compare, fit
from farandole.testing.shaped import ShapedWorld, Use, why_not

IDLE = Use(cores=0.1, waited=0.01)


def test_buckets_come_evenly_over_backward() -> None:
    scenario = Scenario(
        name="", rate_bits_per_s=1e6, bucket_bytes=(8, 16), forward_s=1.0, backward_s=2.0
    )
    computing = scenario.computing()
    assert [(b.bytes, b.ready_s) for b in computing.buckets] == [(8, 2.0), (16, 3.0)]
    assert computing.end_s == 3.0


@pytest.mark.parametrize(
    ("use", "void"),
    [
        (IDLE, ""),
        (Use(cores=0.7, waited=0.01), "the ranks took 70% of all cores"),
        (Use(cores=0.1, waited=0.2), "a rank waited for a processor for 20% of the time"),
    ],
)
def test_ranks_that_wait_for_processors_do_not_count(use: Use, void: str) -> None:
    measured = Rehearsed(workers=8, step_s=1.0, use=use)
    assert measured.void.startswith(void)
    assert bool(measured.void) == bool(void)
    one = Compared(
        workers=8,
        projected=Projected(value=1.05, low=0.9, high=1.2, ratio=2.0),
        measured=measured,
    )
    assert mean_error([one], 8) == (None if void else pytest.approx(0.05))
    assert one.covered
    assert ("void" in lines_of([one])[0]) == bool(void)


def test_a_world_that_keeps_to_the_law_is_foretold() -> None:
    # A link of a MB/s that costs a millisecond per message, and buckets that nothing hides.
    scenario = Scenario(
        name="", rate_bits_per_s=8e6, bucket_bytes=(10**6,), forward_s=0.1, backward_s=0.1
    )

    def allreduce_s(workers: int, nbytes: int) -> float:
        return 2 * (workers - 1) * 2 * 1e-3 + 2 * (workers - 1) / workers * nbytes / 1e6

    def took(workers: int) -> Rehearsed:
        sizes = (4096, 10**6)
        return Rehearsed(
            workers=workers,
            step_s=0.205 + allreduce_s(workers, 10**6),
            use=IDLE,
            sweep=tuple((workers, size, allreduce_s(workers, size)) for size in sizes),
        )

    fitted = fit(scenario, [took(2), took(3), took(4)])
    for one in compare(fitted, [took(8), took(16)]):
        assert one.error == pytest.approx(0.0, abs=0.02)
        assert one.covered


@pytest.fixture(scope="module")
def world(nursery: Nursery) -> Iterator[ShapedWorld]:
    if reason := why_not():
        pytest.skip(f"{reason} (CI runs it as root)")
    with ShapedWorld(16, rate_bits_per_s=50e6, nursery=nursery) as world:
        yield world


def check(found: list[Compared]) -> None:
    """Check the figures of the issue on the points that count."""
    print("\n".join(lines_of(found)))
    void = [one.measured.void for one in found if one.measured.void]
    if len(void) == len(found):
        pytest.skip(f"no point counts: {void[0]}; an idle machine would run it")
    for workers, limit in TO_REACH.items():
        error = mean_error(found, workers)
        assert error is None or error <= limit, lines_of(found)
    counted = [one for one in found if not one.measured.void]
    assert sum(one.covered for one in counted) >= 0.9 * len(counted), lines_of(found)


@pytest.mark.ranks
def test_few_real_ranks_foretell_many(world: ShapedWorld) -> None:
    check([one for scenario in QUICK for one in prove(world, scenario, few=(2, 4), steps=3)])


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.ranks
def test_few_real_ranks_foretell_many_in_many_ways(world: ShapedWorld) -> None:
    check([one for scenario in WIDE for one in prove(world, scenario)])
