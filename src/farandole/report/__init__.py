"""What a study says, drawn and tabulated: nothing here computes.

`write(found, folder)` leaves the page, the Markdown, figures and tables; `terminal_lines(found)`
is what a terminal shows; `to_json(found)` has all of it for programs. They are imported on use:
drawing takes imports that a training worker must not wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from farandole.report.study import terminal_lines, to_json, write

__all__ = ["terminal_lines", "to_json", "write"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from farandole.report import study

    return getattr(study, name)
