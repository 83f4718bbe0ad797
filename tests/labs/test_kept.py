"""lab.json: what is written is read again, and other labs are refused with both."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.labs.kept import FILE, Kept, command, continued, read_kept, write_kept
from farandole.labs.lab import DataFacts, Rate
from tests.labs.tiny import asked, tiny

DATA = DataFacts(source="none", train=1000, test=100, sample="nothing")
KEPT = Kept(
    lab="tiny",
    asked=asked(data=Path("/some data"), workers=(1, 2), recipes=("warmup",), weights="none"),
    created="2026-01-01T00:00:00+00:00",
    rates={"rate": Rate(samples_per_s=100.0, startup_s=1.5)},
    plan=tiny().plan(asked(), DATA, {}, 2),
    ended={"first": "", "second": "broken"},
    spent_s=12.5,
)


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    write_kept(tmp_path, KEPT)
    assert read_kept(tmp_path) == KEPT
    content = json.loads((tmp_path / FILE).read_text())
    assert (content["schema"], content["kind"]) == (1, "farandole-lab")


def test_a_lab_from_before_weights_could_be_asked_for_is_read(tmp_path: Path) -> None:
    write_kept(tmp_path, KEPT)
    content = json.loads((tmp_path / FILE).read_text())
    del content["asked"]["weights"]
    (tmp_path / FILE).write_text(json.dumps(content))
    kept = read_kept(tmp_path)
    assert kept is not None
    assert kept.asked == replace(KEPT.asked, weights=None)


def test_a_new_place_keeps_nothing(tmp_path: Path) -> None:
    assert read_kept(tmp_path) is None
    assert read_kept(tmp_path / "new") is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not what `farandole lab` wrote"),
        ("[]", "not what `farandole lab` wrote"),
        ('{"schema": 1, "kind": "farandole-lab"}', "not what `farandole lab` wrote"),
        ('{"schema": 2, "kind": "farandole-lab"}', "later version"),
    ],
)
def test_a_file_that_is_not_ours(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(UsageError, match=says):
        read_kept(tmp_path)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"holds no lab \(it has thesis.tex\)"):
        read_kept(tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        read_kept(tmp_path / "thesis.tex")


@pytest.mark.parametrize(
    ("changes", "theirs"),
    [
        ({"data": None}, "farandole lab tiny --quick -np 1,2 --recipe warmup"),
        ({"size": "full"}, "farandole lab tiny --full --data '/some data'"),
        ({"size": "budget", "budget_s": 900.0}, "farandole lab tiny --budget 15m"),
        ({"workers": (1, 4)}, "-np 1,4"),
        ({"recipes": ()}, "-np 1,2 --weights none`"),
        ({"weights": None}, "--recipe warmup`"),
    ],
)
def test_another_wish_is_refused_with_both(changes: dict[str, object], theirs: str) -> None:
    wish = replace(KEPT.asked, **changes)
    with pytest.raises(UsageError) as refused:
        continued(KEPT, "tiny", wish, Path("out"))
    ours = "farandole lab tiny --quick --data '/some data' -np 1,2 --recipe warmup --weights none"
    assert f"out holds `{ours}`" in str(refused.value)
    assert theirs in str(refused.value)


def test_another_lab_is_refused() -> None:
    with pytest.raises(UsageError, match=r"holds `farandole lab tiny .*for `farandole lab mnist "):
        continued(KEPT, "mnist", KEPT.asked, Path("out"))


def test_the_same_goes_on_whatever_the_cores() -> None:
    assert continued(KEPT, "tiny", replace(KEPT.asked, cores=64), Path("out")) == KEPT


def test_before_there_is_a_plan_another_budget_is_welcome() -> None:
    short = replace(KEPT.asked, size="budget", budget_s=60.0)
    longer = replace(short, budget_s=600.0)
    open_one = replace(KEPT, asked=short, plan=None)
    assert continued(open_one, "tiny", longer, Path("out")).rates == KEPT.rates
    assert continued(open_one, "tiny", longer, Path("out")).asked == longer
    with pytest.raises(UsageError, match=r"--budget 1m .*--budget 10m"):
        continued(replace(KEPT, asked=short), "tiny", longer, Path("out"))


def test_the_command_line_of_a_wish() -> None:
    assert command("mnist", asked(), "out") == (
        *("farandole", "lab", "mnist", "--quick", "--out", "out"),
    )
