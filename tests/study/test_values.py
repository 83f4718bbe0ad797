from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.study import values


@pytest.mark.parametrize(
    ("text", "found"),
    [("1,2,4", (1, 2, 4)), ("4, 2,2", (2, 4)), ("1-4", (1, 2, 3, 4)), ("auto,8", (1, 2, 8))],
)
def test_counts(text: str, found: tuple[int, ...]) -> None:
    assert values.counts(text, flag="-np", auto=(1, 2)) == found


@pytest.mark.parametrize("text", ["", "0", "1,,2", "two", "4-1", "-1", "1-99999", "1.5"])
def test_bad_counts_name_the_flag(text: str) -> None:
    with pytest.raises(UsageError, match="-np"):
        values.counts(text, flag="-np", auto=(1,))


def test_factors() -> None:
    found = values.factors(["lr=0.1,0.2", "opt=adam", "lr=0.2,0.3"])
    assert found == {"lr": ("0.1", "0.2", "0.3"), "opt": ("adam",)}


@pytest.mark.parametrize("text", ["lr", "=1", "lr=", "lr=1,,2", "a b=1"])
def test_bad_factors(text: str) -> None:
    with pytest.raises(UsageError, match="-L"):
        values.factors([text])


@pytest.mark.parametrize(
    ("given", "numbers", "wants_max"),
    [
        (("64", "32"), (32, 64), False),
        (("32", "64", "...", "512"), (32, 64, 128, 256, 512), False),
        (("10", "25", "...", "60"), (10, 25, 40, 55, 60), False),
        (("32", "64", "...", "max"), (32, 64), True),
        (("max",), (), True),
    ],
)
def test_batches(given: tuple[str, ...], numbers: tuple[int, ...], wants_max: bool) -> None:
    assert values.batches(given, name="batch") == (numbers, wants_max)


@pytest.mark.parametrize("given", [("0",), ("x",), ("1.5",), ("32", "..."), ("...", "64")])
def test_bad_batches(given: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="-L batch"):
        values.batches(given, name="batch")


def test_a_global_batch_has_no_max() -> None:
    with pytest.raises(UsageError, match="only `batch`"):
        values.batches(("max",), name="global_batch")


@pytest.mark.parametrize(
    ("text", "found"),
    [("90", 90), ("90s", 90), ("20m", 1200), ("1h30m", 5400), ("1.5h", 5400), ("2 min", 120)],
)
def test_seconds(text: str, found: float) -> None:
    assert values.seconds(text, flag="--time-limit") == found


@pytest.mark.parametrize("text", ["", "soon", "-5", "0", "5d", "1h30x", "1..5"])
def test_bad_seconds(text: str) -> None:
    with pytest.raises(UsageError, match="--time-limit"):
        values.seconds(text, flag="--time-limit")


@pytest.mark.parametrize(
    ("text", "found"),
    [("800M", 800_000_000), ("2G", 2 * 10**9), ("2gib", 2 << 30), ("1.5GB", 1_500_000_000)],
)
def test_size(text: str, found: int) -> None:
    assert values.size(text, flag="--memory") == found


@pytest.mark.parametrize("text", ["", "much", "0", "-1G", "5X"])
def test_bad_size(text: str) -> None:
    with pytest.raises(UsageError, match="--memory"):
        values.size(text, flag="--memory")


def test_share() -> None:
    assert values.share("3%", flag="-p") == pytest.approx(0.03)
    assert values.share("0.05", flag="-p") == 0.05
    for text in ("3", "0", "-1%", "x", "nan"):
        with pytest.raises(UsageError):
            values.share(text, flag="-p")


def test_typed() -> None:
    assert [values.typed(text) for text in ("1", "0.5", "1e-3", "adam")] == [1, 0.5, 0.001, "adam"]
    assert [values.typed(text) for text in ("nan", "inf", "1_0", "")] == ["nan", "inf", "1_0", ""]
