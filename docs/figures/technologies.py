"""Draw technologies.svg as the faces lab has it: python docs/figures/technologies.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from farandole.labs.faces import TECHNOLOGIES
from farandole.labs.questions import answer
from farandole.report.render import pictures


def draw() -> str:
    """Return the figure as SVG."""
    nothing: Any = SimpleNamespace(studies={})
    (figure,) = answer(TECHNOLOGIES, nothing, limited=False).figures
    return pictures(figure, ["svg"])["svg"].decode()


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw(), encoding="utf-8")
