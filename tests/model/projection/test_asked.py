"""Questions, as users write them."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.model.projection.asked import Asked, check, parse_only, parse_price


@pytest.mark.parametrize(
    ("text", "amount", "per"),
    [
        ("2.5", 2.5, "worker"),
        ("$2.5", 2.5, "worker"),
        ("2.5/worker-h", 2.5, "worker"),
        ("3 per gpu-hour", 3.0, "worker"),
        ("12/host-h", 12.0, "host"),
        ("12 / node / h", 12.0, "host"),
        ("98 per host hour", 98.0, "host"),
    ],
)
def test_prices(text: str, amount: float, per: str) -> None:
    found = parse_price(text)
    assert (found.amount, found.per) == (amount, per)


@pytest.mark.parametrize("text", ["", "free", "0", "-1", "nan", "inf", "2.5/fortnight", "1.2.3"])
def test_what_is_no_price(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no price per hour above 0\. Write --price 2\.5"):
        parse_price(text)


def test_a_price_of_a_host_needs_a_time() -> None:
    with pytest.raises(UsageError, match=r"does not say for how long\. Write 12/host-h"):
        parse_price("12/host")


def test_factors_to_stand_on() -> None:
    assert parse_only(["device=V100,model=vgg", "batch=32"]) == (
        ("device", "V100"),
        ("model", "vgg"),
        ("batch", "32"),
    )
    with pytest.raises(UsageError, match="--only V100 is not NAME=VALUE"):
        parse_only(["V100"])


def test_a_question_must_ask_for_something() -> None:
    with pytest.raises(UsageError, match="-np 8,16,64"):
        check(Asked(workers=()))


def test_a_budget_needs_a_price() -> None:
    with pytest.raises(UsageError, match="--budget 50 needs a price"):
        check(Asked(workers=(8,), budget=50.0))
    check(Asked(workers=(8,), budget=50.0, price=parse_price("2")))
