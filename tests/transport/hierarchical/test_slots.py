"""Room in slots: for a window that is filled up, and for a part from and to everybody."""

from __future__ import annotations

import pytest

from farandole.transport.hierarchical.slots import SLOT_BYTES, slot_bytes
from farandole.transport.hosts import hosts_of


@pytest.mark.parametrize(("hosts", "each"), [(2, 2), (3, 1), (64, 8), (4, 128)])
def test_a_slot_has_room_for_everybody(hosts: int, each: int) -> None:
    place = hosts_of([f"n{rank // each}" for rank in range(hosts * each)])
    nbytes = slot_bytes(place)
    assert nbytes % 4096 == 0
    assert nbytes >= SLOT_BYTES + (hosts - 1) * 16, "a window of complex128, filled up"
    assert nbytes // 2 >= each * place.size * 16, "half of it: an element from all to all here"
