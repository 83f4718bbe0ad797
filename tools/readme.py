"""Run the demo and put its figure and its sentence into README.md: `make readme`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- demo: begin; written by `make readme` -->\n", "<!-- demo: end -->"


def main() -> None:
    """Run the demo into build/readme, and write what it says."""
    out = ROOT / "build" / "readme"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "farandole.cli.main", "demo", "--json", "--out", str(out)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    shutil.copy(out / "figures" / "scaling.png", ROOT / "docs" / "figures" / "demo.png")
    page = ROOT / "README.md"
    said = f"> {json.loads(done.stdout)['headline']}\n\n"
    text = re.sub(
        f"{re.escape(BEGIN)}.*?{END}", f"{BEGIN}{said}{END}", page.read_text(), flags=re.S
    )
    page.write_text(text)


if __name__ == "__main__":
    main()
