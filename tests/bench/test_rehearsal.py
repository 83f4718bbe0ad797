"""What a rehearsal counts and compares; tests/bench/test_live.py makes real ones."""

from __future__ import annotations

import pytest

from farandole.bench.rehearsal import Rehearsed, Scenario, compare, fit
from farandole.testing.shaped import Use

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
