"""Real launches of small scripts with the recorder on, and what they wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.launch.variables import SITE
from farandole.recorder.steps import COLUMNS
from tests.conftest import clean_environ, cli_argv
from tests.recorder.forks import Forks

# Two of TensorFlow or JAX at once take their time to start on a busy machine.
_TIMEOUT_S = 180.0
LAUNCHERS = {
    "python": [sys.executable],
    "farandole": [*cli_argv(), "run", "-np", "{np}", "--no-tag", "--", sys.executable],
    "torchrun": [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--standalone", "--nproc-per-node", "{np}"),
    ],
    "mpirun": [
        *(str(Path(sys.executable).with_name("mpirun")), "--allow-run-as-root", "--bind-to"),
        *("none", "--map-by", ":OVERSUBSCRIBE", "-np", "{np}", sys.executable),
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The lines of one rank."""

    lines: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def setup(self) -> dict[str, Any]:
        return {name: value for line in self.of("setup") for name, value in line.items()}

    @property
    def end(self) -> dict[str, Any]:
        (line,) = self.of("end")
        return line

    def steps(self) -> dict[str, list[float | None]]:
        blocks = [line["columns"] for line in self.of("steps")]
        assert all(set(block) == set(COLUMNS) for block in blocks)
        return {name: [value for block in blocks for value in block[name]] for name in COLUMNS}

    def metrics(self, name: str) -> list[Any]:
        return [line["value"] for line in self.of("metric") if line["name"] == name]

    @property
    def notes(self) -> list[str]:
        return [line["text"] for line in self.of("note")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    code: int
    output: str
    ranks: list[Recorded]


def read_rank(path: Path) -> Recorded:
    """Read a rank's file as strictly as JSON is."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    lines = path.read_text().splitlines()
    return Recorded(lines=[json.loads(line, parse_constant=refuse) for line in lines])


def read_ranks(folder: Path) -> list[Recorded]:
    paths = sorted(folder.glob("rank-*.jsonl"))
    return [read_rank(path) for path in paths if not path.name.endswith(".events.jsonl")]


def environ(folder: Path, stop: dict[str, Any] | None, **more: str) -> dict[str, str]:
    """The environment that a study gives to its launches."""
    variables = {"FARANDOLE_RECORD_DIR": str(folder), "PYTHONPATH": str(SITE), **more}
    if stop is not None:
        variables["FARANDOLE_STOP"] = json.dumps(stop)
    return clean_environ(**variables, OMP_NUM_THREADS="1")


def launch(
    tmp_path: Path,
    script: str,
    *arguments: str,
    np: int = 1,
    launcher: str | Forks = "farandole",
    stop: dict[str, Any] | None = None,
    **more: str,
) -> Launched:
    """Run a script to its end and read what was recorded."""
    path = tmp_path / "train.py"
    path.write_text(script)
    folder = tmp_path / "recorded"
    folder.mkdir()
    env = environ(folder, stop, **more)
    if isinstance(launcher, Forks):
        asked = [str(path), *arguments]
        code, output = launcher.run(asked, env, np=np, folder=tmp_path, timeout_s=_TIMEOUT_S)
        return Launched(code=code, output=output, ranks=read_ranks(folder))
    argv = [part.format(np=np) for part in LAUNCHERS[launcher]]
    done = subprocess.run(
        [*argv, str(path), *arguments],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return Launched(code=done.returncode, output=done.stdout, ranks=read_ranks(folder))
