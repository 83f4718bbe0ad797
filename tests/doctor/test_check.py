"""The registry, and what it makes of checks that find, pass, or cannot see."""

from __future__ import annotations

import pytest

from farandole.doctor.check import FRAMEWORKS, checks, chosen
from farandole.doctor.text import page
from farandole.errors import UsageError
from tests.doctor.facts import job, line, look, rank


def state(*weights: str, step: int = 0) -> dict[str, object]:
    return line("state", step=step, weights=list(weights))


def test_every_check_has_a_whole_record() -> None:
    for one in checks().values():
        assert all((one.title, one.meaning, one.fix, one.needs)), one.id
        assert set(one.fix) <= set(FRAMEWORKS), one.id
        assert page(one).startswith(f"# {one.id}: {one.title}\n"), one.id
        assert set(one.explains) <= set(checks()), one.id


def test_ids_are_chosen_by_their_beginnings() -> None:
    assert {one.id[:3] for one in chosen(["fd1"])} == {"FD1"}
    assert [one.id for one in chosen(["FD103"])] == ["FD103"]
    assert "FD103" not in [one.id for one in chosen(ignore=["FD103"])]
    with pytest.raises(UsageError, match="There is no check FD999"):
        chosen(["FD999"])


def test_a_finding_has_values_per_rank_and_a_fix() -> None:
    wrong = job(rank(0, state("a1", "b1")), rank(1, state("a1", "b2")))
    (found,) = look("FD103", wrong).findings
    assert found.severity == "error"
    assert "1 of 2 parameters differ" in found.text
    assert set(found.values) == {0, 1}
    assert "2 workers" in found.meaning
    assert "broadcast_parameters" in found.fix


def test_ranks_that_agree_pass() -> None:
    assert look("FD103", job(rank(0, state("a1")), rank(1, state("a1")))).passed == ("FD103",)


def test_what_was_not_recorded_is_not_checked() -> None:
    said = look("FD103", job(rank(0), rank(1)))
    assert not said.passed
    assert said.not_checked == {"FD103": "the weights before the first update were not recorded"}
    idle = look("FD103", job(rank(0, steps=0), rank(1, steps=0)))
    assert idle.not_checked == {"FD103": "no optimizer step was seen"}
