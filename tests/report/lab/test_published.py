"""Published figures, alone and beside what was measured here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from farandole.model.analyse import analyse
from farandole.model.info.scaling import ScalingInfo
from farandole.report.lab.published import beside, table
from farandole.study.import_table import import_table
from tests.report.builders import bare, speedup, study
from tests.report.charts.drawn import rows
from tests.report.lab.builders import lab

PUBLISHED = Path(__file__).parents[3] / "src" / "farandole" / "labs" / "published"


def imported(name: str, folder: Path) -> ScalingInfo:
    return analyse(import_table(PUBLISHED / f"{name}.csv", folder / name)[0])


def test_figures_keep_the_digits_that_they_were_published_with(tmp_path: Path) -> None:
    found = table("cifar10_speedup", imported("cifar10_speedup", tmp_path))
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
    found = table("twice", analyse(import_table(twice, tmp_path / "study")[0]))
    row = dict(zip([column.key for column in found.columns], found.rows[0], strict=True))
    assert row["metric_accuracy"] == pytest.approx((46.164 + 49.78) / 2)
    assert row["runs"] == 2
    both = table("cifar10_accuracy", imported("cifar10_accuracy", tmp_path))
    keys = [column.key for column in both.columns]
    places = [keys.index("metric_accuracy"), keys.index("metric_loss")]
    figures = {tuple(row[place] for place in places) for row in both.rows}
    assert figures == {(46.164, 1.449112), (49.78, 1.386)}


def test_one_figure_with_both_series() -> None:
    (found,) = beside(lab())
    assert found.figure is not None
    names = list(dict.fromkeys(row["name"] for row in rows(found.figure) if "name" in row))
    assert names == [
        "here: speedup, resnet18, batch 64",
        "published: resnet18, batch 64",
    ]
    by_name = {(row[0], row[1]): row[2].value for row in found.figure.table.rows}
    assert by_name["published: resnet18, batch 64", 4] == pytest.approx(speedup(4))


def test_a_study_of_the_same_name_stands_beside_it_alone() -> None:
    report = lab()
    several = replace(report, studies={**report.studies, "recipes": study()})

    def series(of: ScalingInfo | None = None, **chosen: tuple[str, ...]) -> set[str]:
        (found,) = beside(replace(several, beside=chosen))
        assert found.figure is not None
        return {row[0].partition(",")[0] for row in found.figure.table.rows} - {
            "published: resnet18"
        }

    assert series() == {"here: speedup"}
    assert series(tiny_speedup=("recipes", "unknown")) == {"here: recipes"}


@pytest.mark.parametrize(
    "here", [bare(), study(void="Your 2 workers trained 2 separate models.")], ids=["bare", "void"]
)
def test_no_figure_where_this_machine_has_no_curve(here: ScalingInfo) -> None:
    (found,) = beside(replace(lab(), studies={"speedup": here}))
    assert found.figure is None
    assert found.table.rows


def test_weak_and_strong_scaling_are_not_drawn_together() -> None:
    here = study()
    strong = replace(here, curves=(replace(here.curves[0], scaling="strong"),))
    if here.curves[0].scaling == "strong":
        strong = replace(here, curves=(replace(here.curves[0], scaling="weak"),))
    (found,) = beside(replace(lab(), studies={"speedup": strong}))
    assert found.figure is None
