"""All ranks' accounts of an epoch, put together without any rank."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from farandole.keras.metrics import Account, merge


def account(
    values: Mapping[str, Any],
    samples: float = 0.0,
    validated: float | None = None,
    **states: list[list[float]],
) -> Account:
    return Account(
        values={k: v if isinstance(v, str) else np.array(v, float) for k, v in values.items()},
        states={label: [np.array(part) for part in state] for label, state in states.items()},
        samples={"": samples} | ({} if validated is None else {"val_": validated}),
    )


@pytest.mark.parametrize(
    ("accounts", "expected"),
    [
        pytest.param([account({"a": 1}), account({"a": 2})], {"a": 1.5}, id="nobody counted"),
        pytest.param([account({"a": 1}, 10), account({"a": 2}, 30)], {"a": 1.75}, id="weighted"),
        pytest.param([account({"a": 1}, 10), account({"a": 2})], {"a": 1.5}, id="one counted"),
        pytest.param(
            [account({"a": 1, "val_a": 1}, 10, 3), account({"a": 2, "val_a": 2}, 30, 1)],
            {"a": 1.75, "val_a": 1.25},
            id="phases have their own weights",
        ),
        pytest.param(
            [account({"lr": 0.1}, 3), account({"lr": 0.1}, 7)], {"lr": 0.1}, id="equal stay exact"
        ),
        pytest.param(
            [account({"f": [0, 1]}, 1), account({"f": [1, 3]}, 3)], {"f": [0.75, 2.5]}, id="arrays"
        ),
        pytest.param(
            [account({"t": "str"}), account({"t": "str"})], {}, id="text is nobody's metric"
        ),
    ],
)
def test_averages(accounts: list[Account], expected: dict[str, Any]) -> None:
    merged = merge(accounts)
    assert {name: value.tolist() for name, value in merged.means.items()} == expected
    assert merged.remark is None


def test_states_are_summed_where_every_rank_offers_them_in_one_form() -> None:
    merged = merge(
        [
            account({}, auc=[[1, 2], [3]], loss=[[1.0]], f1=[[1.0, 2.0]]),
            account({}, auc=[[10, 20], [30]], f1=[[1.0]]),
        ]
    )
    assert {name: [part.tolist() for part in state] for name, state in merged.sums.items()} == {
        "auc": [[11, 22], [33]]
    }


@pytest.mark.parametrize(
    ("accounts", "words"),
    [
        pytest.param(
            [account({"loss": 1}), account({"loss": math.nan})],
            ["not a number", "loss on rank 1."],
            id="nan",
        ),
        pytest.param(
            [account({"loss": math.inf}), account({"loss": 1}), account({"loss": -math.inf})],
            ["not a number", "loss on ranks 0, 2."],
            id="infinite",
        ),
        pytest.param(
            [account({"loss": math.nan}), account({"loss": math.nan})],
            ["loss on all ranks."],
            id="all nan",
        ),
        pytest.param(
            [account({"a": 1, "val_a": 1}), account({"a": 1})],
            ["missing", "val_a on rank 1."],
            id="missing",
        ),
        pytest.param(
            [account({"a": 1}), account({"a": "str"})],
            ["cannot be averaged", "a is of shape () on rank 0, a str on rank 1"],
            id="text on one rank",
        ),
        pytest.param(
            [account({"a": [1, 2]}), account({"a": 1})],
            ["cannot be averaged", "of shape (2,) on rank 0, of shape () on rank 1"],
            id="shapes",
        ),
    ],
)
def test_what_is_wrong_is_said_with_rank_and_metric(
    accounts: list[Account], words: list[str]
) -> None:
    remark = merge(accounts).remark or ""
    assert [word for word in words if word not in remark] == []


def test_a_nan_stays_one_and_a_missing_metric_is_that_of_the_others() -> None:
    means = merge([account({"a": math.nan, "b": 2}), account({"a": 1})]).means
    assert math.isnan(means["a"])
    assert means["b"] == 2


def test_an_account_survives_being_sent() -> None:
    before = account({"a": 1}, 3, 4, a=[[1.0]])
    after = Account(**before.plain())  # type: ignore[arg-type]
    assert merge([before, after]).sums["a"][0].tolist() == [2.0]
    assert after.samples == {"": 3, "val_": 4}
