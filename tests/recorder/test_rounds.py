from __future__ import annotations

import pytest

from farandole.recorder.optimizers import Rounds


@pytest.mark.parametrize(
    ("updates", "ends"),
    [
        ("AAAA", "1111"),
        ("ABABAB", "101010"),
        ("ABCABC", "100100"),
        # A critic that is trained more often than the generator: its updates are the steps.
        ("DDGDDGDDG", "110110110"),
        ("GDDDGDDD", "10110111"),
        # Training goes on with another optimizer.
        ("AAABBBB", "1110111"),
        ("ABABCDCD", "10100010"),
    ],
)
def test_which_updates_end_a_step(updates: str, ends: str) -> None:
    rounds = Rounds()
    assert "".join(str(int(rounds.ended_by(ord(who)))) for who in updates) == ends
