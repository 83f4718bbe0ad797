"""Derived figures, derived again."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.model.claim import check_claim


@pytest.mark.parametrize(
    ("kind", "first", "second", "claimed", "agrees"),
    [
        ("ratio", 136.51, 19.4, "7.04", True),
        ("ratio", 136.51, 19.4, "7.0", True),
        ("ratio", 136.51, 19.4, "7", True),
        ("ratio", 136.51, 19.4, "7.05", False),
        ("less", 11, 5, "0.55", True),
        ("less", 11, 5, "0.75", False),
    ],
)
def test_claims(kind: str, first: float, second: float, claimed: str, agrees: bool) -> None:
    found = check_claim("a figure", kind, first, second, claimed)
    assert found.agrees is agrees
    assert found.sentence.endswith("as published." if agrees else f"not {claimed}.")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="ratio or less"):
        check_claim("a figure", "product", 1.0, 2.0, "2")
