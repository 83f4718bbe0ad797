"""Sentences on how it was measured, with counts that can be checked."""

from __future__ import annotations

from dataclasses import replace

from farandole.report import method
from tests.report.builders import comparison, study


def test_the_paragraph_counts_what_there_is() -> None:
    text = method.paragraph(study())
    # Three cells three times and a fourth one once; one more launch is an outlier, and kept.
    assert "4 cells were measured in 11 launches that took turns, of which 10 count" in text
    assert "After 80 steps of warm-up, 1,200 steps were timed." in text
    assert "within 3 % for speed and 0.005 for val_accuracy" in text
    assert "Example CPU @ 3 GHz; 4 cores; 16.0 GB of memory; python 3.11.2, torch 2.13.0" in text


def test_the_paragraph_tells_what_workers_cost_each_other() -> None:
    text = method.paragraph(study())
    assert (
        "2 copies of the script at once, which sent each other nothing, took 1.10x as long for a "
        "step as one alone. With nothing else to do, a worker's loader gave 4,000 samples/s alone "
        "and 3,636 with 2 at once."
    ) in text
    assert "copies of the script" not in method.paragraph(replace(study(), apart=()))


def test_imported_figures_are_called_so() -> None:
    info = study()
    rows = tuple(replace(row, purpose="imported") for row in info.launches)
    assert "were imported from a table" in method.paragraph(replace(info, launches=rows))


def test_captions() -> None:
    assert method.caption([study()]).startswith("Speedup of digits against")
    assert method.caption(comparison().infos).startswith("Speedup of laptop and cluster against")


def test_what_is_known_of_a_machine() -> None:
    rows = dict(method.machine_rows({**study().machine, "load_average": 8.66845703125}))
    assert rows["load average"] == "8.67"
    assert rows["memory"] == "16.0 GB"
    assert rows["versions"] == "python 3.11.2, torch 2.13.0"
    assert "gpus" not in rows
