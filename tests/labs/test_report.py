"""The report of a lab: page, Markdown, JSON, terminal and files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.labs.lab import DataFacts
from farandole.labs.report import (
    LabReport,
    anonymous,
    body_words,
    document,
    missing_answers,
    published_table,
    terminal_lines,
    to_json,
    write_lab,
)
from farandole.model.analyse import ScalingInfo, analyse
from farandole.model.statistics import Estimate
from farandole.report.charts import lines
from farandole.report.document import Commands, Figure, Figures, Tables
from farandole.report.render import markdown, page
from farandole.study.import_table import import_table
from tests.labs.report_builders import lab, oddly, speed_table
from tests.report.builders import Words, bare, speedup, study
from tests.report.test_figures import rows
from tests.report.test_study import SCRIPT, Reader

WORDS = Words(
    label="Speedup by workers",
    host="tangram.lab.example.org",
    command=("python", "/home/marie/project/cifar10.py", "--data", "/data/marie/images"),
)


def test_no_host_user_or_path_is_left() -> None:
    report = lab(words=WORDS)
    report = replace(
        report,
        command=(*report.command, "--data", "/home/marie/images"),
        data=replace(report.data, skipped=("/home/marie/images/7.png: not an image",)),
        asked=replace(report.asked, data=Path("/home/marie/images")),
        # Of an imported table nobody knows the machine.
        published={name: replace(info, machine={}) for name, info in report.published.items()},
        notes=("The study speedup has no figures on tangram: see /home/marie/out.txt",),
    )
    found = anonymous(report)
    written = [json.dumps(to_json(found)), page(document(found), scripts=""), repr(found)]
    for name in ("tangram", "marie", "/home", "0123abc"):
        assert not any(name in text for text in written), name
    assert "7.png: not an image" in written[0]
    assert "cifar10.py" in written[1]


def test_answers_figures_and_titles_are_untouched() -> None:
    report = lab(words=WORDS)
    found = anonymous(report)
    assert found.answered == report.answered
    assert found.published["tiny_speedup"].curves == report.published["tiny_speedup"].curves
    assert found.studies["speedup"].label == "Speedup by workers"
    assert found.title == report.title


def test_a_table_that_figures_share_stands_once() -> None:
    found = document(lab()).sections
    first, second = (one for one in found if one.key in ("question-1", "question-2"))
    _, figures, tables = first.blocks
    assert isinstance(figures, Figures)
    assert isinstance(tables, Tables)
    assert [figures.place(figure) for figure in figures.figures] == ["elsewhere", "elsewhere"]
    assert [table.name for table in tables.tables] == ["speedup"]
    _, figures = second.blocks
    assert isinstance(figures, Figures)
    assert "elsewhere" not in [figures.place(figure) for figure in figures.figures]
    (further,) = (one for one in found if one.key == "tables")
    assert further.appendix
    assert [t.name for one in further.blocks if isinstance(one, Tables) for t in one.tables] == [
        "speedup"
    ]


def test_names_of_files_are_safe_and_differ() -> None:
    report = lab()
    first = report.answered[0]
    other = replace(speed_table(), title="another", name="../speed/up")
    same = replace(speed_table(), title="another")
    drawn = lines("speedup", "again", "", same, x="workers", y="speedup", series="batch")
    changed = replace(first, tables=(*first.tables, other), figures=(*first.figures, drawn))
    found = document(replace(report, answered=(changed, *report.answered[1:])))
    figures = [figure.name for figure in found.figures()]
    assert figures[:3] == ["speedup", "epoch", "speedup-2"]
    assert len(set(figures)) == len(figures)
    tables = {table.name: table for table in found.tables()}
    assert tables["speed-up"].title == "another"
    assert tables["speedup"].title == "Speedup by workers"
    assert tables["speedup-2"].title == "another"


def test_a_figure_without_anything_to_draw_is_named() -> None:
    report = lab()
    first = report.answered[0]
    empty = replace(first.figures[0], spec={}, title="Speedup of nothing")
    found = document(
        replace(report, answered=(replace(first, figures=(empty,)), *report.answered[1:]))
    )
    assert "- Nothing to draw: Speedup of nothing" in markdown(found, picture=None)
    assert "Speedup of nothing" not in [figure.title for figure in found.figures()]


def test_hostile_names_are_names_of_files() -> None:
    for table in document(lab(oddly(0))).tables():
        assert table.name.replace("-", "").replace("_", "").isalnum()
        assert len(table.name) < 100


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


def test_questions_with_their_tables() -> None:
    found = to_json(lab())
    assert (found["schema"], found["kind"], found["lab"]) == (1, "farandole-lab", "tiny")
    assert list(found["questions"]) == ["speedup", "bytes", "enough"]
    first = found["questions"]["speedup"]
    assert first["question"] == "What do more workers bring?"
    assert first["answer"] == ["2 workers: 1.85x.", "4 workers: 3.2x."]
    assert first["table"]["columns"] == ["batch", "workers", "speedup", "epoch_s"]
    row = dict(zip(first["table"]["columns"], first["table"]["rows"][1], strict=True))
    assert row["workers"] == 2
    assert row["speedup"]["value"] == pytest.approx(speedup(2))
    assert list(found["questions"]["bytes"]["tables"]) == ["speedup"]
    assert found["questions"]["enough"]["table"] is None


def test_what_else_is_in_it() -> None:
    found = to_json(lab(size_="quick"))
    assert found["size"] == "quick"
    assert found["headline"] == ["2 workers: 1.85x.", "Gradients: 44.7 MB."]
    assert found["choices"] == [
        {"what": "epochs", "lab": "5", "here": "2", "why": "fits 15 min"},
    ]
    assert found["data"]["skipped"] == ["7.png: not an image", "8.png: empty"]
    assert found["corrections"][0]["shown_by"] == "4.946042 / 4.017061"
    assert found["studies"]["speedup"]["workers"] == 2
    assert found["published"]["tiny_speedup"]["table"]["rows"]
    assert found["machine"]["host"] == "tangram"


def test_strict_json_whatever_the_figures_and_words() -> None:
    report = lab(oddly(0))
    first = report.answered[0]
    table = first.tables[0]
    nan = Estimate(value=math.nan, low=-math.inf, high=math.inf)
    odd = replace(table, rows=((math.nan, math.inf, nan, None),))
    changed = replace(report, answered=(replace(first, tables=(odd,)),))
    read = json.loads(json.dumps(to_json(changed), allow_nan=False))
    (question,) = read["questions"].values()
    assert question["table"]["rows"] == [
        [None, None, {"value": None, "low": None, "high": None}, None]
    ]


def test_the_documentation_names_every_field() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "labs-report.md").read_text()
    assert [name for name in sorted(names_in(to_json(lab()))) if f"`{name}`" not in text] == []


def test_everything_is_there_and_replaced(tmp_path: Path) -> None:
    page = write_lab(lab(), tmp_path / "out", figures=("svg",), tables=("csv", "md"))
    assert page == tmp_path / "out" / "report.html"
    names = {str(path.relative_to(page.parent)) for path in page.parent.rglob("*.*")}
    assert names == {
        "report.html",
        "report.md",
        "report.json",
        *(f"figures/{name}.svg" for name in ("speedup", "epoch", "bytes", "beside-tiny_speedup")),
        *(
            f"tables/{name}.{ending}"
            for name in (
                "speedup",
                "bytes",
                "corrections",
                "choices",
                "data",
                "published-tiny_speedup",
                "beside-tiny_speedup",
            )
            for ending in ("csv", "md")
        ),
    }
    assert json.loads((page.parent / "report.json").read_text())["kind"] == "farandole-lab"
    write_lab(replace(lab(), published={}, answered=()), page.parent, figures=(), tables=("csv",))
    assert not list((page.parent / "figures").iterdir())
    assert {path.name for path in (page.parent / "tables").iterdir()} == {
        "corrections.csv",
        "choices.csv",
        "data.csv",
    }


def test_an_unknown_ending(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--figures gif is not known"):
        write_lab(lab(), tmp_path, figures=("gif",))


TITLES = [
    "Introduction",
    "Data",
    "Method",
    "1. What do more workers bring?",
    "2. What crosses the network?",
    "3. Would gradients do?",
    "Conclusion",
    "References",
]
APPENDIX = [
    "What the original got wrong",
    "Further tables",
    "The lab's own figures",
    "Not shown",
    "How it was measured",
    "Machine",
    "Commands that reproduce it",
]


def test_the_parts_of_a_lab_report_in_order() -> None:
    lines = markdown(document(lab()), picture="png").splitlines()
    assert lines[0].startswith("# Lab tiny, planned to fit 15 minutes")
    assert "**Where the time goes**" in lines
    assert lines.index("2 workers: 1.85x.") < lines.index("## Introduction")
    headings = [line for line in lines if line.startswith("## ")]
    assert headings == [
        *(f"## {title}" for title in TITLES),
        *(f"## Appendix: {title}" for title in APPENDIX),
    ]
    for line in (
        "Adding workers was to save time.",
        "| epochs | 5 | 2 | fits 15 min |",
        "| loss | cross-entropy | the same |  |",
        "| source | CIFAR-10 | made by hand |",
        "| classes | 10 | 2 |",
        "| training samples per class | 5,000 | 20,000 to 30,000, mean 25,000 |",
        "| image size | 32 pixels a side | 80 to 827 pixels a side, mean 351 |",
        "![Some of the training samples](figures/samples.png)",
        "It was worth it.",
        "The appendix corrects 1 statement of the original.",
        "- A book about it.",
    ):
        assert line in lines, line
    assert any("figures/beside-tiny_speedup.png" in line for line in lines)
    assert "farandole lab tiny --quick" in lines
    assert "- 7.png: not an image" in lines


def test_the_reason_stands_below_the_figure() -> None:
    report = lab()
    first = replace(report.answered[0], sentences=("Yes.", "Usually so."), lead=1)
    text = markdown(document(replace(report, answered=(first,))), picture="png")
    assert text.index("Yes.") < text.index("figures/speedup.png") < text.index("Usually so.")


def test_words_of_tables_captions_and_appendix_are_not_counted() -> None:
    report = replace(lab(), answered=(), introduction="", conclusion=(), references=())
    bare = body_words(document(report))
    longer = replace(report, introduction="One two three.", conclusion=("Four five.",))
    # The section "Introduction" has a title, too; the one of the corrections is there anyway.
    assert body_words(document(longer)) == bare + 6
    noted = replace(report, notes=("a b c d",), method=(("e f", "g h", "i j"),))
    assert body_words(document(noted)) == bare


def test_a_quick_lab_says_so() -> None:
    text = markdown(document(lab(size_="quick")), picture=None)
    assert "quick: one run per setting, no intervals" in text.splitlines()[0]
    assert "![" not in text


def test_hostile_strings_make_no_markup_and_no_columns() -> None:
    evil = "<b>*x*</b>|`y`\n# z"
    report = lab(lambda word: f"{word}{evil}")
    text = markdown(document(report), picture="png")
    outside = [line for line in text.splitlines() if not line.startswith("farandole ")]
    assert not [line for line in outside if "<b>" in line.replace(r"\<b\>", "")]
    assert not [line for line in outside if line.startswith("# z")]
    rows = [line for line in outside if line.startswith("| batch 32") and "1.85x" in line]
    assert rows
    assert {line.replace(r"\|", "").count("|") for line in rows} == {5}


def test_many_skipped_files_are_counted() -> None:
    data = DataFacts(
        source="x", train=1, test=1, sample="s", skipped=tuple(f"{n}.png: bad" for n in range(110))
    )
    text = markdown(document(replace(lab(), data=data)), picture=None)
    assert "- 99.png: bad" in text
    assert "- 100.png: bad" not in text
    assert "and 10 more, in report.json" in text


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'"


def test_the_order_of_the_page() -> None:
    read = Reader(page(document(lab()), scripts=SCRIPT))
    assert read.texts["h1"] == ["Where the time goes"]
    assert read.texts["title"] == ["tiny: Where the time goes"]
    assert read.texts["h2"] == [*TITLES, *APPENDIX]
    assert [a.get("class") for tag, a in read.attributes if tag == "details"].count("appendix") == 1
    assert "2 workers: 1.85x.Gradients: 44.7 MB." in read.texts["header"][0]
    assert "Quick" not in read.texts["header"][0]


def test_a_quick_lab_says_that_there_are_no_intervals() -> None:
    read = Reader(page(document(lab(size_="quick")), scripts=SCRIPT))
    assert "Quick: one run per setting, no intervals." in read.texts["header"][0]


def test_every_chart_has_a_place_and_every_link_a_target() -> None:
    found = document(lab())
    read = Reader(page(found, scripts=SCRIPT))
    ids = {attributes.get("id") for _, attributes in read.attributes}
    specs = json.loads(read.texts["script"][1])
    assert list(specs) == [figure.name for figure in found.figures()]
    assert {f"chart-{name}" for name in specs} <= ids
    targets = {(found.get("href") or "")[1:] for tag, found in read.attributes if tag == "a"}
    assert targets <= ids
    assert len(targets) == 7


def test_links_to_questions_are_in_words() -> None:
    report = lab()
    first = report.answered[0]
    named = replace(first, question=replace(first.question, key="two_nodes"))
    read = Reader(page(document(replace(report, answered=(named,))), scripts=SCRIPT))
    assert "two nodes" in read.texts["a"]


def test_hostile_strings_stay_text() -> None:
    report = lab(lambda word: word + EVIL, words=Words(label=EVIL, param=(EVIL, EVIL), metric=EVIL))
    text = page(document(report), scripts=SCRIPT)
    read = Reader(text)
    assert [tag for tag, _ in read.attributes].count("script") == 4
    pictures = [found.get("src") or "" for tag, found in read.attributes if tag == "img"]
    assert [one.partition(",")[0] for one in pictures] == ["data:image/png;base64"]
    assert not [tag for tag, found in read.attributes if "onerror" in found]
    assert read.texts["h1"] == ["Where the time goes" + EVIL]


def test_a_lab_without_anything_is_a_page_all_the_same() -> None:
    report = lab()
    bare = replace(
        report,
        answered=(),
        corrections=(),
        plan=replace(report.plan, choices=(), studies=()),
        published={},
        studies={},
        notes=(),
    )
    read = Reader(page(document(bare), scripts=SCRIPT))
    assert read.texts["h2"] == [
        *("Introduction", "Data", "Method", "Conclusion", "References"),
        *("How it was measured", "Machine", "Commands that reproduce it"),
    ]


PUBLISHED = Path(__file__).parents[2] / "src" / "farandole" / "labs" / "published"


def imported(name: str, folder: Path) -> ScalingInfo:
    return analyse(import_table(PUBLISHED / f"{name}.csv", folder / name)[0])


def test_figures_keep_the_digits_that_they_were_published_with(tmp_path: Path) -> None:
    found = published_table("cifar10_speedup", imported("cifar10_speedup", tmp_path))
    titles = [column.title for column in found.columns]
    epoch = titles.index("epoch (s)")
    shown = [found.columns[epoch].show(row[epoch]) for row in found.rows]
    assert "62.661095" in shown
    ratio = titles.index("speedup")
    by_cell = {row[0]: row[ratio] for row in found.rows}
    # The lab gave 1.18592 for this one.
    assert by_cell["2 workers, batch 512"] == pytest.approx(4.946042 / 4.017061)
    assert "throughput" not in titles


def test_accuracies_and_runs(tmp_path: Path) -> None:
    twice = tmp_path / "twice.csv"
    twice.write_text("workers,accuracy\n4,46.164\n4,49.78\n")
    found = published_table("twice", analyse(import_table(twice, tmp_path / "study")[0]))
    row = dict(zip([column.key for column in found.columns], found.rows[0], strict=True))
    assert row["metric_accuracy"] == pytest.approx((46.164 + 49.78) / 2)
    assert row["runs"] == 2
    both = published_table("cifar10_accuracy", imported("cifar10_accuracy", tmp_path))
    keys = [column.key for column in both.columns]
    places = [keys.index("metric_accuracy"), keys.index("metric_loss")]
    figures = {tuple(row[place] for place in places) for row in both.rows}
    assert figures == {(46.164, 1.449112), (49.78, 1.386)}


def beside(report: LabReport) -> Figure | None:
    """Return the figure of what was published and what was measured here."""
    (section,) = (one for one in document(report).sections if one.key == "published")
    drawn = [block for block in section.blocks if isinstance(block, Figures)]
    return drawn[0].figures[0] if drawn else None


def test_one_figure_with_both_series() -> None:
    found = beside(lab())
    assert found is not None
    names = list(dict.fromkeys(row["name"] for row in rows(found) if row.get("name")))
    assert names == [
        "here: speedup, resnet18, batch 64",
        "published: resnet18, batch 64",
    ]
    by_name = {(row[0], row[1]): row[2].value for row in found.table.rows}
    assert by_name["published: resnet18, batch 64", 4] == pytest.approx(speedup(4))


def test_a_study_of_the_same_name_stands_beside_it_alone() -> None:
    report = lab()
    several = replace(report, studies={**report.studies, "recipes": study()})

    def series(of: ScalingInfo | None = None, **chosen: tuple[str, ...]) -> set[str]:
        found = beside(replace(several, beside=chosen))
        assert found is not None
        return {row[0].partition(",")[0] for row in found.table.rows} - {"published: resnet18"}

    assert series() == {"here: speedup"}
    assert series(tiny_speedup=("recipes", "unknown")) == {"here: recipes"}


@pytest.mark.parametrize(
    "here", [bare(), study(void="Your 2 workers trained 2 separate models.")], ids=["bare", "void"]
)
def test_no_figure_where_this_machine_has_no_curve(here: ScalingInfo) -> None:
    assert beside(replace(lab(), studies={"speedup": here})) is None


def test_weak_and_strong_scaling_are_not_drawn_together() -> None:
    here = study()
    strong = replace(here, curves=(replace(here.curves[0], scaling="strong"),))
    if here.curves[0].scaling == "strong":
        strong = replace(here, curves=(replace(here.curves[0], scaling="weak"),))
    assert beside(replace(lab(), studies={"speedup": strong})) is None


def test_a_question_without_a_table_is_missing() -> None:
    assert missing_answers(lab()) == ["enough"]


def test_a_table_without_rows_or_without_a_single_cell_is_missing() -> None:
    report = lab()
    first, second, third = report.answered
    table = first.tables[0]
    blank = replace(table, rows=tuple((None, "", None, None) for _ in table.rows))
    answered = (
        replace(first, tables=(replace(table, rows=()),)),
        replace(second, tables=(blank, table)),
        replace(third, tables=(table,)),
    )
    assert missing_answers(replace(report, answered=answered)) == ["speedup", "bytes"]


def test_the_headline_is_made_of_first_sentences() -> None:
    report = lab()
    assert report.headline == ("2 workers: 1.85x.", "Gradients: 44.7 MB.")
    assert replace(report, leading=("bytes", "enough", "unknown")).headline == (
        "Gradients: 44.7 MB.",
    )


def test_a_sentence_per_question_and_the_path() -> None:
    assert terminal_lines(lab(size_="quick"), "out/report.html") == [
        "Where the time goes (Lab tiny, quick: one run per setting, no intervals, "
        "2026-11-16 05:00 UTC)",
        "",
        "  speedup  2 workers: 1.85x.",
        "  bytes    Gradients: 44.7 MB.",
        "  enough   not answered",
        "",
        "The link was not measured.",
        "Not made: For lost",
        "",
        "report: out/report.html",
    ]


def test_a_note_on_a_study_is_enough() -> None:
    lines = terminal_lines(replace(lab(), notes=("The study For lost has no figures: it broke.",)))
    assert [line for line in lines if "For lost" in line] == [
        "The study For lost has no figures: it broke."
    ]


def test_a_budget_is_told_as_it_was_given() -> None:
    assert "planned to fit 15 minutes" in terminal_lines(lab())[0]


def test_control_characters_are_written_out() -> None:
    for line in terminal_lines(lab(lambda word: f"{word}\x1b[31m\n")):
        assert "\x1b" not in line
        assert "\n" not in line
    assert terminal_lines(lab(oddly(3)))


def study_commands(report: LabReport) -> list[str]:
    """Return the commands that make each study alone."""
    found = document(report).sections[-1].blocks
    return [block.lines[0] for block in found[1:] if isinstance(block, Commands)]


def test_what_was_left_of_a_budget_is_no_part_of_a_studys_command() -> None:
    report = lab()
    limited = {
        name: replace(info, spec={**info.spec, "time_limit_s": 31.0, "repeats": 5})
        for name, info in report.studies.items()
    }
    for line in study_commands(replace(report, studies=limited)):
        assert "--repeats 5" in line
        assert "--time-limit" not in line


def test_variables_that_a_script_needs_are_part_of_its_command() -> None:
    report = lab()
    studies = tuple(replace(one, environ={"KERAS_BACKEND": "torch"}) for one in report.plan.studies)
    found = study_commands(replace(report, plan=replace(report.plan, studies=studies)))
    assert found
    for line in found:
        assert line.startswith("KERAS_BACKEND=torch farandole study ")
