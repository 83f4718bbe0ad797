from __future__ import annotations

import json
from dataclasses import replace

import pytest

from farandole.errors import UsageError
from farandole.study.command import job_command, mask
from farandole.study.spec import (
    Room,
    Spec,
    check_resumable,
    default_workers,
    merge,
    parse_places,
    shared_threads,
    spec_from_json,
)

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


def test_slots_limit_workers_and_not_threads() -> None:
    named = Room(cores=8, physical=8, hosts=2, slots=2)
    assert default_workers(named) == (1, 2, 4)
    assert (named.per_host, named.workers) == (2, 4)
    assert shared_threads(named, ((1, 1), (4, 2))) == 4
    # More slots than cores are for accuracy only.
    assert Room(cores=2, physical=2, slots=4).per_host == 2


@pytest.mark.parametrize(
    ("given", "masked"),
    [
        (["--token", "abc"], ["--token", "***"]),
        (["--token=abc"], ["--token=***"]),
        (["-token", "abc"], ["-token", "***"]),
        (["--hf-token", "abc"], ["--hf-token", "***"]),
        (["--hf_token=abc"], ["--hf_token=***"]),
        (["--hubToken", "abc"], ["--hubToken", "***"]),
        (["--api-key", "abc"], ["--api-key", "***"]),
        (["--api_key=abc"], ["--api_key=***"]),
        (["--apiKey=abc"], ["--apiKey=***"]),
        (["--wandb-key", "abc"], ["--wandb-key", "***"]),
        (["--password", "12345"], ["--password", "***"]),
        (["--db.password=x=y"], ["--db.password=***"]),
        (["--secret", "a b"], ["--secret", "***"]),
        (["env", "WANDB_API_KEY=abc"], ["env", "WANDB_API_KEY=***"]),
        (["GITHUB_TOKEN=abc"], ["GITHUB_TOKEN=***"]),
        (["AWS_SECRET_ACCESS_KEY=abc"], ["AWS_SECRET_ACCESS_KEY=***"]),
        (["MY_KEY=abc"], ["MY_KEY=***"]),
        (["DB_PASSWORD="], ["DB_PASSWORD=***"]),
        (["s3.secret_key=abc"], ["s3.secret_key=***"]),
        (["https://me:pw@host/x"], ["https://me:***@host/x"]),
        (["--url=https://tok3n@host/x"], ["--url=https://***@host/x"]),
        (["postgres://u:p@h:5432/db"], ["postgres://u:***@h:5432/db"]),
        (["https://h/x?api_key=abc&n=3"], ["https://h/x?api_key=***&n=3"]),
        (["Authorization: Bearer abc"], ["Authorization: Bearer ***"]),
        (["hf_" + "a" * 30], ["***"]),
        (["x=ghp_" + "a" * 36], ["x=***"]),
        (["--token", "--verbose"], ["--token", "--verbose"]),
        (["--token"], ["--token"]),
        (["--token", "--secret", "abc"], ["--token", "--secret", "***"]),
    ],
)
def test_secrets_are_masked(given: list[str], masked: list[str]) -> None:
    assert mask(given) == tuple(masked)


@pytest.mark.parametrize(
    "given",
    [
        ["--tokens", "512"],
        ["--max-tokens", "512"],
        ["--max-tokens=512"],
        ["--token", "512"],
        ["--token=512"],
        ["--num-token", "5e3"],
        ["--pad-token", "<pad>"],
        ["--token-length", "64"],
        ["--key", "label"],
        ["--keys=a,b"],
        ["--monkey", "x"],
        ["--sort-key", "loss"],
        ["--author", "me"],
        ["--secretary", "x"],
        ["--auth-method", "none"],
        ["--tokenizer", "bpe"],
        ["ssh://git@host/x"],
        ["https://host/@x"],
        ["me@host"],
        ["python", "train.py", "--lr", "0.1", "data dir/a=b", ""],
    ],
)
def test_what_is_no_secret_stays(given: list[str]) -> None:
    assert mask(given) == tuple(given)
