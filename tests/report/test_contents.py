"""What a report contains; and what holds for every figure."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import altair as alt
import pytest

from farandole.report.contents import contents
from farandole.report.document import to_json
from farandole.report.page import page
from farandole.report.table import to_csv
from farandole.report.terminal import terminal_lines
from tests.report.builders import Words, bare, comparison, study
from tests.report.charts.drawn import rows

ALL = {
    "throughput",
    "speedup",
    "efficiency",
    "step-split",
    "job-time",
    "bandwidth",
    "bytes",
    "utilisation",
    "calibration",
    "batch-sweep",
    "processes-threads",
    "accuracy-by-epoch",
    "accuracy-by-time",
    "accuracy-at-end",
    "epochs-to-stability",
    "metric-2-by-epoch",
}


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from nodes(part)
    elif isinstance(value, list):
        for part in value:
            yield from nodes(part)


def test_a_full_study_has_every_figure() -> None:
    assert {figure.name for figure in contents(study()).figures()} == ALL
    assert contents(study()).missing == ()


def test_a_bare_study_has_none_and_says_what_would_give_them() -> None:
    found = contents(bare())
    assert list(found.figures()) == []
    assert len(found.missing) == len(ALL) - 1
    assert all(one.hint for one in found.missing)


def test_what_one_thing_would_give_is_said_in_one_line() -> None:
    hints = contents(bare()).hints()
    assert len(hints) == len({hint for _, hint in hints})
    assert "Throughput, Speedup and Efficiency" in [titles for titles, _ in hints]


def test_where_no_launch_counts_nothing_else_is_asked_for() -> None:
    busy = [dataclasses.replace(one, kept=False, why="busy") for one in study().launches]
    found = contents(dataclasses.replace(bare(), launches=tuple(busy)))
    hints = {one.title: one.hint for one in found.missing}
    assert hints["Speedup"] == "No launch counts for speed; the first lines say why."
    assert hints["Where a step goes"] == hints["Job time"] == hints["Speedup"]
    assert hints["Accuracy by epoch"].startswith("Measure accuracy")


def test_a_void_study_has_no_figure_of_speed() -> None:
    reason = "Your 2 workers trained 2 separate models."
    found = contents(study(void=reason))
    names = {figure.name for figure in found.figures()}
    assert not names & {"throughput", "speedup", "efficiency"}
    assert found.paste is None
    assert f"Not shown: {reason}" in [one.hint for one in found.missing]


@pytest.mark.parametrize("name", ["<b>", 'x"]', "datum['x']", "a.b[0]", "{{x}}", "\\"])
def test_users_strings_are_never_fields_or_expressions(name: str) -> None:
    words = Words(label=name, param=(name, name), metric=name, loss=name + "2", reason=name)
    for figure in contents(study(words=words)).figures():
        spec = {key: value for key, value in figure.spec.items() if key != "datasets"}
        for node in nodes(spec):
            for key in ("field", "expr", "signal", "test", "calculate", "shorthand"):
                if key in node:
                    assert re.fullmatch(r"[a-z]+", str(node[key])), (figure.name, node)
        keys = {key for row in rows(figure) for key in row}
        assert all(re.fullmatch(r"[a-z]+", key) for key in keys), keys


def test_a_specification_names_no_address() -> None:
    for figure in contents(study()).figures():
        assert "http" not in json.dumps(figure.spec)


def test_infos_are_not_changed() -> None:
    info = study()
    contents(info)
    assert info == study()


def test_every_specification_is_valid_vega_lite() -> None:
    found = contents(study())
    assert found.paste is not None
    for figure in [found.paste, *found.figures()]:
        alt.Chart.from_dict(figure.spec, validate=True)


def test_names_of_files_are_unlike() -> None:
    for found in (contents(study()), contents(comparison())):
        names = [figure.name for figure in found.figures()]
        assert len(set(names)) == len(names)
        tables = [table.name for table in found.tables()]
        assert len(set(tables)) == len(tables)
        assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names + tables)


def with_floats(value: Any, number: float) -> Any:
    """Return a record in which every float is this one."""
    if isinstance(value, float):
        return number
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        changes = {name: with_floats(getattr(value, name), number) for name in names}
        return dataclasses.replace(value, **changes)
    if isinstance(value, dict):
        return {key: with_floats(part, number) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(with_floats(part, number) for part in value)
    return value


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e300, 1e-300])
def test_figures_that_make_no_sense_break_nothing(number: float) -> None:
    info = with_floats(study(), number)
    text = page(contents(info), scripts="")
    assert "<h2 id=cells>" in text
    assert terminal_lines(info)
    json.dumps(to_json(info), allow_nan=False)
    for table in contents(info).tables():
        to_csv(table)
