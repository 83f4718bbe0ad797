"""What is said about a stall."""

from __future__ import annotations

from farandole.stalls.pages import Key, Stall, deadlock_report, headline, stall_report


def stall(name: str, waiting: tuple[int, ...], missing: tuple[int, ...]) -> Stall:
    return Stall(key=Key((0, 1, 2), name), waiting=waiting, missing=missing)


def test_one_line_has_it_all() -> None:
    found = [stall("allreduce.loss", (0, 2), (1,)), stall("allreduce.x", (0,), (1, 2))]
    assert headline(found[:1], 60.4) == (
        "rank 1 has not submitted allreduce.loss, for which ranks 0 and 2 waited 60 s."
    )
    assert "ranks 1 and 2 have not submitted allreduce.x, for which rank 0" in headline(
        found[1:], 1.0
    )
    assert "allreduce.loss (and 1 more)" in headline(found, 60.0)


def test_a_report_lists_ranks_tensors_and_stacks() -> None:
    found = [stall(f"allreduce.{number}", (0,), (1,)) for number in range(8)]
    found.append(stall("broadcast.w", (0, 1), (2,)))
    text = stall_report(found, 5.0, {1: ['  File "train.py", line 3 in main'], 2: []})
    lines = text.splitlines()
    assert lines[1] == "Missing ranks:"
    assert lines[2] == (
        "1: [allreduce.0, allreduce.1, allreduce.2, allreduce.3, allreduce.4, allreduce.5, "
        "and 2 more]"
    )
    assert lines[3] == "2: [broadcast.w]"
    assert lines[4:6] == [
        "rank 1 is here (most recent call first):",
        '  File "train.py", line 3 in main',
    ]
    assert lines[6] == "where rank 2 is cannot be seen from here"


def test_a_deadlock_names_both_sides() -> None:
    text = deadlock_report([stall("a", (0,), (1, 2)), stall("b", (1, 2), (0,))], {})
    assert "rank 0 waits for a, which ranks 1 and 2 have not submitted" in text
    assert "ranks 1 and 2 wait for b, which rank 0 has not submitted" in text
