"""`farandole bench`: its flags, its two outputs, and that looking at it costs no torch."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from farandole.bench.plan import Group, Implementation
from farandole.bench.run import TAG, LaunchRecord, launch, run_group
from farandole.cli import bench
from farandole.cli.main import main
from farandole.errors import UsageError
from farandole.testing import shaped
from farandole.world.machine import Disturbance
from tests.conftest import clean_environ, cli_argv, eventually


@pytest.mark.parametrize("what", ["live", "hosts"])
def test_where_there_are_no_shaped_links_the_reason_is_said(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shaped, "why_not", lambda: "shaped links need root")
    with pytest.raises(UsageError, match=f"`bench {what}` cannot run here: shaped links need root"):
        bench.main(bench.COMMAND.parse([what]))


@dataclass(frozen=True)
class Outputs:
    """What one benchmark of few launches says, as a table and as JSON."""

    table: str
    progress: str
    json: str


@pytest.fixture(scope="module")
def outputs() -> Outputs:
    """The launches are made once: the second output is of the same ones."""
    arguments = ["bench", "start", "--peers", "none", "--launches", "1", "--quick"]
    measured: list[LaunchRecord] = []

    def undisturbed(one: Implementation, **options: Any) -> LaunchRecord:
        # A launch inherits no path of Python's; this one spares it imports that no test needs.
        lean = {**one.environment, "PYTHONPATH": os.environ["PYTHONPATH"]}
        # Other tests beside this one would have every launch repeated.
        nothing = Disturbance(foreign_share=0.0, steal_share=0.0)
        done = launch(replace(one, environment=lean), **options)
        return replace(done, disturbance=nothing)

    def once(group: Group, **options: Any) -> list[LaunchRecord]:
        if not measured:
            measured.extend(run_group(group, start=undisturbed, **options))
        return measured

    said = [io.StringIO() for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("farandole.bench.run.run_group", once)
        with redirect_stdout(said[0]), redirect_stderr(said[1]):
            assert main(arguments) == 0
        with redirect_stdout(said[2]):
            assert main([*arguments, "--json"]) == 0
    return Outputs(*(text.getvalue() for text in said))


@pytest.mark.ranks
def test_a_row_as_a_table(outputs: Outputs) -> None:
    assert "from the command to the first barrier (2 ranks)" in outputs.table
    assert "import torch alone" in outputs.table
    assert "0.65 of torchrun's time at most: not measured" in outputs.table
    assert "start: launch 1 of 1, import torch alone" in outputs.progress


@pytest.mark.ranks
def test_json_is_the_only_thing_on_stdout(outputs: Outputs) -> None:
    result = json.loads(outputs.json)
    assert result["schema"] == 1
    assert result["quick"] is True
    reference = [e for e in result["rows"][0]["entries"] if e["contestant"] == "import torch alone"]
    assert reference[0]["median"]["value"] > 0
    assert {launch["group"] for launch in result["launches"]} == {"start"}


@pytest.mark.ranks
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    # A folder for temporary files of its own tells this benchmark's processes from all others.
    process = subprocess.Popen(
        [*cli_argv(), "bench", "train", "--models", "resnet18", "--peers", "none"],
        env=clean_environ(TMPDIR=str(tmp_path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Background jobs of a shell ignore SIGINT, and so would this if the tests are such a job.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        eventually(lambda: _workers(tmp_path), timeout_s=60)
        process.send_signal(number)
        assert process.wait(timeout=30) == 130
    finally:
        process.terminate()
        process.wait(timeout=30)
    assert not _workers(tmp_path)
    assert not list(tmp_path.iterdir())


def _workers(folder: Path) -> list[int]:
    mark = f"{TAG}={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if any(variable.startswith(mark) for variable in environment.split(b"\0")):
            found.append(int(entry.name))
    return found
