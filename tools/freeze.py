"""Run tests/frozen/freeze.py, where this lives now."""

import runpy
from pathlib import Path

runpy.run_path(
    str(Path(__file__).parents[1] / "tests" / "frozen" / "freeze.py"), run_name="__main__"
)
