from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from importlib import import_module

import pytest

from farandole.cli import main as cli
from farandole.cli.command import Command
from farandole.cli.main import commands, main, overview
from farandole.errors import StartError, UsageError
from farandole.version import __version__
from tests.conftest import clean_environ, cli_argv


def test_alone_it_shows_what_exists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert shown.rstrip("\n") == overview()
    first, _, more = shown.partition("more:")
    assert "  run " in first
    assert "  env " in more
    for name in ("demo", "run", "study", "report", "project", "lab", "bench", "backtest"):
        assert (f"  {name} " in shown) == (name in commands())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"farandole {__version__}\n"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A command of the test's own, in the place of `env`."""
    module = types.ModuleType("farandole.cli.env")
    module.COMMAND = Command(  # type: ignore[attr-defined]
        name="env", text="Test.", usage="", flags={}, examples="farandole env"
    )
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


@pytest.mark.parametrize("name", ["study", "run", "lab"])
def test_windows_points_to_wsl2(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main([name, "mnist"]) == 2
    assert "WSL2" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*commands(), "study import"])
def test_help_fits_a_screen_and_has_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown_help(capsys, *name.split(), "--help").splitlines()
    assert lines[0].startswith(f"usage: farandole {name} ")
    assert len(lines) <= (24 if name != "study" else 34)
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(f"  farandole {name}") for line in lines)
    if name in commands():
        assert shown_help(capsys, "help", name).splitlines() == lines
    everything = shown_help(capsys, *name.split(), "--help-all")
    assert set(re.findall(r"(?m)^  (-[-\w]+)", "\n".join(lines))) <= flags_of(everything)


@pytest.mark.parametrize("name", commands())
def test_all_flags_of_a_parser_are_in_its_help_and_no_others(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = import_module(f"farandole.cli.{name}").COMMAND.parser()
    known = {flag for action in parser._actions for flag in action.option_strings}
    shown = flags_of(shown_help(capsys, name, "--help-all"))
    assert shown <= known
    # Spellings with underscores and Horovod's former ones are taken without being shown.
    assert {flag for flag in known - shown if "_" not in flag} <= (
        {"-prefix-timestamp", "--min-num-proc", "--max-num-proc", "--host-discovery-script"}
        if name == "horovodrun"
        else set()
    )


def shown_help(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Return what a command says of itself."""
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert not ended.value.code
    return capsys.readouterr().out


def flags_of(text: str) -> set[str]:
    """Return the flags that a complete help lists."""
    listed, _, more = text.partition("examples:")
    heads = re.findall(r"(?m)^  (-[^ ].*)", listed)
    words = [word.rstrip(",.") for head in heads for word in head.partition("  ")[0].split()]
    words += [word.rstrip(",.") for word in more.partition("without effect")[2].split()]
    return {word for word in words if re.fullmatch(r"--?[A-Za-z][\w-]*", word)}


def test_help_needs_no_heavy_package_but_numpy_for_study() -> None:
    code = (
        "import sys, farandole.cli.main as cli\n"
        "heavy = {'torch', 'numpy', 'rich', 'psutil', 'altair', 'scipy'}\n"
        "for name in sorted(cli.commands(), key='study'.__eq__):\n"
        "    assert not heavy & set(sys.modules), name\n"
        "    cli.import_module(f'farandole.cli.{name}').COMMAND.help()\n"
        "print(heavy & set(sys.modules) - {'numpy'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "set()\n"
