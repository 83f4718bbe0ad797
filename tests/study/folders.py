"""Small studies on disk for the tests of what reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from farandole.study.folder import create_study, new_launch_folder, write_launch
from farandole.study.records import Cell, Launch, Study

BEGIN = {"kind": "begin", "schema": 1, "rank": 0, "size": 1, "host": "n1", "pid": 7, "begin_s": 5.0}


def make_study(path: Path, **changes: Any) -> Study:
    """Begin a study; `changes` are for `create_study`."""
    given: dict[str, Any] = {
        "label": "digits",
        "command": ["python", "train.py", "--batch-size", "{batch}"],
        "spec": {"workers": [1, 2]},
        "machine": {"host": "n1", "cores": 2},
    }
    return create_study(path, **(given | changes))


def make_launch(cell: Cell | None = None, **changes: Any) -> Launch:
    """A launch that went well; `changes` are its other fields."""
    given: dict[str, Any] = {
        "id": "0001-w2-b64-r0",
        "cell": cell or Cell(workers=2, threads=1, batch=64),
        "repeat": 0,
        "seed": None,
        "purpose": "speed",
        "outcome": "ok",
    }
    return Launch(**(given | changes))


def add_launch(study: Path, launch: Launch, *ranks: list[dict[str, Any]]) -> Path:
    """Write a launch and what its ranks recorded, and return its folder."""
    place = new_launch_folder(study, launch.cell, launch.repeat)
    for rank, lines in enumerate(ranks):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (place / f"rank-{rank}.jsonl").write_text(text)
    write_launch(place, launch)
    return place
