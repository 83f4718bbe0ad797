from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest

from farandole.cli import main as cli
from farandole.cli.main import commands, main, overview
from farandole.errors import StartError, UsageError
from farandole.version import __version__
from tests.conftest import clean_environ, cli_argv, run_cli


def test_alone_it_shows_what_exists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert shown.rstrip("\n") == overview()
    first, _, more = shown.partition("more:")
    assert "  run " in first
    assert "  env " in more
    for name in ("demo", "run", "study", "report", "project", "lab", "bench", "backtest"):
        assert (f"  {name} " in shown) == (name in commands())


@pytest.mark.parametrize("flag", ["-h", "--help", "help"])
def test_help(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    assert "usage: farandole COMMAND" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"farandole {__version__}\n"


def test_an_unknown_command_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dance"]) == 2
    assert "there is no command 'dance'. Choose from " in capsys.readouterr().err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A command of the test's own, in the place of `env`."""
    module = types.ModuleType("farandole.cli.env")
    module.add_parser = lambda subparsers: subparsers.add_parser("env")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "farandole.cli.env", module)
    monkeypatch.setattr(cli, "commands", lambda: ["env"])
    return module


@pytest.mark.parametrize(
    ("error", "code"), [(UsageError("as given"), 2), (StartError("as given"), 1)]
)
def test_errors_are_one_plain_line(
    command: types.ModuleType, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    def fail(args: object) -> int:
        raise error

    command.main = fail  # type: ignore[attr-defined]
    assert main(["env"]) == code
    assert capsys.readouterr().err == "farandole: as given\n"
    for argv in (["--debug", "env"], ["env", "--debug"]):
        with pytest.raises(type(error)):
            main(argv)


def test_ctrl_c_is_130(command: types.ModuleType) -> None:
    def stop(args: object) -> int:
        raise KeyboardInterrupt

    command.main = stop  # type: ignore[attr-defined]
    assert main(["env"]) == 130


def test_an_unknown_flag_is_one_line(
    command: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main = lambda args: 0  # type: ignore[attr-defined]
    assert main(["env", "--nonsense"]) == 2
    error = capsys.readouterr().err
    assert "unknown arguments: --nonsense. See farandole env --help." in error
    assert error.count("\n") == 1


def test_importing_it_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, farandole.cli.main\n"
        "print(sorted({'torch', 'numpy', 'rich', 'psutil'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", commands())
def test_every_command_explains_itself_with_an_example(name: str) -> None:
    done = run_cli(name, "--help")
    assert done.returncode == 0
    assert "example" in done.stdout
    assert f"farandole {name}" in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "farandole.cli.main"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


WRITERS = [[], ["--version"], ["env"], ["run", "--help"], ["horovodrun", "--check-build"]]


def shell(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with a redirection of the shell's."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *cli_argv(), *arguments],
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
@pytest.mark.parametrize(
    ("redirection", "words"),
    [
        (">&-", "stdout is closed"),
        (">/dev/full", "stdout cannot be written to: No space left on device."),
        ("<&- >&-", "stdout is closed"),
    ],
)
def test_output_that_cannot_be_written_is_one_line(
    arguments: list[str], redirection: str, words: str
) -> None:
    done = shell(redirection, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(f"farandole: {words}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_what_succeeds_needs_no_error_output(redirection: str) -> None:
    done = shell(redirection, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"farandole {__version__}\n"


@pytest.mark.parametrize(
    ("redirection", "code"), [("2>&-", 2), ("2>/dev/full", 1), (">&- 2>&-", 1)]
)
def test_an_error_that_cannot_be_told_is_in_the_exit_code(redirection: str, code: int) -> None:
    done = shell(redirection, "nothing")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_errors_have_no_reader() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*cli_argv(), "nothing"], stdout=subprocess.PIPE, stderr=writing, check=False, timeout=60
    )
    os.close(writing)
    assert (done.returncode, done.stdout) == (141, b"")


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["studdy"], "Did you mean study?"),
        (["run", "--thread", "2", "x"], "Did you mean --threads?"),
    ],
)
def test_a_near_miss_is_guessed(
    argv: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert meant in capsys.readouterr().err
