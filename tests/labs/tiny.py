"""A lab of seconds: real studies of a script that only prints figures."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import DataError
from farandole.labs import listing
from farandole.labs.lab import (
    Answered,
    Asked,
    Choice,
    Correction,
    DataFacts,
    Found,
    Plan,
    Planned,
    Question,
    Rate,
)
from farandole.report.table import Column, Table

SCRIPT = """\
import os, signal, sys
from pathlib import Path
assert os.environ["TINY"] == "set by the lab"
interrupt = Path(sys.argv[1]) / f"interrupt-{sys.argv[2]}"
if interrupt.exists():
    interrupt.unlink()
    os.kill(os.getppid(), signal.SIGINT)
    signal.pause()
if (Path(sys.argv[1]) / f"break-{sys.argv[2]}").exists():
    raise ValueError("broken on purpose")
print("img/sec:", 100 * int(os.environ["WORLD_SIZE"]))
"""
FLAGS = (
    *("--threads", "1", "--repeats", "1", "--no-epoch", "--no-today", "--keep-busy"),
    *("--throughput", "img/sec: ([0-9.]+)"),
)


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """A lab whose studies take as long as it is told, or none at all."""

    script: str = "tiny.py"
    marks: str = "."
    """Where files make the script fail or interrupt the lab."""
    seconds: float = 1.0
    """Of one unit of effort."""
    name: str = "tiny"
    title: str = "A tiny lab"
    line: str = "how little a lab can be"
    questions: tuple[Question, ...] = (Question(key="speed", text="How fast?"),)
    published: tuple[str, ...] = ("driving",)
    leading: tuple[str, ...] = ()
    efforts: int = 4

    def data(self, asked: Asked) -> DataFacts:
        if asked.data is not None and not asked.data.is_dir():
            raise DataError(f"{asked.data} is not a folder. Give one with samples.")
        return DataFacts(source="none", train=1000, test=100, sample="nothing")

    def pilot(self, asked: Asked) -> tuple[Planned, ...]:
        return (self._study("rate", "one worker's speed", "1", 1.0),)

    def plan(self, asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
        seconds = self.seconds * (effort + 1)
        workers = ",".join(map(str, asked.workers or (1, 2)))
        return Plan(
            studies=(
                self._study("first", "one worker", "1", seconds),
                self._study("second", "two workers", workers, seconds),
            ),
            choices=(Choice(what="epochs", lab="10", here=str(effort)),),
        )

    def answer(self, found: Found) -> tuple[Answered, ...]:
        columns = (
            Column(key="study", title="study", text=True),
            Column(key="throughput", title="samples/s"),
        )
        # The records, because nobody knows how busy the machine of a test is.
        rows = tuple(
            (name, launch.figures["throughput"])
            for name, study in found.records.items()
            for launch in study.launches
            if "throughput" in launch.figures
        )
        table = Table(name="speed", title="Speed", columns=columns, rows=rows)
        fastest = max(value for _, value in rows)
        sentence = f"The fastest made {fastest:.0f} samples/s."
        return (Answered(question=self.questions[0], sentences=(sentence,), tables=(table,)),)

    def corrections(self, found: Found) -> tuple[Correction, ...]:
        return ()

    def _study(self, name: str, title: str, workers: str, seconds: float) -> Planned:
        return Planned(
            name=name,
            title=title,
            flags=("-np", workers, *FLAGS),
            script=self.script,
            arguments=(self.marks, name),
            estimate_s=seconds,
            environ=(("TINY", "set by the lab"),),
        )


def asked(**changes: object) -> Asked:
    """What a user asked for: a quick lab, but for these changes."""
    given: dict[str, object] = {
        "size": "quick",
        "budget_s": None,
        "data": None,
        "workers": (),
        "recipes": (),
        "cores": 2,
    }
    return Asked(**(given | changes))  # type: ignore[arg-type]


def main(place: Path, argv: list[str]) -> int:
    """Run the command line in a process of its own, with this lab as the only one."""
    from farandole.cli.main import main as command_line

    lab = Tiny(script=str(place / "tiny.py"), marks=str(place))
    listing.names = lambda: ("tiny",)  # type: ignore[assignment]
    listing.load = lambda name: lab  # type: ignore[assignment]
    return command_line(argv)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2:]))
