from __future__ import annotations

import pytest

from farandole.study.hosts import share_out


@pytest.mark.parametrize(
    ("workers", "ranks"),
    [
        (8, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (7, [(0, 1, 2, 3), (4, 5, 6)]),
        (2, [(0,), (1,)]),
    ],
)
def test_hosts_share_workers_evenly(workers: int, ranks: list[tuple[int, ...]]) -> None:
    placed = share_out(("n1", "n2"), workers)
    assert [share.ranks for share in placed.hosts] == ranks
    assert placed.host_names == ("n1", "n2")
    assert placed.size == workers
