"""`farandole horovodrun`: Horovod's flags as flags of `farandole run`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from farandole.cli import horovodrun, run
from farandole.cli.main import main
from farandole.errors import UsageError


def parsed(*arguments: str) -> argparse.Namespace:
    return horovodrun.COMMAND.parse(arguments)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("-np 2", "-np 2"),
        ("--num-proc 2 --start-timeout 9", "-np 2 --start-timeout 9"),
        ("-np 4 -H h1:2,h2:2", "-np 4 -H h1:2,h2:2"),
        ("-np 4 -hostfile hosts", "-np 4 --hostfile hosts"),
        ("-np 1 --output-filename logs", "-np 1 --output-dir logs"),
        ("-np 1 --no-stall-check", "-np 1 --stall-warning 0"),
        ("-np 1 --stall-check-warning-time-seconds 5", "-np 1 --stall-warning 5"),
        ("-np 1 --stall-check-shutdown-time-seconds 90", "-np 1 --stall-shutdown 90"),
        ("-np 1 --stall-check", "-np 1"),
    ],
)
def test_flags_that_mean_something(given: str, expected: str) -> None:
    args = parsed(*given.split(), "python", "train.py")
    assert " ".join(horovodrun.translate(args)[0]) == expected
    assert horovodrun.ignored_flags(args) == []


def test_horovods_variable_for_the_start() -> None:
    variables = {"HOROVOD_START_TIMEOUT": "77"}
    for flags, seconds in (((), "77"), (("--start-timeout", "9"), "9")):
        arguments, _ = horovodrun.translate(parsed("-np", "1", *flags, "x.py"), variables)
        assert arguments == ["-np", "1", "--start-timeout", seconds], "flags count more"


def test_a_port_or_a_key_for_ssh() -> None:
    arguments, _ = horovodrun.translate(parsed("-np", "1", "-p", "22", "-i", "my key", "x.py"))
    assert arguments == ["-np", "1", "--rsh", "ssh -p 22 -i 'my key'"]


def test_the_timeline() -> None:
    args = parsed("-np", "1", "--timeline-filename", "t.json", "--timeline-mark-cycles", "x.py")
    assert horovodrun.translate(args)[1] == {
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
    }


def test_what_means_nothing_is_named() -> None:
    given = (
        "-np 1 --gloo --verbose --fusion-threshold-mb 32 --no-autotune --network-interface a "
        "--network-interface b -prefix-timestamp --blacklist-cooldown-range 1 9 "
        "--slots 4 --mpi-args=--oversubscribe x.py"
    )
    assert horovodrun.ignored_flags(parsed(*given.split())) == [
        "--verbose",
        "--no-autotune",
        "--gloo",
        "--network-interface",
        "--fusion-threshold-mb",
        "--mpi-args",
        "--slots-per-host",
        "--blacklist-cooldown-range",
        "--prefix-output-with-timestamp",
    ]


def test_the_command_keeps_its_own_flags() -> None:
    args = parsed("-np", "1", "python", "train.py", "--gloo", "-np", "7")
    assert args.command_line == ["python", "train.py", "--gloo", "-np", "7"]
    assert horovodrun.ignored_flags(args) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--min-np 1", "--min-np 1 --max-np auto --blacklist host"),
        ("--min-num-proc 1 --max-num-proc 4", "--min-np 1 --max-np 4 --blacklist host"),
        (
            "--host-discovery-script d.sh --slots 2 --reset-limit 3 --elastic-timeout 9 "
            "--blacklist-cooldown-range 1 5 --blacklist slot",
            "--max-np auto --host-discovery-script d.sh --slots-per-host 2 --elastic-timeout 9 "
            "--reset-limit 3 --blacklist slot --blacklist-cooldown-range 1 5",
        ),
    ],
)
def test_elastic_runs(given: str, expected: str) -> None:
    args = parsed("-np", "2", *given.split(), "x.py")
    arguments, _ = horovodrun.translate(args)
    assert " ".join(arguments) == f"-np 2 {expected}"
    assert horovodrun.ignored_flags(args) == []
    run.COMMAND.parse([*arguments, "x.py"])


def test_a_configuration_file_counts_less_than_flags(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="pip install pyyaml runs this")
    path = tmp_path / "config.yaml"
    path.write_text(
        "verbose: true\n"
        "params:\n  fusion-threshold-mb: 32\n"
        "timeline:\n  filename: t.json\n  mark-cycles: true\n"
        "stall-check:\n  enabled: true\n  warning-time-seconds: 5\n  shutdown-time-seconds: 9\n"
    )
    args = parsed("-np", "1", "--stall-check-warning-time-seconds", "7", "x.py")
    horovodrun.apply_config(args, horovodrun.read_config(path))
    arguments, variables = horovodrun.translate(args)
    assert arguments == ["-np", "1", "--stall-warning", "7", "--stall-shutdown", "9"]
    assert variables["HOROVOD_TIMELINE"] == "t.json"
    ignored = ["verbose (--config-file)", "params.fusion-threshold-mb (--config-file)"]
    assert horovodrun.ignored_flags(args) == ignored


@pytest.mark.parametrize("text", ["- a list\n", "a: [\n", ""])
def test_what_is_no_configuration(tmp_path: Path, text: str) -> None:
    pytest.importorskip("yaml", reason="pip install pyyaml runs this")
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"--config-file .*config\.yaml"):
        horovodrun.read_config(path)


def test_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["horovodrun", "--check-build"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Horovod v0.28.1, provided by Farandole:"
    assert "    [X] PyTorch" in lines
    assert "    [ ] MXNet" in lines
    assert "    [X] Gloo" in lines
    assert main(["horovodrun", "--version"]) == 0
    assert capsys.readouterr().out.startswith("0.28.1 (farandole ")
