"""The page's text, without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

from farandole.report.contents import contents
from farandole.report.page import page
from tests.report.builders import HEADLINE, Words, bare, comparison, study

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
    read = Reader(page(contents(study()), scripts=SCRIPT))
    assert read.texts["h1"] == [HEADLINE]
    assert read.texts["title"] == [HEADLINE]
    headings = read.texts["h2"]
    assert headings[:2] == ["What it means", "Speed"]
    assert headings[-5:] == [
        "Method",
        "Machine",
        "Every cell",
        "Launches left out",
        "Commands that reproduce it",
    ]


def test_what_workers_cost_each_other_follows_the_method() -> None:
    text = page(contents(study()), scripts=SCRIPT)
    method = text[text.index("id=method") : text.index("id=machine")]
    assert "loaded, alone" in method
    assert "loaded, alone" not in page(contents(bare()), scripts=SCRIPT)


def test_a_void_study_has_the_reason_as_its_headline() -> None:
    text = page(contents(study(void=VOID)), scripts=SCRIPT)
    read = Reader(text)
    assert read.texts["h1"] == [VOID]
    assert ("h1", {"class": "void"}) in read.attributes
    assert "1.85x" not in text


def test_only_its_own_scripts_may_run() -> None:
    read = Reader(page(contents(study()), scripts=SCRIPT))
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
    read = Reader(page(contents(study()), scripts=SCRIPT))
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
    text = page(contents(study(words=words)), scripts=SCRIPT)
    read = Reader(text)
    assert [tag for tag, _ in read.attributes].count("script") == 4
    assert not [tag for tag, found in read.attributes if tag == "img" or "onerror" in found]
    specs = json.loads(read.texts["script"][1])
    assert evil in json.dumps(specs, ensure_ascii=False).replace('\\"', '"')


def test_what_has_no_data_is_told_in_one_line_each() -> None:
    text = page(contents(bare()), scripts=SCRIPT)
    assert "farandole study -np 1,2 -- COMMAND" in text
    assert "<figure" not in text


def test_every_chart_has_a_place_and_a_table() -> None:
    found = contents(study())
    read = Reader(page(found, scripts=SCRIPT))
    places = {found.get("id") for tag, found in read.attributes if tag == "div"}
    specs = json.loads(read.texts["script"][1])
    assert {f"chart-{name}" for name in specs} <= places
    assert len(read.texts["details"]) == len(specs)


def test_studies_side_by_side() -> None:
    read = Reader(page(contents(comparison()), scripts=SCRIPT))
    assert read.texts["h1"] == [HEADLINE, HEADLINE]
    assert "Side by side" in read.texts["h2"]
    assert "laptop" in read.texts["h3"]


def test_many_sentences_and_much_evidence_are_folded() -> None:
    info = replace(study(), today=None)
    answer = replace(info.answer, sentences=tuple(f"curve {index}" for index in range(99)))
    much = replace(info.verdicts[0], evidence={f"key{index}": 1.0 for index in range(50)})
    text = page(contents(replace(info, answer=answer, verdicts=(much,))), scripts=SCRIPT)
    assert "<summary>and 94 more</summary>" in text
    assert "and 42 more" in text
    assert "key49" not in text


def test_an_unfinished_study_says_so() -> None:
    text = page(contents(replace(study(), complete=False)), scripts=SCRIPT)
    assert "The study is not complete" in text
