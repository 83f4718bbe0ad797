from __future__ import annotations

import json
from dataclasses import replace

import pytest

from farandole.errors import UsageError
from farandole.study.launchers import job_command
from farandole.study.spec import Room, Spec, check_resumable, merge, spec_from_json

SPEC = Spec(
    command=("python", "t.py", "{batch}"),
    room=Room(cores=4, physical=2),
    workers=(1, 2),
    batches=(32,),
    threads=(2,),
    params=(("lr", ("0.1", "0.2")),),
    folder="/here",
    metrics=("acc=(.*)",),
)


def test_it_survives_its_file() -> None:
    content = json.loads(json.dumps(SPEC.to_json()))
    assert spec_from_json({**content, "of a later version": 1}) == SPEC


def test_an_imported_study_has_no_plan() -> None:
    with pytest.raises(UsageError, match="no plan to go on with"):
        spec_from_json({"imported": {"file": "a.csv"}})


def test_secrets_are_not_kept_and_then_missed() -> None:
    spec = replace(SPEC, command=("python", "t.py", "--api-key", "hush"))
    content = json.loads(json.dumps(spec.to_json()))
    assert "hush" not in json.dumps(content)
    with pytest.raises(UsageError, match="secrets, which are not kept"):
        check_resumable(spec_from_json(content))
    # With the command given again the study goes on.
    assert merge(spec_from_json(content), spec).command == spec.command
    check_resumable(SPEC)


def test_more_values_extend() -> None:
    new = replace(
        SPEC, workers=(4,), threads=(1,), batches=(64,), repeats=5, seeds=2, measure="accuracy"
    )
    both = merge(SPEC, new)
    assert both.workers == (1, 2, 4)
    assert both.batches == (32, 64)
    assert both.threads == (1,), "4 cores over 4 workers: equal in all cells"
    assert merge(SPEC, replace(SPEC, workers=(1,), threads=(4,))).threads == (2,)
    chosen = replace(SPEC, threads=(4,), threads_given=True)
    assert merge(SPEC, chosen).threads == (2, 4)
    # Repeats are speed's, seeds are accuracy's; who measures neither has no say in them.
    assert (both.measure, both.repeats, both.seeds) == ("both", 3, 2)


def test_more_values_of_a_factor_extend() -> None:
    new = replace(SPEC, params=(("lr", ("0.3",)),))
    assert merge(SPEC, new).params == (("lr", ("0.1", "0.2", "0.3")),)


def test_another_factor_does_not() -> None:
    with pytest.raises(UsageError, match="does not vary momentum"):
        merge(SPEC, replace(SPEC, params=(*SPEC.params, ("momentum", ("0.9",)))))


def test_splits_do_not_mix_with_other_cells() -> None:
    with pytest.raises(UsageError, match="--split all"):
        merge(SPEC, replace(SPEC, split=True))
    split = replace(SPEC, split=True, workers=(1, 2), threads=(4, 2))
    both = merge(split, replace(split, workers=(4,), threads=(1,)))
    assert (both.workers, both.threads) == ((1, 2, 4), (4, 2, 1))


@pytest.mark.parametrize("change", [{"command": ("python", "u.py")}, {"folder": "/there"}])
def test_another_command_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"another command or folder: python t\.py"):
        merge(SPEC, replace(SPEC, **change))  # type: ignore[arg-type]


def test_jobs_may_be_submitted_in_another_way() -> None:
    def submitted(*flags: str) -> Spec:
        command = job_command(SPEC.command, flags, horovod_alias="on")
        return replace(SPEC, command=command, jobs=True)

    longer = submitted("--sbatch", "time=20")
    assert merge(submitted("--sbatch", "time=5"), longer).command == longer.command
    with pytest.raises(UsageError, match="another command"):
        merge(SPEC, longer)


def test_places_survive_their_file_and_are_joined() -> None:
    many = replace(SPEC, room=Room(cores=4, physical=2, hosts=2), workers=(4,), places=((4, 2),))
    assert spec_from_json(json.loads(json.dumps(many.to_json()))) == many
    merged = merge(SPEC, many)
    assert merged.workers == (1, 2, 4)
    assert merged.placed == ((1, 1), (2, 1), (4, 2))
    assert merged.threads == (2,)
