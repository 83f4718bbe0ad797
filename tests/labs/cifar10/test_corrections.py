"""What the lab got wrong: the arithmetic on its own figures, and the runs that show it."""

from __future__ import annotations

import pytest

from farandole.labs.cifar10.corrections import corrections
from tests.labs.cifar10.build import find, usual

FOUND = {one.said: one for one in corrections(find(usual()))}
EMPTY = {one.said: one for one in corrections(find({}))}


def shown_by(words: str) -> str:
    (correction,) = [one for said, one in FOUND.items() if words in said]
    return correction.shown_by


def test_there_is_one_for_each_that_is_known() -> None:
    assert len(FOUND) == 5
    # Without any run the arithmetic is still there.
    assert EMPTY.keys() == FOUND.keys()
    assert all(one.shown_by for one in EMPTY.values())


def test_weak_scaling_of_the_step_and_strong_of_the_epoch() -> None:
    shown = shown_by("strong scaling in one place")
    # 62.661095 s / 1562.5 steps and 44.222406 s / 781.25 steps.
    assert "each 56.6 ms in place of 40.1" in shown
    assert "1,563 steps in place of 3,125" in shown


def test_one_gpu_has_two_times_and_communication_hangs_on_them() -> None:
    shown = shown_by("One GPU at batch 32")
    # 40.171962 - 46.355837 / 2 and 40.171962 - 62.661095 / 2; 781.25 x 44.695848 MB over each.
    assert "16.99 s (2.05 GB/s)" in shown
    assert f"{40.171962 - 62.661095 / 2:.2f} s" in shown
    assert f"({781.25 * 4 * 11_173_962 / (40.171962 - 62.661095 / 2) / 1e9:.2f} GB/s)" in shown
    assert "take 10.0 ms of a step" in shown


def test_a_gigabyte_is_a_thousand_million_bytes() -> None:
    shown = shown_by("2^30")
    assert "2.05476 GB/s, as published" in shown
    # Of 2.05476e9 bytes.
    assert "1.91364 in units of 2^30" in shown


def test_the_slip_in_the_speedup() -> None:
    shown = shown_by("1.18592")
    assert "4.946042 / 4.017061 is 1.23126, not 1.18592" in shown
    assert "Here 2 workers at batch" in shown


@pytest.mark.parametrize("words", ["80 updates", "make 10", "of all 68,194 parameters each"])
def test_fewer_updates_of_the_same_parameters(words: str) -> None:
    assert words in shown_by("fewer parameters")
