"""The zoo: for each id a script with the mistake (wrong.py) and its corrected twin (right.py).

A folder is `fdNNN_name`; a variant for another framework is `wrong_ddp.py` with `right_ddp.py`. A
line `# doctor: -np 4 --epochs 2` in a script has flags for its call. The whole zoo is a soak test.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.conftest import run_cli

ZOO = Path(__file__).with_name("zoo")
_FLAGS = re.compile(r"^# doctor: (.*)$", re.MULTILINE)
SCRIPTS = sorted(ZOO.glob("fd*/*.py"))


def flags_of(script: Path) -> list[str]:
    found = _FLAGS.search(script.read_text())
    return found[1].split() if found else []


@pytest.mark.parametrize("folder", sorted(ZOO.glob("fd*")), ids=lambda folder: folder.name)
def test_a_mistake_has_a_twin(folder: Path) -> None:
    names = {file.name for file in folder.glob("*.py")}
    wrong = {name for name in names if name.startswith("wrong")}
    assert wrong
    assert {name.replace("wrong", "right") for name in wrong} == names - wrong


@pytest.mark.soak
@pytest.mark.ranks
@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_zoo(script: Path, tmp_path: Path) -> None:
    number = script.parent.name[:5].upper()
    command = (sys.executable, script)
    done = run_cli(
        *("doctor", "--json", *flags_of(script), "--", *command), cwd=tmp_path, timeout_s=400
    )
    said = json.loads(done.stdout)
    found = {one["id"] for one in said["findings"]}
    if script.name.startswith("wrong"):
        assert number in found, said
    else:
        assert [one for one in said["findings"] if one["severity"] != "note"] == []
        assert number in said["passed"], said["not_checked"].get(number)
