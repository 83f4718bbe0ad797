"""The report of a lab: page, Markdown, JSON, terminal and files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.labs.report import (
    LabReport,
    anonymous,
    document,
    published_table,
    terminal_lines,
    to_json,
)
from farandole.model.analyse import analyse
from farandole.model.statistics import Estimate
from farandole.report.charts import lines
from farandole.report.document import Commands
from farandole.report.render import markdown, page
from farandole.study.import_table import import_table
from tests.labs.report_builders import lab, oddly, speed_table
from tests.report.builders import Words, speedup
from tests.report.test_study import SCRIPT, Reader

WORDS = Words(
    label="Speedup by workers",
    host="tangram.lab.example.org",
    command=("python", "/home/marie/project/cifar10.py", "--data", "/data/marie/images"),
)
TITLES = [
    *("Introduction", "Data", "Method", "1. What do more workers bring?"),
    *("2. What crosses the network?", "3. Would gradients do?", "Conclusion", "References"),
]
APPENDIX = [
    *("What the original got wrong", "Further tables", "The lab's own figures", "Not shown"),
    *("How it was measured", "Machine", "Commands that reproduce it"),
]


def having(report: LabReport, **changes: Any) -> LabReport:
    """Return the report of a lab that found something else."""
    return replace(report, found=replace(report.found, **changes))


def test_no_host_user_or_path_is_left() -> None:
    report = lab(words=WORDS)
    found = report.found
    images = Path("/home/marie/images")
    report = having(
        report,
        asked=replace(found.asked, data=images),
        data=replace(found.data, skipped=(f"{images}/7.png: not an image",)),
        # Of an imported table nobody knows the machine.
        published={name: replace(info, machine={}) for name, info in found.published.items()},
        failed={"broken": "it broke on tangram: see /home/marie/out.txt"},
    )
    hidden = anonymous(report)
    written = [json.dumps(to_json(hidden)), page(document(hidden), scripts="")]
    for name in ("tangram", "marie", "/home", "0123abc"):
        assert not any(name in text for text in written), name
    assert "7.png: not an image" in written[0]
    assert "cifar10.py" in written[1]
    assert [one.sentences for one in hidden.answered] == [one.sentences for one in report.answered]
    assert hidden.found.studies["speedup"].label == "Speedup by workers"
    assert not hidden.samples


def test_names_of_files_are_safe_and_differ() -> None:
    report = lab()
    first = report.answered[0]
    other = replace(speed_table(), title="another", name="../speed/up")
    same = replace(speed_table(), title="another")
    drawn = lines("speedup", "again", "", same, x="workers", y="speedup", series="batch")
    empty = replace(drawn, spec={}, title="Speedup of nothing")
    changed = replace(first, tables=(*first.tables, other), figures=(*first.figures, drawn, empty))
    found = document(replace(report, answered=(changed, *report.answered[1:])))
    assert [figure.name for figure in found.figures()][:3] == ["speedup", "epoch", "speedup-2"]
    tables = {table.name: table.title for table in found.tables()}
    assert (tables["speed-up"], tables["speedup-2"]) == ("another", "another")
    assert "- Nothing to draw: Speedup of nothing" in markdown(found, picture=None)
    for table in document(lab(oddly(0))).tables():
        assert table.name.replace("-", "").replace("_", "").isalnum()


def names_in(value: Any) -> set[str]:
    """Return all names of fields that are ours: not those of questions, studies or machines."""
    free = ("questions", "published", "studies", "tables", "machine")
    free += ("class_counts", "original_data")
    found: set[str] = set()
    if isinstance(value, dict):
        for key, part in value.items():
            found.add(key)
            parts = list(part.values()) if key in free and isinstance(part, dict) else [part]
            if key != "machine":
                found |= {name for one in parts for name in names_in(one)}
    elif isinstance(value, list):
        found |= {name for part in value for name in names_in(part)}
    return found


def test_the_report_as_json() -> None:
    found = to_json(lab(size_="quick"))
    assert (found["schema"], found["kind"], found["lab"]) == (1, "farandole-lab", "tiny")
    assert (found["size"], found["command"][:3]) == ("quick", ["farandole", "lab", "tiny"])
    assert found["headline"] == ["2 workers: 1.85x.", "Gradients: 44.7 MB."]
    assert found["choices"] == [{"what": "epochs", "lab": "5", "here": "2", "why": "fits 15 min"}]
    first = found["questions"]["speedup"]
    assert first["question"] == "What do more workers bring?"
    row = dict(zip(first["table"]["columns"], first["table"]["rows"][1], strict=True))
    assert (row["workers"], row["speedup"]["value"]) == (2, pytest.approx(speedup(2)))
    assert list(found["questions"]["bytes"]["tables"]) == ["speedup"]
    assert found["questions"]["enough"]["table"] is None
    assert found["studies"]["speedup"]["workers"] == 2
    text = (next(Path(__file__).parents[2].glob("docs/**/labs-report.md"))).read_text()
    assert [name for name in sorted(names_in(found)) if f"`{name}`" not in text] == []


def test_strict_json_whatever_the_figures_and_words() -> None:
    report = lab(oddly(0))
    first = report.answered[0]
    nan = Estimate(value=math.nan, low=-math.inf, high=math.inf)
    odd = replace(first.tables[0], rows=((math.nan, math.inf, nan, None),))
    changed = replace(report, answered=(replace(first, tables=(odd,)),))
    (question,) = json.loads(json.dumps(to_json(changed), allow_nan=False))["questions"].values()
    nothing = {"value": None, "low": None, "high": None}
    assert question["table"]["rows"] == [[None, None, nothing, None]]


def test_the_order_of_the_page() -> None:
    found = document(lab())
    read = Reader(page(found, scripts=SCRIPT))
    assert read.texts["h1"] == ["Where the time goes"]
    assert read.texts["h2"] == [*TITLES, *APPENDIX]
    assert [a.get("class") for tag, a in read.attributes if tag == "details"].count("appendix") == 1
    ids = {attributes.get("id") for _, attributes in read.attributes}
    specs = json.loads(read.texts["script"][1])
    assert list(specs) == [figure.name for figure in found.figures()]
    assert {f"chart-{name}" for name in specs} <= ids
    targets = {(found.get("href") or "")[1:] for tag, found in read.attributes if tag == "a"}
    assert targets <= ids
    assert len(targets) == 7
    nothing = having(lab(), published={}, studies={}, failed={})
    nothing = having(nothing, plan=replace(nothing.found.plan, choices=(), studies=()))
    nothing = replace(nothing, answered=(), corrections=())
    read = Reader(page(document(nothing), scripts=SCRIPT))
    assert read.texts["h2"][-3:] == APPENDIX[-3:]


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'"


def test_hostile_strings_stay_text() -> None:
    evil = "<b>*x*</b>|`y`\n# z"
    text = markdown(document(lab(lambda word: f"{word}{evil}")), picture="png")
    outside = [line for line in text.splitlines() if not line.startswith("farandole ")]
    assert not [line for line in outside if "<b>" in line.replace(r"\<b\>", "")]
    assert not [line for line in outside if line.startswith("# z")]
    rows = [line for line in outside if line.startswith("| batch 32") and "1.85x" in line]
    assert {line.replace(r"\|", "").count("|") for line in rows} == {5}
    report = lab(lambda word: word + EVIL, words=Words(label=EVIL, param=(EVIL, EVIL), metric=EVIL))
    read = Reader(page(document(report), scripts=SCRIPT))
    assert [tag for tag, _ in read.attributes].count("script") == 4
    assert not [tag for tag, found in read.attributes if "onerror" in found]
    for line in terminal_lines(lab(lambda word: f"{word}\x1b[31m\n")):
        assert not {"\x1b", "\n"} & set(line)


def test_many_skipped_files_are_counted() -> None:
    report = lab()
    data = replace(report.found.data, skipped=tuple(f"{n}.png: bad" for n in range(110)))
    text = markdown(document(having(report, data=data)), picture=None)
    assert "- 99.png: bad" in text
    assert "- 100.png: bad" not in text
    assert "and 10 more, in report.json" in text


PUBLISHED = Path(__file__).parents[2] / "src" / "farandole" / "labs" / "published"


def test_figures_keep_the_digits_that_they_were_published_with(tmp_path: Path) -> None:
    info = analyse(import_table(PUBLISHED / "cifar10_speedup.csv", tmp_path / "study")[0])
    found = published_table("cifar10_speedup", info)
    by_cell = {row["cell"]: row for row in found.records()}
    shown = found.column("epoch_s").show
    assert shown(by_cell["1 worker, batch 32"]["epoch_s"]) == "62.661095"
    # The lab gave 1.18592 for this one.
    assert by_cell["2 workers, batch 512"]["speedup"] == pytest.approx(4.946042 / 4.017061)
    assert "throughput" not in by_cell["2 workers, batch 512"]
    twice = tmp_path / "twice.csv"
    twice.write_text("workers,accuracy\n4,46.164\n4,49.78\n")
    (row,) = published_table("twice", analyse(import_table(twice, tmp_path / "2")[0])).records()
    assert (row["metric_accuracy"], row["runs"]) == (pytest.approx((46.164 + 49.78) / 2), 2)


def test_a_studys_command_has_its_variables_and_no_limit() -> None:
    report = lab()
    plan = report.found.plan
    studies = tuple(replace(one, environ={"KERAS_BACKEND": "torch"}) for one in plan.studies)
    spec = {**report.found.studies["speedup"].spec, "time_limit_s": 31.0, "repeats": 5}
    made = replace(report.found.studies["speedup"], spec=spec)
    report = having(report, plan=replace(plan, studies=studies), studies={"speedup": made})
    blocks = document(report).sections[-1].blocks
    *_, (line,) = (block.lines for block in blocks if isinstance(block, Commands))
    assert line.startswith("KERAS_BACKEND=torch farandole study ")
    assert "--repeats 5" in line
    assert "--time-limit" not in line
