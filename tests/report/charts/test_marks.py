"""What charts share."""

from __future__ import annotations

from typing import Any

from farandole.report.charts import marks


def test_names_at_the_ends_only_where_there_is_room() -> None:
    def end(name: str, y: float) -> dict[str, Any]:
        return {"name": name, "x": 4, "y": y}

    assert marks.far_apart([end("a", 1.0), end("b", 4.0)], log=False)
    assert not marks.far_apart([end("a", 3.9), end("b", 4.0)], log=False)
    assert not marks.far_apart([end("a", 1.0)], log=False)
    assert not marks.far_apart([end("a" * 40, 1.0), end("b", 4.0)], log=False)


def test_behind_long_words_a_legend_has_fewer_columns() -> None:
    parts = ["start-up", "epochs", "between epochs"]
    assert marks.legend_columns(parts, marks.room_beside(["1 worker", "2 workers"])) == 3
    assert (
        marks.legend_columns(parts, marks.room_beside(["2 workers, batch 64, model=resnet18"])) == 1
    )
    assert marks.room_beside([]) == 66
