"""The report of a study: page, Markdown, JSON, terminal and files."""

from __future__ import annotations

import base64
import csv
import dataclasses
import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from farandole.errors import StoreError, UsageError
from farandole.model.analyse import ScalingInfo
from farandole.model.statistics import Estimate
from farandole.model.verdicts import Check, Void
from farandole.report import figures
from farandole.report.document import Bullets, Opening
from farandole.report.figures import Missing
from farandole.report.render import markdown, page
from farandole.report.study import document, terminal_lines, to_json, write
from farandole.report.table import to_csv
from tests.report.builders import (
    HEADLINE,
    Words,
    bare,
    cell,
    comparison,
    label,
    speedup,
    study,
    with_row,
)
from tests.report.test_figures import rows

SCRIPT = "window.vegaEmbed = () => Promise.resolve();"
VOID = "Your 2 workers trained 2 separate models: nothing was averaged."


class Reader(HTMLParser):
    """The elements of a page, and the text in each kind."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data


def test_the_page_opens_with_the_answer() -> None:
    read = Reader(page(document(study()), scripts=SCRIPT))
    assert read.texts["h1"] == [HEADLINE]
    assert read.texts["title"] == [HEADLINE]
    headings = read.texts["h2"]
    assert headings[:2] == ["Do next", "What it means"]
    assert headings[-5:] == [
        "Method",
        "Machine",
        "Every cell",
        "Launches left out",
        "Commands that reproduce it",
    ]


def test_a_void_study_has_the_reason_as_its_headline() -> None:
    text = page(document(study(void=VOID)), scripts=SCRIPT)
    read = Reader(text)
    assert read.texts["h1"] == [VOID]
    assert ("h1", {"class": "void"}) in read.attributes
    assert "1.85x" not in text


def test_only_its_own_scripts_may_run() -> None:
    read = Reader(page(document(study()), scripts=SCRIPT))
    policy = next(
        attributes["content"] or ""
        for tag, attributes in read.attributes
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    executed = [
        text
        for text, (_, attributes) in zip(
            read.texts["script"],
            [(tag, found) for tag, found in read.attributes if tag == "script"],
            strict=True,
        )
        if attributes.get("type") != "application/json"
    ]
    hashed = [base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in executed]
    assert set(hashed) == allowed
    assert len(executed) == 2
    assert policy.startswith("default-src 'none';")
    assert "'unsafe-eval'" not in policy
    assert "'unsafe-inline'" not in policy.partition("style-src")[0]


def test_nothing_is_loaded_from_elsewhere() -> None:
    read = Reader(page(document(study()), scripts=SCRIPT))
    for tag, attributes in read.attributes:
        assert tag not in ("link", "img", "iframe", "object", "base"), tag
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")


def test_hostile_strings_stay_text() -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'"
    words = Words(
        label=evil,
        param=(evil, evil),
        metric=evil,
        loss=evil,
        command=(evil, evil),
        reason=evil,
        output=evil,
        host=evil,
    )
    text = page(document(study(words=words)), scripts=SCRIPT)
    read = Reader(text)
    assert [tag for tag, _ in read.attributes].count("script") == 4
    assert not [tag for tag, found in read.attributes if tag == "img" or "onerror" in found]
    specs = json.loads(read.texts["script"][1])
    assert evil in json.dumps(specs, ensure_ascii=False).replace('\\"', '"')


def test_every_chart_has_a_place_and_a_table() -> None:
    found = document(study())
    read = Reader(page(found, scripts=SCRIPT))
    places = {found.get("id") for tag, found in read.attributes if tag == "div"}
    specs = json.loads(read.texts["script"][1])
    assert {f"chart-{name}" for name in specs} <= places
    assert sum(text.startswith("Table") for text in read.texts["details"]) == len(specs)


def test_the_first_screen() -> None:
    """Tiles with their change, two charts, checks, commands; details are folded."""
    read = Reader(page(document(study()), scripts=SCRIPT))
    header = read.texts["header"][0]
    for text in (
        "1.85x (1.81 to 1.89) that of 1 worker",
        "40.0 s with 1 worker",
        "farandole project DIR",
    ):
        assert text in header
    assert [one.name for one in document(study()).openings[0].figures.figures] == [
        "speedup",
        "step-split",
    ]
    folded = [found["id"] for tag, found in read.attributes if tag == "details" and "id" in found]
    assert {"method", "machine", "cells", "commands"} <= set(folded)


TODAY = "Today, with one process and all cores: 1.21x slower."


def test_what_the_user_has_today_is_said_once() -> None:
    info = study()
    info = replace(info, today=replace(info.today, sentence=TODAY))
    assert opening_of(info).sentences == (info.answer.sentences[0], TODAY)
    said = replace(info, answer=replace(info.answer, sentences=("first", TODAY)))
    assert opening_of(said).sentences == ("first", TODAY)
    assert TODAY not in opening_of(replace(study(void=VOID), today=info.today)).sentences


def opening_of(info: ScalingInfo) -> Opening:
    return document(info).openings[0]


def findings_of(info: ScalingInfo) -> list[str]:
    section = next(one for one in document(info).sections if one.key == "verdicts")
    return [one.sentence for block in section.blocks for one in block.items]


def test_cells_that_are_void_beside_the_headline_come_first() -> None:
    one = cell(2)
    found = Void(
        kind="not_averaged",
        cell=one,
        label=label(one),
        launches=("0001",),
        sentence="Nothing was averaged.",
        mend="Wrap the optimizer.",
        evidence={"bytes": 0.0},
    )
    first, *others = findings_of(replace(study(), voids=(found,)))
    assert first == f"{label(one)}: Nothing was averaged. Wrap the optimizer."
    assert others == findings_of(study())
    named = study(void="Nothing was averaged. Wrap the optimizer.")
    assert findings_of(replace(named, voids=(found,))) == findings_of(named)


def test_findings_come_most_severe_first() -> None:
    info = study()
    info = replace(info, verdicts=tuple(reversed(info.verdicts)))
    assert findings_of(info) == findings_of(study())


def test_checks_say_what_held_and_what_could_not_be_seen() -> None:
    checks = tuple(
        Check(kind="weights_differ", passed=passed, text=f"rule {passed}")
        for passed in (True, False, None)
    )
    text = markdown(document(replace(study(), checks=checks)), picture=None)
    for line in ("- yes: rule True", "- no: rule False", "- not checked: rule None"):
        assert line in text


def test_many_sentences_and_much_evidence_are_folded() -> None:
    info = replace(study(), today=None)
    answer = replace(info.answer, sentences=tuple(f"curve {index}" for index in range(99)))
    much = replace(info.verdicts[0], evidence={f"key{index}": 1.0 for index in range(50)})
    text = page(document(replace(info, answer=answer, verdicts=(much,))), scripts=SCRIPT)
    assert "<summary>and 96 more</summary>" in text
    assert "and 42 more" in text
    assert "key49" not in text


ALL = {
    "speedup",
    "step-split",
    "job-time",
    "bandwidth",
    "bytes",
    "utilisation",
    "calibration",
    "batch-sweep",
    "processes-threads",
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


def missing(info: ScalingInfo) -> list[Missing]:
    """Return the figures that have no data."""
    parts = [one for _, found in figures.sections([info]) for one in found]
    return [one for one in parts if isinstance(one, Missing)]


def test_a_full_study_has_every_figure() -> None:
    assert {figure.name for figure in document(study()).figures()} == ALL
    assert missing(study()) == []


def test_a_bare_study_has_none_and_says_what_would_give_them() -> None:
    assert document(bare()).figures() == []
    assert len(missing(bare())) == len(ALL) - 1
    assert all(one.hint for one in missing(bare()))


def test_what_one_thing_would_give_is_said_in_one_line() -> None:
    (block,) = next(one for one in document(bare()).sections if one.key == "missing").blocks
    assert isinstance(block, Bullets)
    hints = [line.partition(": ")[2] for line in block.items]
    assert len(hints) == len(set(hints))
    assert any(line.startswith("Speedup: ") for line in block.items)


def test_where_no_launch_counts_nothing_else_is_asked_for() -> None:
    busy = [dataclasses.replace(one, kept=False, why="busy") for one in study().launches]
    found = missing(dataclasses.replace(bare(), launches=tuple(busy)))
    hints = {one.title: one.hint for one in found}
    assert hints["Speedup"] == "No launch counts for speed; the top of the page says why."
    assert hints["Where a step goes"] == hints["Job time"] == hints["Speedup"]
    assert hints["Accuracy during training"].startswith("Measure accuracy")


def test_a_void_study_has_no_figure_of_speed() -> None:
    reason = "Your 2 workers trained 2 separate models."
    found = document(study(void=reason))
    names = {figure.name for figure in found.figures()}
    assert not names & {"throughput", "speedup", "efficiency"}
    assert found.extra_figures == ()
    assert f"Not shown: {reason}" in [one.hint for one in missing(study(void=reason))]


@pytest.mark.parametrize("name", ["<b>", 'x"]', "datum['x']", "a.b[0]", "{{x}}", "\\"])
def test_users_strings_are_never_fields_or_expressions(name: str) -> None:
    words = Words(label=name, param=(name, name), metric=name, loss=name + "2", reason=name)
    for figure in document(study(words=words)).figures():
        spec = {key: value for key, value in figure.spec.items() if key != "datasets"}
        for node in nodes(spec):
            for key in ("field", "expr", "signal", "test", "calculate", "shorthand"):
                if key in node:
                    assert re.fullmatch(r"[a-z]+", str(node[key])), (figure.name, node)
        keys = {key for row in rows(figure) for key in row}
        assert all(re.fullmatch(r"[a-z]+", key) for key in keys), keys


def test_every_specification_is_valid_vega_lite() -> None:
    found = document(study())
    assert found.extra_figures
    for figure in [*found.extra_figures, *found.figures()]:
        alt.Chart.from_dict(figure.spec, validate=True)


def test_names_of_files_are_unlike() -> None:
    for found in (document(study()), document(comparison())):
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
    text = page(document(info), scripts="")
    assert '<details class=part id="cells"' in text
    assert terminal_lines(info)
    json.dumps(to_json(info), allow_nan=False)
    for table in document(info).tables():
        to_csv(table)


def test_the_answer_comes_first_in_bold() -> None:
    lines = markdown(document(study()), picture="png").splitlines()
    assert lines[0] == "# digits"
    assert lines[4] == f"**{HEADLINE}**"
    drawn = [line for line in lines if line.startswith("![")]
    assert sum("figures/speedup.png" in line for line in drawn) == 1
    # The same figure to paste elsewhere is a file only.
    assert not any("figures/scaling.png" in line for line in drawn)
    assert "## Method" in lines


def test_hostile_names_make_no_markup_and_no_columns() -> None:
    words = Words(label="<b>*x*", param=("a|b", "c|d"), command=("```", "x"))
    text = markdown(document(study(words=words)), picture="png")
    assert text.startswith(r"# \<b\>\*x\*")
    rows = [line for line in text.splitlines() if line.startswith("| 2 workers, batch 64, a")]
    assert len(rows) > 5
    assert all(line.startswith(r"| 2 workers, batch 64, a\|b=c\|d |") for line in rows)
    assert "````" in text


def test_everything_is_there(tmp_path: Path) -> None:
    page = write(study(), tmp_path / "out", figures=("png", "svg", "pdf"), tables=("csv", "tex"))
    assert page == tmp_path / "out" / "report.html"
    names = {str(path.relative_to(page.parent)) for path in page.parent.rglob("*.*")}
    for ending in ("png", "svg", "pdf", "txt"):
        assert f"figures/scaling.{ending}" in names
    assert {"report.md", "tables/scaling.csv", "tables/cells.tex", "tables/launches.csv"} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    assert 500_000 < page.stat().st_size < 1_500_000
    png = (page.parent / "figures/scaling.png").read_bytes()
    width, height = struct.unpack(">II", png[16:24])
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert 600 < width < 1400
    assert 400 < height < 1200
    assert (page.parent / "figures/scaling.pdf").read_bytes().startswith(b"%PDF")
    assert "<svg" in (page.parent / "figures/scaling.svg").read_text()
    with (page.parent / "tables/scaling.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert float(rows[1]["speedup"]) == pytest.approx(speedup(2))
    assert float(rows[1]["speedup_low"]) == pytest.approx(0.98 * speedup(2))


def test_a_second_report_replaces_the_first(tmp_path: Path) -> None:
    write(study(), tmp_path, figures=("svg",), tables=("csv",))
    (tmp_path / "figures" / "mine.jpg").write_bytes(b"kept")
    write(bare(), tmp_path, figures=("svg",), tables=("csv",))
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["mine.jpg"]
    assert not (tmp_path / "tables" / "speedup.csv").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"figures": ("gif",)}, "--figures gif is not known. Choose from png, svg, pdf."),
        ({"tables": ("xls",)}, "--tables xls is not known. Choose from csv, md, tex."),
    ],
)
def test_unknown_endings(tmp_path: Path, given: dict[str, tuple[str]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        write(study(), tmp_path, **given)


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write(bare(), tmp_path / "file", figures=(), tables=())


HEAD = ["workers", "speedup", "interval", "accuracy", "limited_by", "void", "next"]


def test_the_answer_is_the_head() -> None:
    found = to_json(study())
    assert next(iter(found)) == "answer"
    assert list(found["answer"]) == HEAD
    assert found["answer"]["workers"] == 2
    assert found["answer"]["speedup"] == pytest.approx(speedup(2))
    assert found["answer"]["void"] is None
    assert (found["schema"], found["kind"]) == (1, "farandole-report")


def test_nan_and_infinity_are_null_in_strict_json() -> None:
    odd = Estimate(value=math.nan, low=-math.inf, high=math.inf)
    written = json.dumps(to_json(with_row(study(), 0, throughput=odd)), allow_nan=False)
    cell = json.loads(written)["studies"][0]["cells"][0]
    assert cell["throughput"] == {"value": None, "low": None, "high": None}


def test_the_documentation_names_every_field() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "json.md").read_text()
    found = to_json(comparison())
    names = {*found, *found["answer"], *found["studies"][0], *found["comparison"]}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


def test_the_sentence_a_table_the_path() -> None:
    lines = terminal_lines(study(), "DIR/report.html")
    assert lines[0] == HEADLINE
    table = [line.split() for line in lines if line.startswith("  ")]
    assert table[0] == ["workers", "batch", "samples/s", "speedup", "efficiency", "launches"]
    assert table[1][:3] == ["1", "64", "1,234"]
    assert table[2][6:10] == ["1.85x", "(1.81", "to", "1.89)"]
    assert lines[-1] == "report: DIR/report.html"
    assert "next: farandole project DIR -np 8" in lines


def test_escape_sequences_do_not_reach_the_terminal() -> None:
    info = study()
    answer = replace(info.answer, headline="\x1b[2Jgone", next="\x07")
    lines = terminal_lines(replace(info, answer=answer))
    assert lines[0] == "\\x1b[2Jgone"
    assert all(line.isprintable() for line in lines)


def test_a_terminal_says_what_to_do_next_once() -> None:
    info = study()
    action = next(one.action for one in info.verdicts if one.severity == "warn" and one.action)
    lines = terminal_lines(replace(info, answer=replace(info.answer, next=action)))
    assert "\n".join(lines).count(action) == 1
    assert f"next: {action}" in lines


def test_a_terminal_says_that_a_study_is_unfinished() -> None:
    lines = terminal_lines(replace(study(), complete=False))
    assert any("--resume" in line for line in lines)
