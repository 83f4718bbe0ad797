"""Scripts without a mistake, in the style of public ones, and examples: nothing is found."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import run_cli
from tests.doctor.test_zoo import flags_of

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(Path(__file__).with_name("clean").glob("*.py"))
EXAMPLES = [
    ROOT / "examples" / name for name in ("train_digits.py", "train_ddp.py", "keras_digits.py")
]


@pytest.mark.soak
@pytest.mark.ranks
@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", [*SCRIPTS, *EXAMPLES], ids=lambda file: file.stem)
def test_nothing_is_found_where_nothing_is_wrong(script: Path, tmp_path: Path) -> None:
    backend = "tensorflow" if "tensorflow" in script.stem else "torch"
    done = run_cli(
        *("doctor", "--json", *flags_of(script), "--", sys.executable, script),
        cwd=tmp_path,
        timeout_s=400,
        env={**os.environ, "KERAS_BACKEND": backend},
    )
    said = json.loads(done.stdout)
    assert said["ended"] in ("ok", "stopped"), said["reason"]
    wrong = [one for one in said["findings"] if one["severity"] != "note"]
    assert wrong == [], [(one["id"], one["text"]) for one in wrong]
