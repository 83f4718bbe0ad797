"""From flags to a Spec: what is decided, what is said, what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.study import values
from farandole.study.command import job_command, mask
from farandole.study.folder import create_study
from farandole.study.options import given_options, make_spec, option_flags
from farandole.study.progress import Listener
from farandole.study.runner import prepare
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

ROOM = Room(cores=8, physical=4)


def decide(
    *command: str, room: Room = ROOM, reads: tuple[str, ...] = (), **options: Any
) -> tuple[Spec, str]:
    job_flags = options.pop("job_flags", None)
    spec, notes = make_spec(
        command or ("python", "train.py", "{batch}"),
        options,
        room=room,
        folder="/here",
        reads=lambda name: name in reads,
        job_flags=job_flags,
    )
    return spec, "\n".join(notes)


def test_without_flags_it_decides_and_says_so() -> None:
    spec, said = decide("python", "train.py")
    assert spec.workers == (1, 2, 4)
    assert spec.threads == (2,)
    assert (spec.scaling, spec.batches, spec.measure, spec.repeats) == ("weak", (), "speed", 3)
    assert "1, 2, 4 workers" in said
    assert "2 threads per worker in all cells" in said
    assert "script's own batch" in said


def test_a_placeholder_that_nobody_knows_is_said() -> None:
    _, said = decide("python", "train.py", "{bach}", "--json", '{"a": 1}')
    assert "{bach} is passed unchanged; placeholders are {batch}, {global_batch}" in said
    assert said.count("passed unchanged") == 1
    _, said = decide("python", "train.py", "{lr}", params={"lr": ("0.1", "0.2")})
    assert "passed unchanged" not in said


def test_when_a_launch_ends() -> None:
    assert decide()[0].stop("speed") == {"precision": 0.03, "least_steps": 20, "enough_s": 60.0}
    assert decide(precision="1%")[0].stop("speed")["precision"] == pytest.approx(0.01)
    assert decide(steps="7")[0].stop("speed") == {"steps": 7}
    assert decide(epochs="2")[0].stop("speed") == {"epochs": 2}
    assert decide()[0].stop("epoch") == {"epochs": 1}
    assert decide()[0].stop("accuracy") is None


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"params": {"lr": ("0.1",)}}, r"-L lr=...: the command has no \{lr\}.*farandole.param"),
        ({"params": {"workers": ("2",)}}, "-L workers=...: use -np"),
        ({"params": {"seed": ("2",)}}, "--seeds"),
        ({"scaling": "sideways"}, "--scaling sideways: choose from strong, weak, both"),
        ({"measure": "all"}, "--measure all: choose from speed, accuracy, both"),
        ({"transport": "pigeon"}, "--transport pigeon: choose from auto, shm"),
        ({"transport": "auto,mpi"}, "needs workers that mpirun starts, and this command has none"),
        ({"transport": "mpi", "job_flags": ()}, "needs workers that mpirun starts"),
        ({"workers": "0"}, "-np 0"),
        ({"repeats": "none"}, "--repeats none"),
        ({"steps": "3", "epochs": "1"}, "--steps and --epochs"),
        ({"split": "all", "threads": "1"}, "--split all decides the threads"),
        ({"split": "all", "workers": "3"}, "8 cores cannot be split evenly"),
        ({"throughput": "img/sec"}, "no group"),
        ({"metrics": ["(x)"]}, "no name"),
        ({"cwd": "elsewhere"}, "--cwd elsewhere: choose from here, cell"),
        ({"horovod_alias": "maybe"}, "--horovod-alias maybe: choose from on, off"),
        ({"params": {"global_batch": ("8",)}, "scaling": "weak"}, "which is strong scaling"),
    ],
)
def test_bad_flags_are_named(flags: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        decide(**flags)
    assert "\n" not in str(caught.value)


def test_texts_and_values_ask_for_the_same() -> None:
    texts = decide(
        workers="1,2",
        threads="1",
        params=["batch=8,max"],
        time_limit="20m",
        prepare="rm -f x",
        horovod_alias="off",
        no_epoch=True,
    )
    values = decide(
        workers=[1, 2],
        threads=1,
        params={"batch": [8, "max"]},
        time_limit=1200,
        prepare=["rm", "-f", "x"],
        horovod_alias="off",
        no_epoch=True,
    )
    assert texts == values
    options = given_options(texts[0].to_json())
    assert decide(**options)[0] == texts[0]
    assert option_flags(options) == [
        *("-np", "1,2", "-L", "batch=8,max", "--threads", "1", "--time-limit", "1200.0"),
        *("--no-epoch", "--prepare", "rm -f x", "--horovod-alias", "off"),
    ]


def test_a_job_for_each_launch() -> None:
    room = Room(cores=4, physical=4, hosts=2)
    spec, said = decide("python", "t.py", room=room, workers="1x1,2x4", job_flags=["--setup", "f"])
    assert spec.jobs
    assert spec.launcher == "farandole run"
    assert spec.placed == ((1, 1), (8, 2))
    assert spec.command[-3:] == ("--", "python", "t.py")
    assert "Each launch is a SLURM job" in said
    assert "has its own launcher" not in said
    with pytest.raises(UsageError, match="brings torchrun"):
        decide("torchrun", "t.py", room=room, job_flags=[])


def test_a_study_of_several_hosts_is_not_gone_on_with_on_one(tmp_path: Path) -> None:
    spec, _ = decide("python", "t.py", room=Room(cores=2, physical=2, hosts=2), workers="2x1")
    create_study(
        tmp_path / "study", label="", command=spec.command, spec=spec.to_json(), machine={}
    )
    with pytest.raises(UsageError, match=r"started on 2 hosts, but has 1 here.*name hosts with -H"):
        prepare(None, {}, tmp_path / "study", listener=Listener())


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


def test_secrets_are_not_kept_and_then_missed() -> None:
    spec = replace(SPEC, command=("python", "t.py", "--api-key", "hush"))
    content = json.loads(json.dumps(spec.to_json()))
    assert "hush" not in json.dumps(content)
    with pytest.raises(UsageError, match="secrets, which are not stored"):
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


def test_splits_do_not_mix_with_other_cells() -> None:
    with pytest.raises(UsageError, match="--split all"):
        merge(SPEC, replace(SPEC, split=True))
    split = replace(SPEC, split=True, workers=(1, 2), threads=(4, 2))
    both = merge(split, replace(split, workers=(4,), threads=(1,)))
    assert (both.workers, both.threads) == ((1, 2, 4), (4, 2, 1))


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


def test_another_factor_does_not() -> None:
    with pytest.raises(UsageError, match="does not vary momentum"):
        merge(SPEC, replace(SPEC, params=(*SPEC.params, ("momentum", ("0.9",)))))


def test_jobs_may_be_submitted_in_another_way() -> None:
    def submitted(*flags: str) -> Spec:
        command = job_command(SPEC.command, flags, horovod_alias="on")
        return replace(SPEC, command=command, jobs=True)

    longer = submitted("--sbatch", "time=20")
    assert merge(submitted("--sbatch", "time=5"), longer).command == longer.command
    with pytest.raises(UsageError, match="another command"):
        merge(SPEC, longer)


@pytest.mark.parametrize(
    ("text", "found"),
    [("1,2,4", (1, 2, 4)), ("4, 2,2", (2, 4)), ("1-4", (1, 2, 3, 4)), ("auto,8", (1, 2, 8))],
)
def test_counts(text: str, found: tuple[int, ...]) -> None:
    assert values.counts(text, flag="-np", auto=(1, 2)) == found


def test_factors() -> None:
    found = values.factors(["lr=0.1,0.2", "opt=adam", "lr=0.2,0.3"])
    assert found == {"lr": ("0.1", "0.2", "0.3"), "opt": ("adam",)}


@pytest.mark.parametrize(
    ("given", "numbers", "wants_max"),
    [
        (("64", "32"), (32, 64), False),
        (("32", "64", "...", "512"), (32, 64, 128, 256, 512), False),
        (("10", "25", "...", "60"), (10, 25, 40, 55, 60), False),
        (("32", "64", "...", "max"), (32, 64), True),
        (("max",), (), True),
    ],
)
def test_batches(given: tuple[str, ...], numbers: tuple[int, ...], wants_max: bool) -> None:
    assert values.batches(given, name="batch") == (numbers, wants_max)


@pytest.mark.parametrize(
    ("read", "text", "found"),
    [
        (values.seconds, "90", 90),
        (values.seconds, "20m", 1200),
        (values.seconds, "1h30m", 5400),
        (values.seconds, "1.5h", 5400),
        (values.seconds, "2 min", 120),
        (values.size, "800M", 800_000_000),
        (values.size, "2gib", 2 << 30),
        (values.size, "1.5GB", 1_500_000_000),
        (values.share, "3%", 0.03),
        (values.share, "0.5", 0.5),
    ],
)
def test_amounts(read: Callable[..., float], text: str, found: float) -> None:
    assert read(text, flag="--flag") == pytest.approx(found)


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (values.seconds, ["", "soon", "-5", "0", "5d", "1h30x", "1..5"]),
        (values.size, ["", "much", "0", "-1G", "5X"]),
        (values.share, ["", "0", "1", "150%", "nan", "some"]),
        (values.counts, ["", "0", "1,,2", "two", "4-1", "-1", "1-99999", "1.5"]),
        (values.count, ["", "0", "two", "1.5"]),
    ],
)
def test_wrong_values_are_named_with_their_flag(
    read: Callable[..., object], texts: list[str]
) -> None:
    for text in texts:
        with pytest.raises(UsageError, match=f"--flag {re.escape(text)}: "):
            read(text, flag="--flag")


def test_wrong_factors_are_named() -> None:
    for text in ("lr", "=1", "lr=", "lr=1,,2", "a b=1"):
        with pytest.raises(UsageError, match="-L"):
            values.factors([text])
    for given in (("0",), ("x",), ("1.5",), ("32", "..."), ("...", "64")):
        with pytest.raises(UsageError, match="-L batch"):
            values.batches(given, name="batch")


def test_typed() -> None:
    assert [values.typed(text) for text in ("1", "0.5", "1e-3", "adam")] == [1, 0.5, 0.001, "adam"]
    assert [values.typed(text) for text in ("nan", "inf", "1_0", "")] == ["nan", "inf", "1_0", ""]
