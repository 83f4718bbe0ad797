"""FD2xx on recorded facts: mistakes are found, corrections pass, what is unseen is said."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.doctor.facts import Job
from tests.doctor.facts import job, line, look, rank

SAMPLES = 64
SHUFFLED = [(7 * at + 3) % SAMPLES for at in range(SAMPLES)]
Lines = list[dict[str, Any]]


def contents(indices: list[int], salt: int = 0) -> str:
    return "".join(f"{(one + 1) * 7919 + salt:012x}" for one in indices)


def loader(number: int = 0, **fields: Any) -> dict[str, Any]:
    known = {"where": f"train.py:{20 + number}", "dataset": "Data", "dataset_size": SAMPLES}
    return line("loader", number=number, base=0, base_size=SAMPLES, **{**known, **fields})


def one_pass(indices: list[int], *, number: int = 0, of: int = 0, **fields: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "training": True,
        "whole": True,
        "samples": len(indices),
        "steps": 8,
        "begin": 8 * number,
        "sizes": [[8, len(indices) // 8]],
        "indices": indices,
        "contents": contents(indices),
        "labels": "".join(f"{one % 5:02x}" for one in indices),
    }
    return line("pass", loader=of, number=number, **{**known, **fields})


def epochs(*orders: list[int], **fields: Any) -> Lines:
    return [loader(**fields), *(one_pass(o, number=n) for n, o in enumerate(orders))]


def hidden(order: list[int], salt: int = 0, **fields: Any) -> dict[str, Any]:
    """A pass of which only contents are known."""
    return {**one_pass(order, **fields), "indices": [], "contents": contents(order, salt)}


HALVES = SHUFFLED[::2], SHUFFLED[1::2]
LATER = [list(reversed(one)) for one in HALVES]
GOOD = [epochs(half, later) for half, later in zip(HALVES, LATER, strict=True)]
SHARD = {"replicas": 2, "samplers": ["DistributedSampler"], "shuffle": True}
OTHER = [(11 * at + 5) % SAMPLES for at in range(SAMPLES)]


def randoms(*states: tuple[int, int, str]) -> Lines:
    """By pass and loader process."""
    return [
        line("random", loader=0, number=n, worker=w, states={"numpy": s}, used=["numpy"])
        for n, w, s in states
    ]


def varied(lines: Lines) -> Lines:
    """Augmented: contents are others in every epoch."""
    return [
        {**one, "contents": contents(one["indices"], 10**6 * one["number"])}
        if one["kind"] == "pass"
        else one
        for one in lines
    ]


VALID = range(48, 64)
TRAIN = [at for at in SHUFFLED if at < 48]


def held_out(indices: list[int]) -> Lines:
    fields: dict[str, Any] = {"dataset": "Subset", "subset": indices}
    return [
        loader(1, **fields),
        one_pass(list(range(len(indices))), of=1, training=False, contents=contents(indices)),
    ]


def train_part(indices: list[int], part: int) -> Lines:
    return [
        loader(0, dataset="Subset", subset=indices, dataset_size=len(indices)),
        one_pass(list(range(part, len(indices), 2)), contents=contents(indices[part::2])),
    ]


NAN = line("bad_batch", step=3, values=16, where="train.py:20")
# By id: lines of rank 0 and 1 with the mistake, and without.
CASES: dict[str, tuple[list[Lines], list[Lines]]] = {
    "FD201": ([epochs(SHUFFLED)] * 2, GOOD),
    "FD202": ([epochs(SHUFFLED), epochs(OTHER)], GOOD),
    "FD203": ([epochs(half, half, **SHARD) for half in HALVES], GOOD),
    "FD204": ([epochs(half[:20], half[:20], **SHARD) for half in HALVES], GOOD),
    "FD205": (
        [[loader(iterable=True, workers=2), hidden(half[:16] * 2)] for half in HALVES],
        [[loader(iterable=True, workers=2), hidden(half)] for half in HALVES],
    ),
    "FD206": ([epochs(SHUFFLED[:48]), epochs(SHUFFLED[48:])], GOOD),
    "FD207": (
        [[loader(**SHARD), hidden(HALVES[0])], [loader(**SHARD), hidden(OTHER[:32])]],
        [[loader(**SHARD), hidden(half)] for half in HALVES],
    ),
    "FD208": (
        [train_part(TRAIN, part) + held_out(list(range(40, 64))) for part in (0, 1)],
        [train_part(TRAIN, part) + held_out(list(VALID)) for part in (0, 1)],
    ),
    "FD209": ([GOOD[0], [*GOOD[1], NAN]], GOOD),
    "FD210": (
        [half + randoms((0, 0, "a"), (0, 1, "a")) for half in GOOD],
        [half + randoms((0, 0, "a"), (0, 1, "b")) for half in GOOD],
    ),
    "FD211": (
        [half + randoms((0, 0, "a"), (1, 0, "a")) for half in GOOD],
        [[*varied(half), *randoms((0, 0, "a"), (1, 0, "b"))] for half in GOOD],
    ),
    "FD212": (
        [epochs(half, **SHARD, sampler_rank=0) for half in HALVES],
        [epochs(half, **SHARD, sampler_rank=n) for n, half in enumerate(HALVES)],
    ),
    "FD213": (
        [
            epochs(half, dividers=["BatchSamplerShard", "DistributedSampler"], **SHARD)
            for half in HALVES
        ],
        GOOD,
    ),
    "FD215": (
        [train_part(TRAIN, 0), train_part(SHUFFLED[16:], 1)],
        [train_part(TRAIN, part) for part in (0, 1)],
    ),
    "FD216": ([epochs(half) for half in HALVES],) * 2,
}


def ranks(lines: list[Lines]) -> Job:
    return job(*(rank(number, *mine) for number, mine in enumerate(lines)))


@pytest.mark.parametrize("number", sorted(CASES))
def test_a_mistake_is_found(number: str) -> None:
    found = look(number, ranks(CASES[number][0]))
    assert [one.id for one in found.findings] == [number], found
    assert found.findings[0].values


@pytest.mark.parametrize("number", sorted(set(CASES) - {"FD216"}))
def test_its_correction_passes(number: str) -> None:
    found = look(number, ranks(CASES[number][1]))
    assert not found.findings
    assert found.passed == (number,) or number in ("FD212", "FD213"), found.not_checked


@pytest.mark.parametrize("number", sorted({*CASES, "FD214"}))
def test_what_was_not_seen_is_not_checked(number: str) -> None:
    assert set(look(number, job(rank(0), rank(1))).not_checked) == {number}


def test_an_epoch_is_compared_with_the_one_of_a_worker_alone() -> None:
    alone = job(rank(0, *epochs(SHUFFLED), size=1))
    whole = [rank(number, *epochs(order)) for number, order in enumerate((SHUFFLED, OTHER))]
    (found,) = look("FD214", job(*whole, alone=alone)).findings
    assert "128 samples, with one worker 64" in found.text
    half = [rank(number, *lines) for number, lines in enumerate(GOOD)]
    assert look("FD214", job(*half, alone=alone)).passed == ("FD214",)


def test_augmented_samples_are_compared_by_index() -> None:
    # Contents differ on every rank, labels do not.
    lines = [
        [loader(), one_pass(SHUFFLED, contents=contents(SHUFFLED, salt))] for salt in (0, 10**6)
    ]
    assert look("FD201", ranks(lines)).findings


def test_data_of_a_rank_s_own_are_compared_by_content() -> None:
    # Each rank counts its samples from 0.
    lines = [[loader(), one_pass(list(range(32)), contents=contents(half))] for half in HALVES]
    labelled = [
        [mine[0], {**mine[1], "labels": "".join(f"{one % 5:02x}" for one in half)}]
        for mine, half in zip(lines, HALVES, strict=True)
    ]
    for number in ("FD201", "FD202", "FD207"):
        assert look(number, ranks(labelled)).passed == (number,)


def test_augmentation_that_gives_the_same_sample_again_is_found() -> None:
    lines = [half + randoms((0, 0, "a"), (1, 0, "b")) for half in GOOD]
    assert "32 of 32 samples" in look("FD211", ranks(lines)).findings[0].text


def test_samples_drawn_with_replacement_may_be_the_same() -> None:
    lines = [epochs(order, replacement=True) for order in (SHUFFLED, OTHER)]
    assert "with replacement" in look("FD202", ranks(lines)).not_checked["FD202"]


def test_a_sampler_of_the_script_s_own_may_keep_its_order() -> None:
    lines = [epochs(half, half) for half in HALVES]
    assert look("FD203", ranks(lines)).passed == ("FD203",)


def test_a_loop_of_the_script_s_own_has_passes_too() -> None:
    calls = {"kind_of": "calls", "dataset": ""}
    order = list(range(80))
    same = [[loader(**calls), hidden(order * 3)]] * 2
    assert "same 80 samples" in look("FD201", ranks(same)).findings[0].text
    shuffled = [[loader(**calls), hidden(each * 3)] for each in (order, order[::-1])]
    assert look("FD201", ranks(shuffled)).passed == ("FD201",)
    assert look("FD202", ranks(shuffled)).findings
    benchmark = [[loader(**calls), hidden(order[:16] * 9)]] * 2
    assert look("FD201", ranks(benchmark)).not_checked


def test_a_batch_that_comes_again_and_again_says_nothing() -> None:
    lines = [[loader(), hidden(SHUFFLED[:8] * 8)]] * 2
    assert "again and again" in look("FD201", ranks(lines)).not_checked["FD201"]


def test_training_data_that_are_looked_at_again_are_no_validation() -> None:
    lines = [[*mine, one_pass(SHUFFLED, number=5, training=False)] for mine in GOOD]
    assert look("FD208", ranks(lines)).not_checked
