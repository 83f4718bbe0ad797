"""What `farandole.study` finds out before it begins; real studies are in test_runner.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import farandole
from farandole.errors import UsageError
from farandole.study.command import (
    fill,
    find_in_script,
    find_launcher,
    job_command,
    name_of_command,
    names_in,
    script_reader,
    shell_script,
)


def test_a_script_that_reads_a_param(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("from farandole import param\nlr = param( 'lr', 0.1)\n")
    Path("package.py").write_text('import farandole\nfarandole.param("depth", 3)\n')
    reads = script_reader(["python", "train.py", "--verbose"])
    assert reads("lr")
    assert not reads("l")
    assert not reads("depth")
    assert script_reader(["python", "-m", "package"])("depth")
    assert not script_reader(["python", "-m", "no.such.module"])("depth")
    assert not script_reader(["nowhere.py"])("lr")


def test_the_shell_script_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.sh").write_text("torchrun t.py")
    Path("b").write_text("#!/usr/bin/env bash\ntorchrun t.py")
    Path("c").write_text("#!/home/josh/bin/python\nimport torchrun")
    assert shell_script(["bash", "-e", "a.sh", "{workers}"]) == "torchrun t.py"
    assert shell_script(["./a.sh"]) == "torchrun t.py"
    assert shell_script(["./b", "x"]).startswith("#!/usr/bin/env bash")
    for command in (["./c"], ["python", "a.sh"], ["nowhere.sh"], ["bash"], []):
        assert shell_script(command) == ""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "a/my train.py", "x.py"], "my train"),
        (["python", "-m", "package.train"], "train"),
        (["python", "-m", "torch.distributed.run", "t.py"], "t"),
        (["-m", "farandole.labs.digits"], "digits"),
        (["python", "-m", "farandole", "run", "t.py"], "t"),
        (["./run.sh"], "run.sh"),
    ],
)
def test_names(command: list[str], name: str) -> None:
    assert name_of_command(command) == name


def test_arguments_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no argument 'colour'"):
        farandole.study(["python"], workers=[1], out=tmp_path / "out", colour="red")
    with pytest.raises(UsageError, match="-np 0"):
        farandole.study(["python"], workers=[0], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# A command, its launcher, and where that takes the number of workers.
OWN_LAUNCHERS = """\
torchrun | torchrun --nproc-per-node 4 train.py | torchrun --nproc-per-node {workers} train.py
torchrun | torchrun train.py | torchrun --nproc-per-node={workers} train.py
torchrun | torchrun --nnodes={workers} train.py | torchrun --nnodes={workers} train.py
torchrun | /bin/torchrun --nproc_per_node=gpu t.py --nproc_per_node=7 \
| /bin/torchrun --nproc_per_node={workers} t.py --nproc_per_node=7
torchrun | python3 -u -X dev -m torch.distributed.run t.py \
| python3 -u -X dev -m torch.distributed.run --nproc-per-node={workers} t.py
accelerate launch | accelerate-launch t.py | accelerate-launch --num_processes={workers} t.py
accelerate launch | accelerate launch --cpu t.py \
| accelerate launch --num_processes={workers} --cpu t.py
mpirun | env A=1 mpirun -np 8 python t.py -n 3 | env A=1 mpirun -np {workers} python t.py -n 3
mpiexec | mpiexec python train.py | mpiexec -np {workers} python train.py
srun | srun --ntasks=4 python t.py | srun --ntasks={workers} python t.py
horovodrun | horovodrun -np 2 python t.py | horovodrun -np {workers} python t.py
deepspeed | deepspeed train.py | deepspeed --num_gpus {workers} train.py
farandole run | farandole run -n 2 train.py | farandole run -n {workers} train.py
"""


@pytest.mark.parametrize("line", OWN_LAUNCHERS.splitlines())
def test_it_keeps_its_launcher(line: str) -> None:
    name, command, filled = line.split(" | ")
    found = find_launcher(command.split())
    assert found is not None
    assert found.launcher.name == name
    assert found.command == tuple(filled.split())
    assert name in found.note
    assert "\n" not in found.note


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["python", "torchrun.py"],
        ["python", "-m", "package.train"],
        ["python", "-u"],
        ["accelerate", "config"],
        ["farandole", "study"],
        ["env", "A=1", "python", "train.py"],
        ["train.py", "torchrun"],
    ],
)
def test_plain_commands(command: list[str]) -> None:
    assert find_launcher(command) is None


def test_a_job_for_each_launch() -> None:
    command = job_command(("python", "t.py", "{batch}"), ("--sbatch", "time=5"), horovod_alias="on")
    assert command[1:4] == ("-m", "farandole.cli.main", "run")
    assert command[-4:] == ("--", "python", "t.py", "{batch}")
    found = find_launcher(command)
    assert found is not None
    assert (found.launcher.name, found.command) == ("farandole run", command)
    for flag, value in (("-np", "{workers}"), ("-N", "{hosts}"), ("--sbatch", "time=5")):
        assert command[command.index(flag) + 1] == value


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("#!/bin/sh\nexec torchrun --nproc-per-node $1 train.py\n", "torchrun"),
        ("source env; mpirun -np $1 python t.py", "mpirun"),
        ("accelerate  launch --num_processes $1 t.py", "accelerate launch"),
        ("python -m torch.distributed.run --nproc-per-node=$1 t.py", "torchrun"),
        ("/opt/mpi/bin/mpiexec -n $1 python t.py", "mpiexec"),
        ("# torchrun would do\npython train.py\n", None),
        ("python mpirun.py --torchrun no\n", None),
        ("", None),
    ],
)
def test_a_shell_script_that_starts_its_workers(text: str, name: str | None) -> None:
    found = find_in_script(["bash", "train.sh", "{workers}"], text)
    assert (None if found is None else found.launcher.name) == name
    if found is not None:
        assert found.command == ("bash", "train.sh", "{workers}")
        assert "run once per launch" in found.note
        with pytest.raises(UsageError, match=r"nothing tells it how many. Put \{workers\}"):
            find_in_script(["bash", "train.sh"], text)


VALUES = {"batch": 64, "workers": 2, "lr": "0.1", "cell_dir": "/a b/{batch}"}


@pytest.mark.parametrize(
    ("part", "filled"),
    [
        ("{batch}", "64"),
        ("--bs={batch}x{workers}", "--bs=64x2"),
        ("{unknown}", "{unknown}"),
        ('{"batch": {batch}, "a": {}}', '{"batch": 64, "a": {}}'),
        ("{ batch }", "{ batch }"),
        ("{batch:03d}", "{batch:03d}"),
        ("{{batch}}", "{64}"),
        ('it\'s a "{lr}"\n$HOME', 'it\'s a "0.1"\n$HOME'),
        ("", ""),
    ],
)
def test_only_known_names_are_replaced(part: str, filled: str) -> None:
    assert fill(["python", part], VALUES) == ("python", filled)


def test_a_value_that_looks_like_a_placeholder_stays() -> None:
    assert fill(["{cell_dir}"], VALUES) == ("/a b/{batch}",)


def test_names_in_braces() -> None:
    assert names_in(["{batch}", "a{lr}b{x1}", "{1}", "{a b}"]) == {"batch", "lr", "x1"}
