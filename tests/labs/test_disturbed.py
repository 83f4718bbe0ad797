"""Launches beside other programs."""

from __future__ import annotations

from dataclasses import replace

from farandole.labs.evidence import disturbed
from farandole.labs.mnist import LAB
from tests.labs.mnist_studies import found, studies
from tests.labs.trained import found_of


def test_quiet_launches_need_no_word() -> None:
    assert disturbed(found(), "workers") == []
    assert disturbed(found(), "no such study") == []


def test_the_largest_share_and_the_number_of_launches() -> None:
    made = studies(seeds=1)
    first, *rest = made["workers"].launches
    busy = replace(first, busy=True, foreign_share=0.4, steal_share=0.02)
    made["workers"] = replace(made["workers"], launches=(busy, *rest))
    (said,) = disturbed(found_of(LAB, made), "workers")
    assert said.startswith("Other programs took up to 42 % of the cores during 1 of 3 launches")
