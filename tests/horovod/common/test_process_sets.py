"""Process sets, where Horovod has them."""

from __future__ import annotations

from farandole.engine import process_sets as ours
from farandole.horovod.common import process_sets


def test_they_are_the_same() -> None:
    assert process_sets.ProcessSet is ours.ProcessSet
    assert process_sets.global_process_set is ours.global_process_set
    assert process_sets.ProcessSet([2, 0]).ranks == [0, 2]
