"""Text of a row, cell by cell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.bench.judge import Entry, Judgement, Row, Verdict
from farandole.bench.rows import Claim, Quantity, RowPlan
from farandole.bench.table import cells, header, notes, plain_lines, ratio_text, time_text, title
from farandole.model.statistics import Estimate

_CLAIM = Claim(
    text="3 x gloo's speed",
    quantity=Quantity.SPEED_RATIO,
    subject="us",
    against="gloo",
    to_reach=3.0,
    stretch=4.0,
)

_TO_REACH = "to reach: 3 x gloo's speed (stretch 4.00 x)"


def _entry(name: str, value: float | None, **more: object) -> Entry:
    given: dict[str, object] = {
        "contestant": name,
        "num_ranks": 2,
        "launches": () if value is None else (value, value),
        "void": False,
        "num_void_launches": 0,
        "estimate": None if value is None else Estimate(value=value, low=value, high=value),
        "against_baseline": None,
        "note": None,
    }
    return Entry(**{**given, **more})  # type: ignore[arg-type]


def _row(*entries: Entry, **more: object) -> Row:
    plan = RowPlan(
        key="r",
        title="all-reduce",
        series="s",
        contestants=tuple(entry.contestant for entry in entries),
        baseline="gloo",
        **more,  # type: ignore[arg-type]
    )
    return Row(plan=plan, entries=entries, judgements=())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.13e-6, "4.1 us"), (0.041234, "41.23 ms"), (0.000999, "999.0 us"), (2.5, "2.50 s")],
)
def test_times(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize(("ratio", "text"), [(0.8123, "81.2 %"), (1.5, "150.0 %"), (4.2, "4.20 x")])
def test_ratios(ratio: float, text: str) -> None:
    assert ratio_text(ratio) == text


def test_a_row_of_times() -> None:
    row = _row(
        _entry("us", 0.01, against_baseline=Estimate(value=4.0, low=3.9, high=4.1)),
        _entry("gloo", 0.04, num_void_launches=1),
    )
    assert title(row) == "all-reduce (2 ranks)"
    assert header(row) == ["contestant", "median", "95 % interval", "launches", "speed, of gloo"]
    assert cells(row) == [
        ["us", "10.00 ms", "10.00 ms to 10.00 ms", "2", "4.00 x"],
        ["gloo", "40.00 ms", "40.00 ms to 40.00 ms", "2 and 1 void", ""],
    ]


def test_a_row_of_memory_counts_copies() -> None:
    more = Estimate(value=1.0, low=0.9, high=1.1)
    row = _row(_entry("us", 3e8, against_baseline=more), unit="bytes", unit_bytes=10**7)
    assert cells(row)[0][1] == "300.0 MB"
    assert cells(row)[0][4] == "+1.00 copies of the gradients"


def test_void_and_absent_contestants_say_so() -> None:
    row = _row(_entry("us", None, note="failed: boom"), _entry("gloo", 1.0, void=True))
    assert cells(row)[0] == ["us", "none", "", "", ""]
    assert cells(row)[1][3] == "2, all void"
    assert notes(row) == ["us: failed: boom"]


@pytest.mark.parametrize(
    ("ends", "verdict", "certain", "text"),
    [
        ((3.4, 3.6), Verdict.REACHED, True, "3.50 x [3.40 x, 3.60 x]: reached"),
        ((2.5, 4.6), Verdict.REACHED, False, "3.50 x [2.50 x, 4.60 x]: reached, not certain"),
        ((None, None), Verdict.VOID, False, "3.50 x: void: others used this machine"),
    ],
)
def test_verdicts(
    ends: tuple[float | None, float | None], verdict: Verdict, certain: bool, text: str
) -> None:
    estimate = Estimate(value=3.5, low=ends[0], high=ends[1])
    assert _note(estimate, verdict, certain) == f"{_TO_REACH}: {text}"


def test_what_was_not_measured_says_so() -> None:
    assert _note(None, Verdict.NOT_MEASURED, False) == f"{_TO_REACH}: not measured"


def _note(estimate: Estimate | None, verdict: Verdict, certain: bool) -> str:
    judgement = Judgement(claim=_CLAIM, estimate=estimate, verdict=verdict, certain=certain)
    (line,) = notes(Row(plan=_row().plan, entries=(), judgements=(judgement,)))
    return line


def test_plain_lines_are_aligned() -> None:
    lines = plain_lines(_row(_entry("us", 1.0), _entry("a longer name", 2.0)))
    assert {line.index("median") for line in lines if "median" in line} == {17}
    assert all(line[17:].startswith(("median", "1.00 s", "2.00 s")) for line in lines[1:])


@pytest.mark.parametrize(
    ("quantity", "value", "text"),
    [
        (Quantity.TIME_MORE_S, 0.25, "250.00 ms"),
        (Quantity.TIME_MORE_S, -0.25, "-250.00 ms"),
        (Quantity.BYTES, 324.4e6, "324.4 MB"),
        (Quantity.RANKING, 0.8, "0.80"),
    ],
)
def test_a_figure_has_its_own_unit(quantity: Quantity, value: float, text: str) -> None:
    claim = Claim(text="figure", quantity=quantity, subject="us", to_reach=1.0)
    estimate = Estimate(value=value, low=None, high=None)
    judgement = Judgement(
        claim=claim, estimate=estimate, verdict=Verdict.REACHED, certain=True, note="a > b"
    )
    row = replace(_row(_entry("us", 1.0)), judgements=(judgement,))
    assert notes(row) == [f"to reach: figure: {text}: reached", "a > b"]


def test_a_row_of_commands_has_no_ranks() -> None:
    assert title(_row(_entry("us", 1.0), of_ranks=False)) == "all-reduce"
