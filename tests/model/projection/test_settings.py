"""Settings, and what they cost."""

from __future__ import annotations

import pytest

from farandole.model.projection.asked import parse_price
from farandole.model.projection.settings import Setting


@pytest.mark.parametrize(
    ("workers", "price", "stated", "an_hour"),
    [
        (8, "2.5", True, 20.0),
        (6, "2.5", True, 20.0),  # two hosts of four
        (2, "2.5", True, 10.0),  # one whole host
        (2, "2.5", False, 5.0),  # nobody said how large a host is
        (6, "2.5", False, 20.0),
        (6, "12/host-h", False, 24.0),
        (2, "12/host-h", True, 12.0),
    ],
)
def test_whole_hosts_are_billed(workers: int, price: str, stated: bool, an_hour: float) -> None:
    setting = Setting(workers=workers, per_host=4, price=parse_price(price), whole_hosts=stated)
    assert setting.cost_per_s is not None
    assert 3600 * setting.cost_per_s == pytest.approx(an_hour)


def test_without_a_price_there_is_no_cost() -> None:
    setting = Setting(workers=6, per_host=4)
    assert setting.hosts == 2
    assert setting.cost_per_s is None
