"""The page of a lab, without a browser."""

from __future__ import annotations

import json
from dataclasses import replace

from farandole.report.lab.contents import contents
from farandole.report.lab.page import page
from tests.report.builders import Words
from tests.report.lab.builders import lab
from tests.report.test_page import SCRIPT, Reader

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'"


def test_the_order_of_the_page() -> None:
    read = Reader(page(contents(lab()), scripts=SCRIPT))
    assert read.texts["h1"] == ["Where the time goes"]
    assert read.texts["title"] == ["tiny: Where the time goes"]
    assert read.texts["h2"] == [
        "1. What do more workers bring?",
        "2. What crosses the network?",
        "3. Would gradients do?",
        "What the original got wrong",
        "Lab / here",
        "The lab's own figures",
        "Not shown",
        "Method",
        "Machine",
        "Data",
        "Commands that reproduce it",
    ]
    assert "2 workers: 1.85x.Gradients: 44.7 MB." in read.texts["header"][0]
    assert "Quick" not in read.texts["header"][0]


def test_a_quick_lab_says_that_there_are_no_intervals() -> None:
    read = Reader(page(contents(lab(size_="quick")), scripts=SCRIPT))
    assert "Quick: one repeat, no intervals." in read.texts["header"][0]


def test_every_chart_has_a_place_and_every_link_a_target() -> None:
    found = contents(lab())
    read = Reader(page(found, scripts=SCRIPT))
    ids = {attributes.get("id") for _, attributes in read.attributes}
    specs = json.loads(read.texts["script"][1])
    assert list(specs) == [figure.name for figure in found.figures()]
    assert {f"chart-{name}" for name in specs} <= ids
    targets = {(found.get("href") or "")[1:] for tag, found in read.attributes if tag == "a"}
    assert targets <= ids
    assert len(targets) == 8


def test_links_to_questions_are_in_words() -> None:
    found = contents(lab())
    first = replace(found.sections[0], key="two_nodes")
    read = Reader(page(replace(found, sections=(first,)), scripts=SCRIPT))
    assert read.texts["a"][0] == "two nodes"


def test_hostile_strings_stay_text() -> None:
    report = lab(lambda word: word + EVIL, words=Words(label=EVIL, param=(EVIL, EVIL), metric=EVIL))
    text = page(contents(report), scripts=SCRIPT)
    read = Reader(text)
    assert [tag for tag, _ in read.attributes].count("script") == 4
    assert not [tag for tag, found in read.attributes if tag == "img" or "onerror" in found]
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
    read = Reader(page(contents(bare), scripts=SCRIPT))
    assert read.texts["h2"] == ["Method", "Machine", "Data", "Commands that reproduce it"]
