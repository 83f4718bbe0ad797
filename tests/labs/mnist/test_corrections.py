"""What the mnist lab got wrong: the published figures against their own inputs."""

from __future__ import annotations

from farandole.labs.mnist.corrections import corrections
from tests.labs.mnist.build import found, nothing


def test_speedups_are_quotients_of_times() -> None:
    first = corrections(found())[0]
    assert "0.53" in first.said
    assert "0.84" in first.said
    assert "1.20 times" in first.right
    assert "1.86 times" in first.right
    assert "2 workers make 190" in first.shown_by


def test_size_is_shown_by_ranks_and_steps_that_were_counted() -> None:
    second = corrections(found())[1]
    assert "all workers of all nodes" in second.right
    assert "4 recorded ranks and 6 steps on 4 workers" in second.shown_by


def test_the_run_on_two_nodes_had_six_gpus() -> None:
    third = corrections(found())[2]
    assert third.right == "It very likely had 6 GPUs in all."
    assert "40 x 78 = 3,120" in third.shown_by
    assert "3 of 3 worker counts" in third.shown_by


def test_the_arithmetic_stands_without_any_run() -> None:
    said = corrections(nothing())
    assert "No speedup was measured here." in said[0].shown_by
    assert said[2].right == "It very likely had 6 GPUs in all."
