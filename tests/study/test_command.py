"""What `farandole.study` finds out before it begins; real studies are in test_runner.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import farandole
from farandole.errors import UsageError
from farandole.study.command import name_of_command, script_reader, shell_script


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
