"""horovodrun, called by a program."""

from __future__ import annotations

import sys

import pytest

from farandole.horovod.runner.launch import run_commandline


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["train.py"], 2)])
def test_it_exits_as_the_command_does(
    arguments: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["horovodrun", *arguments])
    with pytest.raises(SystemExit) as caught:
        run_commandline()
    assert caught.value.code == code
    captured = capsys.readouterr()
    assert "0.28.1" in captured.out or "How many workers?" in captured.err
