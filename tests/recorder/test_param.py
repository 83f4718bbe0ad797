from __future__ import annotations

import json
from typing import Any

import pytest

import farandole
from farandole.errors import UsageError


def test_outside_of_a_study_the_default_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FARANDOLE_PARAMS", raising=False)
    assert farandole.param("batch", 32) == 32
    assert farandole.param("name", None) is None


@pytest.mark.parametrize(
    ("value", "default", "expected"),
    [
        (64, 32, 64),
        ("64", 32, 64),
        ("64.0", 32, 64),
        (64, "a", "64"),
        ("0.1", 0.5, 0.1),
        (1, 0.5, 1.0),
        ("true", False, True),
        ("off", True, False),
        (False, True, False),
        (True, 3, 1),
        ("sgd", "adam", "sgd"),
        ("x", None, "x"),
    ],
)
def test_the_default_says_the_type(
    monkeypatch: pytest.MonkeyPatch, value: Any, default: Any, expected: Any
) -> None:
    monkeypatch.setenv("FARANDOLE_PARAMS", json.dumps({"x": value}))
    found = farandole.param("x", default)
    assert found == expected
    assert type(found) is type(expected)
    assert farandole.param("y", default) == default


@pytest.mark.parametrize(("value", "default"), [("many", 32), ("6.5", 32), ("maybe", True)])
def test_a_value_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, value: str, default: Any
) -> None:
    monkeypatch.setenv("FARANDOLE_PARAMS", json.dumps({"batch": value}))
    with pytest.raises(UsageError, match=f"The study's batch is '{value}'"):
        farandole.param("batch", default)


def test_a_variable_that_is_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_PARAMS", "[1]")
    with pytest.raises(UsageError, match="is not a JSON object"):
        farandole.param("batch", 32)
