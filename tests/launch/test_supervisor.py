"""The supervisor's decisions, without a process or a clock."""

from __future__ import annotations

import signal
from collections.abc import Collection

from farandole.launch.supervisor import Exited, Interrupted, Looked, Send, Supervisor
from farandole.world.board import Failure

TERM, KILL, INT = signal.SIGTERM, signal.SIGKILL, signal.SIGINT


def exited(rank: int, code: int, at: float, failure: Failure | None = None) -> Exited:
    return Exited(rank=rank, code=code, now=at, time_ns=int(at * 1e9), failure=failure)


def note(
    at: float,
    text: str = "ValueError: bad",
    *,
    secondary: bool = False,
    culprit: int | None = None,
) -> Failure:
    return Failure(time_ns=int(at * 1e9), text=text, secondary=secondary, culprit=culprit)


def looked(
    at: float,
    *,
    stopped: Collection[int] | None = None,
    exiting: Collection[int] | None = None,
    active: Collection[int] | None = None,
) -> Looked:
    return Looked(
        now=at,
        time_ns=int(at * 1e9),
        stopped=frozenset(stopped or ()),
        exiting=frozenset(exiting or ()),
        active=frozenset(active or ()),
    )


def interrupted(at: float, signum: int = INT) -> Interrupted:
    return Interrupted(signum=signum, now=at, time_ns=int(at * 1e9))


def supervisor(size: int = 3) -> Supervisor:
    return Supervisor(size=size, silence_timeout_s=30.0, exit_timeout_s=20.0)


def test_all_well() -> None:
    s = supervisor(2)
    assert s.handle(exited(1, 0, 1.0)) == []
    assert s.running == [0]
    assert s.handle(exited(0, 0, 9.0)) == []
    assert s.verdict().kind == "done"
    assert s.verdict().exit_code == 0


def test_a_failure_ends_the_others() -> None:
    s = supervisor()
    assert s.handle(exited(1, 3, 1.0)) == [Send(0, TERM), Send(2, TERM)]
    assert s.handle(exited(0, -TERM, 1.1)) == []
    assert s.handle(looked(3.9)) == []
    assert s.handle(looked(4.0)) == [Send(2, KILL)]
    s.handle(exited(2, -KILL, 4.1))
    verdict = s.verdict()
    assert (verdict.kind, verdict.rank, verdict.code, verdict.exit_code) == ("failed", 1, 3, 3)


def test_a_signal_gives_128_and_its_number() -> None:
    s = supervisor(1)
    s.handle(exited(0, -signal.SIGSEGV, 1.0))
    assert s.verdict().exit_code == 128 + signal.SIGSEGV


def test_consequences_are_not_blamed() -> None:
    s = supervisor()
    # Rank 0 noticed the end of rank 2 and was reaped before it.
    s.handle(exited(0, 1, 1.0, note(0.9, "PeerDiedError", secondary=True)))
    s.handle(exited(2, -KILL, 1.1))
    s.handle(exited(1, 1, 1.2, note(1.05, "PeerDiedError", secondary=True)))
    # Rank 2 was sent SIGTERM before its end was seen, but died of something else.
    verdict = s.verdict()
    assert (verdict.rank, verdict.exit_code) == (2, 137)


def test_the_earliest_note_is_blamed_though_its_process_ends_last() -> None:
    s = supervisor(2)
    s.handle(exited(0, 1, 2.0, note(1.9)))
    s.handle(exited(1, 1, 2.5, note(1.0, "the cause")))
    verdict = s.verdict()
    assert verdict.rank == 1
    assert verdict.failure is not None
    assert verdict.failure.text == "the cause"


def test_a_rank_cut_short_while_it_reports_its_exception_failed_with_code_1() -> None:
    s = supervisor(2)
    s.handle(exited(0, 1, 1.1, note(1.05)))
    s.handle(exited(1, -TERM, 1.2, note(1.0)))
    verdict = s.verdict()
    assert (verdict.rank, verdict.code, verdict.exit_code) == (1, 1, 1)


def test_a_killed_rank_is_blamed_before_the_peer_that_noted_a_broken_connection() -> None:
    s = supervisor(2)
    # Killed at 1.000, noted by the peer at 1.002, seen at 1.005.
    s.handle(exited(1, -KILL, 1.005))
    s.handle(exited(0, 1, 1.1, note(1.002, "RuntimeError: connection closed by peer")))
    assert s.verdict().rank == 1


def test_a_crash_after_a_peers_end_is_a_consequence() -> None:
    s = supervisor(2)
    s.handle(exited(0, 1, 1.1, note(1.0)))
    s.handle(exited(1, -signal.SIGABRT, 1.102))
    assert s.verdict().rank == 0


def test_a_crash_long_after_a_note_is_a_consequence() -> None:
    s = supervisor(2)
    s.handle(exited(1, -signal.SIGABRT, 5.0))
    s.handle(exited(0, 1, 5.1, note(1.0)))
    assert s.verdict().rank == 0


def test_failures_after_being_told_to_end_are_not_blamed() -> None:
    s = supervisor(2)
    s.handle(exited(0, 5, 2.0))
    s.handle(exited(1, 1, 2.5, note(2.4, "SIGTERM made me raise")))
    assert (s.verdict().rank, s.verdict().exit_code) == (0, 5)


def test_only_consequences_blame_the_first() -> None:
    s = supervisor(2)
    s.handle(exited(1, 1, 2.0, note(1.9, secondary=True)))
    s.handle(exited(0, -TERM, 2.5))
    assert s.verdict().rank == 1


def test_ctrl_c_then_patience_then_kill() -> None:
    s = supervisor(2)
    assert s.handle(interrupted(1.0)) == [Send(0, INT), Send(1, INT)]
    assert s.handle(looked(2.0)) == []
    s.handle(exited(0, -INT, 2.1))
    assert s.handle(looked(4.0)) == [Send(1, KILL)]
    s.handle(exited(1, -KILL, 4.1))
    assert (s.verdict().kind, s.verdict().exit_code) == ("interrupted", 130)


def test_a_second_ctrl_c_kills_at_once() -> None:
    s = supervisor(2)
    s.handle(interrupted(1.0))
    assert s.handle(interrupted(1.2)) == [Send(0, KILL), Send(1, KILL)]


def test_ctrl_c_while_ending_kills_at_once() -> None:
    s = supervisor(2)
    s.handle(exited(0, 1, 1.0))
    assert s.handle(interrupted(1.2)) == [Send(1, KILL)]
    assert s.verdict().exit_code == 130


def test_sigterm_is_143() -> None:
    s = supervisor(1)
    assert s.handle(interrupted(1.0, TERM)) == [Send(0, TERM)]
    s.handle(exited(0, -TERM, 1.1))
    assert s.verdict().exit_code == 143


def stop_for(s: Supervisor, start: float, seconds: float, **look: set[int]) -> list[Send]:
    sends: list[Send] = []
    at = start
    while not sends and at <= start + seconds:
        sends = s.handle(looked(at, **look))
        at += 5.0
    return sends


def test_stopped_and_silent_is_a_failure() -> None:
    s = supervisor(2)
    assert stop_for(s, 0.0, 25.0, stopped={1}) == []
    assert s.handle(looked(30.0, stopped={1})) == [Send(1, KILL), Send(0, TERM)]
    s.handle(exited(1, -KILL, 30.1))
    s.handle(exited(0, 1, 30.1, note(30.05, secondary=True)))
    verdict = s.verdict()
    assert (verdict.kind, verdict.rank, verdict.exit_code) == ("stopped", 1, 1)


def test_stopped_but_heard_of_is_none() -> None:
    assert stop_for(supervisor(2), 0.0, 100.0, stopped={1}, active={1}) == []


def test_going_on_starts_the_count_again() -> None:
    s = supervisor(2)
    assert stop_for(s, 0.0, 25.0, stopped={1}) == []
    assert s.handle(looked(30.0)) == []
    assert stop_for(s, 35.0, 25.0, stopped={1}) == []


def test_a_launcher_that_slept_does_not_count_its_sleep() -> None:
    s = supervisor(2)
    s.handle(looked(0.0, stopped={1}))
    assert s.handle(looked(1000.0, stopped={1})) == []


def lost(rank: int, at: float) -> Exited:
    return Exited(rank=rank, code=-KILL, now=at, time_ns=int(at * 1e9), lost="host n2 was lost.")


def test_a_lost_host_ends_the_others_and_is_named() -> None:
    s = supervisor(4)
    assert s.handle(lost(2, 1.0)) == [Send(0, TERM), Send(1, TERM), Send(3, TERM)]
    s.handle(lost(3, 1.0))
    for rank in (0, 1):
        s.handle(exited(rank, -TERM, 1.1))
    verdict = s.verdict()
    assert (verdict.kind, verdict.exit_code, verdict.rank) == ("lost", 1, 2)
    assert verdict.lost == "host n2 was lost."


def test_peers_that_miss_a_lost_host_first_are_not_blamed() -> None:
    """Ranks of whole hosts note broken connections before the head knows of the host."""
    s = supervisor(3)
    s.handle(exited(0, 1, 1.3, note(0.9, "RuntimeError: connection closed by peer")))
    s.handle(lost(2, 1.0))
    s.handle(exited(1, -TERM, 1.4))
    assert s.verdict().kind == "lost"


def test_a_host_that_is_lost_while_all_end_is_not_blamed() -> None:
    s = supervisor(3)
    s.handle(exited(0, 1, 1.0, note(0.9)))
    s.handle(lost(2, 2.0))
    s.handle(exited(1, -TERM, 1.1))
    verdict = s.verdict()
    assert (verdict.kind, verdict.rank) == ("failed", 0)


def test_nobody_is_ended_while_a_script_runs() -> None:
    s = supervisor(2)
    for at in range(0, 100, 5):
        assert s.handle(looked(at, exiting=[1])) == []
    s.handle(exited(0, 0, 100.0))
    # Its time begins with the end of the last of the others, and again with what it writes.
    for at in (101, 106, 111, 116):
        assert s.handle(looked(at, exiting=[1])) == []
    assert s.handle(looked(121, exiting=[1], active=[1])) == []
    for at in (122, 127, 132, 137):
        assert s.handle(looked(at, exiting=[1])) == []
    assert s.handle(looked(142, exiting=[1])) == [Send(1, TERM)]
    s.handle(exited(1, -TERM, 142.1))
    verdict = s.verdict()
    assert (verdict.kind, verdict.rank, verdict.exit_code) == ("hung", 1, 1)
    assert (verdict.waited_s, verdict.last) == (20.0, True)


def test_of_all_in_exit_handlers_the_first_is_named() -> None:
    s = supervisor(2)
    s.handle(looked(0, exiting=[1]))
    for at in (5, 10, 15, 20):
        assert s.handle(looked(at, exiting=[0, 1])) == []
    assert s.handle(looked(25, exiting=[0, 1])) == [Send(0, TERM), Send(1, TERM)]
    s.handle(exited(0, -TERM, 25.1))
    s.handle(exited(1, -TERM, 25.1))
    assert (s.verdict().rank, s.verdict().last) == (1, False)


def test_who_left_early_is_blamed_and_not_who_waited() -> None:
    s = supervisor()
    s.handle(exited(1, 0, 1.0))
    s.handle(exited(0, 1, 1.5, note(1.4, "PeerDiedError", secondary=True, culprit=1)))
    s.handle(exited(2, 1, 1.6, note(1.5, "PeerDiedError", secondary=True, culprit=0)))
    verdict = s.verdict()
    assert (verdict.kind, verdict.rank, verdict.witness) == ("left", 1, 0)
    assert verdict.exit_code == 1


def test_who_does_not_come_is_blamed_and_not_who_waited() -> None:
    s = supervisor(2)
    assert s.handle(exited(0, 1, 1.0, note(0.9, "StallError", culprit=1))) == [Send(1, TERM)]
    s.handle(exited(1, -TERM, 1.1))
    verdict = s.verdict()
    assert (verdict.kind, verdict.rank, verdict.witness) == ("missing", 1, 0)


def test_who_failed_is_blamed_though_another_complained_before() -> None:
    s = supervisor(2)
    # Noted on another host, whose clock is behind.
    s.handle(exited(0, 1, 9.0, note(1.0, "StartError: rank 1 ...", culprit=1)))
    s.handle(exited(1, 4, 9.1, note(9.0)))
    assert s.verdict().kind == "failed"
    assert (s.verdict().rank, s.verdict().exit_code) == (1, 4)


def test_of_two_that_complain_of_each_other_the_first_is_blamed() -> None:
    s = supervisor(2)
    s.handle(exited(0, 1, 1.0, note(0.8, "PeerDiedError", secondary=True, culprit=1)))
    s.handle(exited(1, 1, 1.1, note(0.9, "PeerDiedError", secondary=True, culprit=0)))
    assert (s.verdict().kind, s.verdict().rank) == ("failed", 0)


def test_of_all_in_exit_handlers_the_stopped_one_is_named() -> None:
    s = Supervisor(size=2, silence_timeout_s=20.0, exit_timeout_s=20.0)
    for at in (0, 5, 10, 15):
        assert s.handle(looked(at, exiting=[0, 1], stopped=[1])) == []
    assert s.handle(looked(20, exiting=[0, 1], stopped=[1])) == [Send(1, KILL), Send(0, TERM)]
    assert s.verdict().kind == "stopped"
    assert s.verdict().rank == 1
