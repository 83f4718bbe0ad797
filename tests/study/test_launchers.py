from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.study.command import fill, find_in_script, find_launcher, job_command, names_in


@pytest.mark.parametrize(
    ("command", "name", "filled"),
    [
        (
            "torchrun --nproc-per-node 4 train.py",
            "torchrun",
            "torchrun --nproc-per-node {workers} train.py",
        ),
        (
            "/opt/bin/torchrun --standalone --nproc_per_node=gpu train.py --nproc_per_node=7",
            "torchrun",
            "/opt/bin/torchrun --standalone --nproc_per_node={workers} train.py --nproc_per_node=7",
        ),
        ("torchrun train.py", "torchrun", "torchrun --nproc-per-node={workers} train.py"),
        (
            "python3 -m torch.distributed.run train.py",
            "torchrun",
            "python3 -m torch.distributed.run --nproc-per-node={workers} train.py",
        ),
        (
            "python -u -X faulthandler -m torch.distributed.run train.py",
            "torchrun",
            "python -u -X faulthandler -m torch.distributed.run --nproc-per-node={workers} "
            "train.py",
        ),
        (
            "accelerate-launch train.py",
            "accelerate launch",
            "accelerate-launch --num_processes={workers} train.py",
        ),
        (
            "env A=1 B=2 mpirun -np 8 --bind-to none python train.py -n 3",
            "mpirun",
            "env A=1 B=2 mpirun -np {workers} --bind-to none python train.py -n 3",
        ),
        ("mpiexec python train.py", "mpiexec", "mpiexec -np {workers} python train.py"),
        ("srun --ntasks=4 python t.py", "srun", "srun --ntasks={workers} python t.py"),
        ("horovodrun -np 2 python t.py", "horovodrun", "horovodrun -np {workers} python t.py"),
        (
            "accelerate launch --cpu train.py",
            "accelerate launch",
            "accelerate launch --num_processes={workers} --cpu train.py",
        ),
        ("deepspeed train.py", "deepspeed", "deepspeed --num_gpus {workers} train.py"),
        ("farandole run -n 2 train.py", "farandole run", "farandole run -n {workers} train.py"),
        (
            "torchrun --nnodes={workers} train.py",
            "torchrun",
            "torchrun --nnodes={workers} train.py",
        ),
    ],
)
def test_it_keeps_its_launcher(command: str, name: str, filled: str) -> None:
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
        with pytest.raises(UsageError, match=r"not told how many. Put \{workers\}"):
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


def test_names() -> None:
    assert names_in(["{batch}", "a{lr}b{x1}", "{1}", "{a b}"]) == {"batch", "lr", "x1"}
