"""From flags to a Spec: what is decided, what is said, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.study.folder import create_study
from farandole.study.options import given_options, make_spec, option_flags
from farandole.study.runner import resume_spec
from farandole.study.spec import Room, Spec

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
    assert "{bach} is passed on as it stands; placeholders are {batch}, {global_batch}" in said
    assert said.count("passed on") == 1
    _, said = decide("python", "train.py", "{lr}", params={"lr": ("0.1", "0.2")})
    assert "passed on" not in said


def test_threads_follow_the_largest_count_that_fits() -> None:
    assert decide(workers="1,2,16")[0].threads == (4,)
    assert decide(workers="16")[0].threads == (1,)
    assert decide(workers="1,2", threads="1,2")[0].threads == (1, 2)


def test_all_splits_of_the_cores() -> None:
    spec, _ = decide(split="all")
    assert list(zip(spec.workers, spec.threads, strict=True)) == [(1, 8), (2, 4), (4, 2), (8, 1)]
    assert decide(split="all", workers="2,3")[0].workers == (2,)


def test_a_factor_may_be_read_by_the_script() -> None:
    spec, _ = decide("python", "t.py", params={"lr": ("0.1",)}, reads=("lr",))
    assert spec.params == (("lr", ("0.1",)),)
    assert decide("python", "t.py", params={"batch": ("8",)}, reads=("batch",))[0].batches == (8,)


@pytest.mark.parametrize("program", ["mpirun", "/opt/mpi/bin/mpiexec", "srun"])
def test_mpi_is_for_those_whom_mpirun_starts(program: str) -> None:
    spec, _ = decide(program, "python", "train.py", transport="mpi,gloo")
    assert spec.transports == ("mpi", "gloo")


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


def test_places_on_several_hosts() -> None:
    spec, said = decide("python", "t.py", room=Room(cores=4, physical=4, hosts=2))
    assert spec.placed == ((1, 1), (2, 1), (4, 1), (8, 2))
    assert "up to the cores of 2 hosts" in said
    spec, _ = decide("python", "t.py", room=Room(cores=4, physical=4, hosts=2), workers="4,2x2")
    assert (spec.workers, spec.placed, spec.threads) == ((4,), ((4, 1), (4, 2)), (1,))


def test_a_job_for_each_launch() -> None:
    room = Room(cores=4, physical=4, hosts=2)
    spec, said = decide("python", "t.py", room=room, workers="1x1,2x4", job_flags=["--setup", "f"])
    assert spec.jobs
    assert spec.launcher == "farandole run"
    assert spec.placed == ((1, 1), (8, 2))
    assert spec.command[-3:] == ("--", "python", "t.py")
    assert "Each launch is a job" in said
    assert "brings its own launcher" not in said
    with pytest.raises(UsageError, match="brings torchrun"):
        decide("torchrun", "t.py", room=room, job_flags=[])


def test_a_study_of_several_hosts_is_not_gone_on_with_on_one(tmp_path: Path) -> None:
    spec, _ = decide("python", "t.py", room=Room(cores=2, physical=2, hosts=2), workers="2x1")
    create_study(
        tmp_path / "study", label="", command=spec.command, spec=spec.to_json(), machine={}
    )
    with pytest.raises(UsageError, match=r"begun on 2 hosts, and here are 1.*name hosts with -H"):
        resume_spec(tmp_path / "study", {}, None)
