"""Workers that did not train together."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.model.measured import measure
from farandole.model.void import find_voids, overlap, repeats_one_batch, void_of
from farandole.study.records import Cell, Launch
from tests.model.build import make_launch, make_rank, make_steps, make_study

SAME = tuple(str(index) for index in range(64))
GRADIENTS = {"gradients": 160_000, "control": 10}
NOTHING = {"gradients": 0, "control": 10}


def launch_of(*changes: dict[str, Any], steps: int = 40) -> Launch:
    ranks = [make_rank(n, make_steps(0.1, steps), **given) for n, given in enumerate(changes)]
    return make_launch(Cell(workers=len(changes), batch=8), ranks)


def both(**changes: Any) -> list[dict[str, Any]]:
    return [changes, changes]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (both(), None),
        (both(bytes_sent=NOTHING), "not_averaged"),
        (both(bytes_sent=NOTHING, weights=None), "not_averaged"),
        ([{"bytes_sent": NOTHING, "weights": w} for w in ("a", "b")], "not_averaged"),
        # Nothing was looked at, so nothing can be said.
        (both(bytes_sent={}), None),
        ([{"bytes_sent": {}, "weights": w} for w in ("a", "b")], "weights_differ"),
        # Averaged by hand through calls of another kind: bytes moved, and the weights agree.
        (both(bytes_sent={"gradients": 0, "other": 160_000}), None),
        # They agree as well when all did the same on the same samples.
        (both(bytes_sent={"gradients": 0, "other": 8}, sample_hashes=SAME), "not_averaged"),
        (both(bytes_sent={"gradients": 0, "other": 8}, sample_hashes=()), "not_averaged"),
        ([{"weights": "a"}, {"weights": "b"}], "weights_differ"),
        ([{"weights": "a"}, {"weights": None}], None),
        (both(sample_hashes=SAME), "same_samples"),
        ([{"sample_hashes": SAME}, {"sample_hashes": SAME[::-1]}], "same_samples"),
        # Half of what the other saw is not chance; shuffled without shards few are in common.
        ([{"sample_hashes": SAME}, {"sample_hashes": (*SAME[:20], "a", "b")}], "same_samples"),
        ([{"sample_hashes": SAME[:40]}, {"sample_hashes": SAME[30:]}], None),
        (both(sample_hashes=()), None),
        # A data set of 64: in the second epoch everybody has seen everything.
        (
            [
                {"sample_hashes": SAME, "dataset_size": 64},
                {"sample_hashes": SAME[32:] + SAME[:32], "dataset_size": 64},
            ],
            None,
        ),
        # The same batch in every step: a synthetic benchmark.
        (both(sample_hashes=SAME[:8] * 8), None),
    ],
)
def test_reasons(changes: list[dict[str, Any]], expected: str | None) -> None:
    assert void_of(launch_of(*changes)) == expected


def test_one_worker_and_no_steps_are_never_void() -> None:
    assert void_of(launch_of({"bytes_sent": NOTHING})) is None
    assert void_of(launch_of(*both(bytes_sent=NOTHING), steps=0)) is None


def test_the_first_reason_says_what_to_do() -> None:
    cells, _ = measure(make_study([launch_of(*both(bytes_sent=NOTHING))]))
    (void,) = find_voids(cells[0])
    assert void.sentence == "Your 2 workers trained 2 separate models: nothing was averaged."
    assert void.mend == (
        "Wrap the optimizer: optimizer = hvd.DistributedOptimizer(optimizer) "
        "(or the model: DDP(model))."
    )
    assert void.evidence["gradient bytes"] == 0


def test_each_reason_has_its_own_remedy() -> None:
    differ = launch_of({"weights": "a"}, {"weights": "b"})
    same = launch_of(*both(sample_hashes=SAME))
    cells, _ = measure(make_study([differ, same]))
    voids = {void.kind: void for void in find_voids(cells[0])}
    assert set(voids) == {"weights_differ", "same_samples"}
    assert "broadcast_parameters" in voids["weights_differ"].mend
    assert voids["weights_differ"].evidence["weights of rank 1"] == "b"
    assert "DistributedSampler" in voids["same_samples"].mend
    assert voids["same_samples"].evidence["overlap of samples"] == 1.0
    assert voids["same_samples"].launches == (same.id,)


@pytest.mark.parametrize("framework", ["keras", "farandole.keras"])
def test_programs_for_keras_have_keras_remedies(framework: str) -> None:
    for changes, remedy in (
        (both(bytes_sent=NOTHING), "model.compile(hvd.DistributedOptimizer(optimizer)"),
        ([{"weights": "a"}, {"weights": "b"}], "BroadcastGlobalVariablesCallback"),
        (both(sample_hashes=SAME), "hvd.shard((x, y), batch_size=...)"),
    ):
        launch = launch_of(*({**given, "framework": framework} for given in changes))
        cells, _ = measure(make_study([launch]))
        (void,) = find_voids(cells[0])
        assert remedy in void.mend


def test_a_launch_that_failed_is_not_looked_at() -> None:
    launch = launch_of(*both(bytes_sent=NOTHING))
    failed = make_launch(launch.cell, launch.ranks, outcome="failed")
    cells, _ = measure(make_study([failed]))
    assert find_voids(cells[0]) == []


def test_overlap_and_repetition() -> None:
    first = make_rank(0, make_steps(0.1), sample_hashes=("a", "b", "c", "d"))
    second = make_rank(1, make_steps(0.1), sample_hashes=("c", "d"))
    assert overlap(first, second) == 1.0
    assert overlap(first, make_rank(1, make_steps(0.1), sample_hashes=())) is None
    assert repeats_one_batch(make_rank(0, make_steps(0.1), sample_hashes=("a", "b", "a", "b")))
    assert not repeats_one_batch(first)
