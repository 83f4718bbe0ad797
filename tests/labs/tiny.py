"""A lab of seconds: real studies of a script that only prints figures."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from farandole.errors import DataError
from farandole.labs import budget
from farandole.labs import lab as labs
from farandole.labs.lab import (
    Asked,
    Choice,
    DataFacts,
    Found,
    Lab,
    Plan,
    Planned,
    Rate,
)
from farandole.labs.questions import Question
from farandole.labs.rows import Row, column, text

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
OPTIONS = {
    "threads": 1,
    "repeats": 1,
    "no_epoch": True,
    "no_today": True,
    "keep_busy": True,
    "throughput": "img/sec: ([0-9.]+)",
}


def tiny(*, script: str = "tiny.py", marks: str = ".", seconds: float = 1.0) -> Lab:
    """Return a lab whose studies take as long as it is told, or none at all.

    Args:
        script: What its studies run.
        marks: Where files make the script fail or interrupt the lab.
        seconds: Of one unit of effort.
    """

    def study(name: str, title: str, workers: str, estimate_s: float) -> Planned:
        return Planned(
            name=name,
            title=title,
            options={"workers": workers, **OPTIONS},
            script=script,
            arguments=(marks, name),
            estimate_s=estimate_s,
            environ={"TINY": "set by the lab"},
        )

    def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
        workers = ",".join(map(str, asked.workers or (1, 2)))
        return Plan(
            studies=(
                study("first", "one worker", "1", seconds * (effort + 1)),
                study("second", "two workers", workers, seconds * (effort + 1)),
            ),
            choices=(Choice(what="epochs", lab="10", here=str(effort)),),
        )

    return Lab(
        name="tiny",
        title="A tiny lab",
        line="how little a lab can be",
        questions=(QUESTION,),
        published=("driving",),
        leading=(),
        efforts=4,
        data=_data,
        pilot=lambda asked: (study("rate", "one worker's speed", "1", 1.0),),
        plan=plan,
        corrections=lambda found: (),
    )


def _data(folder: Path | None) -> DataFacts:
    if folder is not None and not folder.is_dir():
        raise DataError(f"{folder} is not a folder. Give one with samples.")
    return DataFacts(source="none", train=1000, test=100, sample="nothing")


def _rows(found: Found) -> list[Row]:
    # The records, because nobody knows how busy the machine of a test is.
    return [
        Row(study=name, throughput=launch.figures["throughput"])
        for name, study in found.records.items()
        for launch in study.launches
        if "throughput" in launch.figures
    ]


QUESTION = Question(
    key="speed",
    text="How fast?",
    title="Speed",
    rows=_rows,
    columns=(text("study", "study"), column("throughput", "samples/s")),
    say="The fastest made {{ rows | map(attribute='throughput') | max | whole }} samples/s.",
)


def main(place: Path, argv: list[str]) -> int:
    """Run the command line in a process of its own, with this lab as the only one."""
    from farandole.cli.main import main as command_line

    # One further run, and not as many as fit into a budget.
    budget.MOST_RUNS = 2
    lab = tiny(script=str(place / "tiny.py"), marks=str(place))
    labs.lab_names = lambda: ("tiny",)  # type: ignore[assignment]
    labs.load_lab = lambda name: lab  # type: ignore[assignment]
    return command_line(argv)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2:]))
