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
