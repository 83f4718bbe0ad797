"""FD3xx on recorded facts: mistakes are found, corrections pass, what is unseen is said."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.doctor.facts import Job
from tests.doctor.facts import job, line, look, rank

Lines = list[dict[str, Any]]
STEPS = (2, 3, 5, 8, 10)


def gradient(number: int, step: int) -> list[float]:
    """A rank's own: no two alike."""
    return [((number + 2) * (at + 3) * (step + 1) % 17 - 8) / 10 for at in range(12)]


def update(number: int, step: int, weights: tuple[float, ...] = (0.5, 0.5), **fields: Any) -> Any:
    own = gradient(number, step)
    both = [gradient(each, step) for each in (0, 1)]
    used = [sum(w * g[at] for w, g in zip(weights, both, strict=True)) for at in range(12)]
    known: dict[str, Any] = {"passes": 1, "sites": ["train.py:30"], "known": True, "scale": 1.0}
    known |= {"divisors": [[]], "factors": [[]], "counts": [[]], "losses": [1.0]}
    return line("local", step=step, local=[own], used=[used], **{**known, **fields})


def updates(number: int, weights: tuple[float, ...] = (0.5, 0.5), **fields: Any) -> Lines:
    return [update(number, step, weights, **fields) for step in STEPS]


def both(*args: Any, **fields: Any) -> list[Lines]:
    return [updates(number, *args, **fields) for number in (0, 1)]


def accumulating(*, passes: int = 4, **fields: Any) -> list[Lines]:
    block = line("steps", columns={"end_s": [11.0, 12.0], "passes": [passes] * 2})
    return [[block, *lines] for lines in both(passes=passes, **fields)]


def counted(*counts: int) -> list[Lines]:
    return [updates(n, counts=[[[count, 16]]]) for n, count in enumerate(counts)]


def clips(*norms: float) -> list[Lines]:
    return [
        [line("clip", step=step, norm=norm, most=1.0, where="train.py:31") for step in STEPS]
        for norm in norms
    ]


def states(*rows: tuple[tuple[str, ...], str]) -> Lines:
    """Weights and the state of random numbers behind steps 0, 1, 2, ..."""
    names = ["a.weight", "b.weight"]
    model = line("model", names=names, shapes=["2", "2"], trainable=[True, True])
    return [
        model,
        *(
            line("state", step=step, weights=list(weights), rng={"torch": rng})
            for step, (weights, rng) in enumerate(rows)
        ),
    ]


def moving(*, second: bool, rng: str = "r") -> Lines:
    rows = [((f"{n:x}1", f"{n if second else 0:x}2"), f"{rng}{n}") for n in range(8)]
    return states(*rows)


def gradients(*norms: float) -> Lines:
    return [line("gradients", step=n, hashes=["1", "2"], norms=list(norms)) for n in (2, 3)]


def schedule(step: int, calls: float, **fields: Any) -> dict[str, Any]:
    return line(
        "schedule", step=step, calls=calls, **{"name": "CosineAnnealingLR", "total": 60, **fields}
    )


def rates(*values: float) -> Lines:
    return [
        line("groups", step=step, optimizer=0, groups=[{"lr": value}])
        for step, value in enumerate(values)
    ]


def scheduled(per_update: int, total: int) -> list[Lines]:
    return [[schedule(n, n * per_update, total=total) for n in (1, 5, 10)]] * 2


def work(*counts: int) -> list[Lines]:
    return [[line("work", passes=20, updates=count)] for count in counts]


BAD = line("bad_gradient", step=3, what="loss")
LEFT = line("pass", loader=0, training=True, whole=True, samples=20, steps=4, pending=1)
WHOLE = {**LEFT, "pending": 0}
WRAPPED = line("wrapper", kind_of="ddp", synced=40, unsynced=0, forwards=40)
UNSYNCED = {**WRAPPED, "synced": 10, "unsynced": 30}
RISING = [[*rates(0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)]] * 2
SHORT = [[*rates(0.1, 1.0)]] * 2
SAME = [moving(second=True)] * 2
# By id: lines of rank 0 and 1 with the mistake, and without.
CASES: dict[str, tuple[list[Lines], list[Lines]]] = {
    "FD301": (both((1.0, 1.0)), both()),
    "FD302": (both((0.25, 0.25)), both()),
    "FD303": (clips(3.0, 2.0), clips(3.0, 3.0)),
    "FD304": (counted(16, 8), counted(16, 15)),
    "FD305": (accumulating(), accumulating(divisors=[[4.0]])),
    "FD306": (
        [[*lines, LEFT] for lines in accumulating()],
        [[*lines, WHOLE] for lines in accumulating()],
    ),
    "FD307": (
        [[*lines, WRAPPED] for lines in accumulating()],
        [[*lines, UNSYNCED] for lines in accumulating()],
    ),
    "FD308": (both(carried=True), both()),
    "FD309": (work(20, 12), work(20, 20)),
    "FD312": (scheduled(2, 10), scheduled(2, 20)),
    "FD313": (scheduled(1, 20), scheduled(1, 10)),
    "FD314": (RISING, SHORT),
    "FD315": (
        [[schedule(5, 1, best=0.5)], [schedule(5, 1, best=0.4)]],
        [[schedule(5, 1, best=0.5)]] * 2,
    ),
    "FD316": (
        [[line("scaler", step=3, scale=scale)] for scale in (512.0, 1024.0)],
        [[line("scaler", step=3, scale=512.0)]] * 2,
    ),
    "FD317": (SAME, [moving(second=True, rng=rng) for rng in "rs"]),
    "FD318": ([moving(second=False)] * 2, SAME),
    "FD319": (
        [[*lines, *gradients(1.0, 0.0)] for lines in SAME],
        [[*lines, *gradients(1.0, 0.5)] for lines in SAME],
    ),
    "FD320": ([[*both()[0], BAD], both()[1]], both()),
}


def ranks(lines: list[Lines]) -> Job:
    return job(*(rank(number, *mine) for number, mine in enumerate(lines)))


@pytest.mark.parametrize("number", sorted(CASES))
def test_a_mistake_is_found(number: str) -> None:
    found = look(number, ranks(CASES[number][0]))
    assert [one.id for one in found.findings] == [number], found
    assert found.findings[0].values


@pytest.mark.parametrize("number", sorted(CASES))
def test_its_correction_passes(number: str) -> None:
    found = look(number, ranks(CASES[number][1]))
    assert found.passed == (number,), found


@pytest.mark.parametrize("number", sorted({*CASES, "FD310", "FD311"}))
def test_what_was_not_seen_is_not_checked(number: str) -> None:
    assert set(look(number, job(rank(0), rank(1))).not_checked) == {number}


def test_a_loss_that_is_divided_by_the_workers_may_be_summed() -> None:
    summed = ranks(both((1.0, 1.0), divisors=[[2.0]]))
    assert look("FD301", summed).passed == ("FD301",)


def test_a_loss_is_divided_by_the_workers_if_one_worker_divides_it_otherwise() -> None:
    divided = [rank(n, *updates(n, divisors=[[2.0]])) for n in (0, 1)]
    told = {
        divisor: look(
            "FD302",
            job(*divided, alone=job(rank(0, update(0, 2, divisors=[[divisor]]), size=1))),
        )
        for divisor in (1.0, 2.0)
    }
    assert told[1.0].findings
    assert told[2.0].passed == ("FD302",)
    assert "need not be" in look("FD302", job(*divided)).not_checked["FD302"]


def test_clipping_of_the_average_leaves_the_weights_alone() -> None:
    lines = [
        [line("clip", step=step, norm=4.0, most=1.0) for step in STEPS]
        + updates(number, (0.125, 0.125))
        for number in (0, 1)
    ]
    assert look("FD302", ranks(lines)).passed == ("FD302",)


def test_ranks_with_unequal_weights_are_found_without_a_call_of_clipping() -> None:
    lines = both((0.7, 0.3))
    assert "unequal weights" in look("FD303", ranks(lines)).findings[0].text
    by_tokens = [updates(n, (0.75, 0.25), counts=[[[c, 16]]]) for n, c in enumerate((12, 4))]
    assert look("FD303", ranks(by_tokens)).passed == ("FD303",)
    # By hand, to the same norm: nearly the same weights, which equal batches do not explain.
    by_norm = [updates(n, (0.074, 0.069), counts=[[[16, 16]]]) for n in (0, 1)]
    assert look("FD303", ranks(by_norm)).findings


def test_a_scheduler_that_one_rank_never_steps_is_found() -> None:
    lines = [[schedule(1, 0), schedule(5, 1)], [schedule(1, 0)]]
    assert look("FD315", ranks(lines)).findings[0].step == 5


def test_two_losses_are_no_accumulation() -> None:
    lines = accumulating(sites=["train.py:30", "train.py:34"])
    assert look("FD305", ranks(lines)).passed == ("FD305",)


@pytest.mark.parametrize(
    ("job_rates", "alone_rate", "number"),
    [((0.2, 0.2), 0.1, "FD310"), ((0.1, 0.1), 0.1, "FD311"), ((0.02, 0.1, 0.2), 0.1, "")],
)
def test_rates_are_compared_with_those_of_one_worker(
    job_rates: tuple[float, ...], alone_rate: float, number: str
) -> None:
    optimizer = line("optimizer", name="SGD")
    loader = line("loader", number=0)
    batches = [line("pass", loader=0, training=True, sizes=[[size, 9]]) for size in (8, 16)]
    alone = job(rank(0, optimizer, loader, batches[1], *rates(alone_rate), size=1))
    lines = [optimizer, loader, batches[0], *rates(*job_rates)]
    whole = job(rank(0, *lines), rank(1, *lines), alone=alone)
    found = {one.id for each in ("FD310", "FD311") for one in look(each, whole).findings}
    assert found == ({number} if number else set())
