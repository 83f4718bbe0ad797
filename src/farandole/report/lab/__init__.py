"""The report of a lab: its questions answered, drawn and tabulated.

`write_lab(report, folder)` leaves the page, Markdown, JSON, figures and tables; `terminal_lines`
is what a terminal shows; `missing_answers` names the questions without a table. All are imported
on use: drawing needs Altair. `charts` has the figures that labs draw from their tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from farandole.report.lab.document import to_json
    from farandole.report.lab.folder import write_lab
    from farandole.report.lab.record import LabReport, missing_answers
    from farandole.report.lab.terminal import terminal_lines

__all__ = ["LabReport", "missing_answers", "terminal_lines", "to_json", "write_lab"]

_MODULES = {
    "LabReport": "record",
    "missing_answers": "record",
    "terminal_lines": "terminal",
    "to_json": "document",
    "write_lab": "folder",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
