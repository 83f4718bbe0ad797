"""Who is in the next generation: decisions, without any process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from farandole.launch.discovery import Hosts
from farandole.launch.elastic_options import ElasticOptions
from farandole.launch.membership import (
    Break,
    Change,
    Decision,
    Dismiss,
    Form,
    GiveUp,
    Kill,
    Membership,
    Start,
)
from farandole.launch.placement import Slots

ONE, TWO = Slots(name="localhost", count=2), Slots(name="127.0.0.1", count=2)
SLOT = ElasticOptions(min_np=1, max_np=4)
HOST = replace(SLOT, min_np=2, blacklist="host")


@dataclass
class Run:
    """A run whose workers do what tests say."""

    options: ElasticOptions = SLOT
    num_workers: int = 2
    hosts: tuple[Slots, ...] = (ONE,)
    discovers: bool = False
    now_s: float = 100.0
    seen: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.membership = Membership(
            options=self.options,
            num_workers=self.num_workers,
            hosts=Hosts().found(self.hosts),
            discovers=self.discovers,
            chance=lambda: 0.0,
            max_started=64,
        )

    def decide(self, wait_s: float = 0.0) -> list[Decision]:
        self.now_s += wait_s
        return self._seen(self.membership.decide(self.now_s))

    def come(self, *workers: int) -> list[Decision]:
        """Let workers ask for the next generation."""
        for worker in workers:
            in_it = worker in self.members
            self.membership.left(worker, self.membership.generation if in_it else 0)
        return self.decide()

    def end(self, worker: int, *, failed: bool = True) -> tuple[bool, list[Decision]]:
        borne, decisions = self.membership.ended(worker, failed=failed, now_s=self.now_s)
        return borne, [*self._seen(decisions), *self.decide()]

    @property
    def members(self) -> tuple[int, ...]:
        formed = [each for each in self.seen if isinstance(each, Form)]
        return formed[-1].assignment.workers if formed else ()

    def _seen(self, decisions: list[Decision]) -> list[Decision]:
        self.seen += decisions
        return decisions


def trained(options: ElasticOptions = SLOT, **changes: object) -> Run:
    """Return a run that trains for longer than what counts as failing at once."""
    run = Run(options=options, **changes)  # type: ignore[arg-type]
    started = [each.worker for each in run.decide() if isinstance(each, Start)]
    run.come(*started)
    run.decide(60.0)
    return run


def kinds(decisions: list[Decision]) -> list[str]:
    return [type(each).__name__ for each in decisions]


def test_training_begins_when_all_have_come() -> None:
    run = Run()
    first, second = run.decide()
    assert isinstance(first, Start)
    assert isinstance(second, Start)
    assert [first.assignment.workers.index(each.worker) for each in (first, second)] == [0, 1]
    assert run.come(0) == []
    (form,) = run.come(1)
    assert isinstance(form, Form)
    assert form.assignment.workers == (0, 1)
    assert form.assignment.hosts == (("localhost", 2),)


def test_survivors_go_on_and_the_replacement_joins_when_it_has_come() -> None:
    run = trained()
    borne, decisions = run.end(1)
    assert borne
    assert kinds(decisions) == ["Break", "Start"]
    (form,) = run.come(0)
    assert isinstance(form, Form)
    assert form.assignment.workers == (0,)
    assert run.come(2) == [Change(added=True, removed=False)]
    assert run.decide() == []
    (form,) = run.come(0)
    assert isinstance(form, Form)
    assert form.assignment.workers == (0, 2)


def test_survivors_wait_for_the_replacement_where_there_are_too_few() -> None:
    run = trained(replace(SLOT, min_np=2))
    run.end(0)
    assert run.come(1) == []
    (form,) = run.come(2)
    assert isinstance(form, Form)
    # The survivor has the state, and so the lowest rank.
    assert form.assignment.workers == (1, 2)


def test_a_generation_that_breaks_before_anybody_trained() -> None:
    run = trained()
    run.end(1)
    run.come(0, 2)
    assert run.members == (0, 2)
    borne, decisions = run.end(2)
    assert borne
    assert Break(number=2) in decisions
    run.come(0)
    assert run.members == (0,)


def test_a_host_with_a_failure_is_excluded_as_in_horovod() -> None:
    run = trained(HOST, hosts=(ONE, TWO))
    assert run.members == (0, 1, 2, 3)
    _, decisions = run.end(0)
    assert kinds(decisions) == ["Break"]
    assert run.come(1) == []
    assert run.come(2) == []
    form, dismiss = run.come(3)
    assert isinstance(form, Form)
    assert form.assignment.workers == (2, 3)
    assert dismiss == Dismiss(worker=1, at_once=False)


def test_all_hosts_excluded() -> None:
    run = trained(HOST, hosts=(ONE, TWO), discovers=True)
    run.end(0)
    _, decisions = run.end(2)
    assert kinds(decisions) == ["GiveUp"]


def test_a_host_comes_back_after_its_time() -> None:
    run = trained(replace(HOST, cooldown_range_s=(1.0, 2.0)), hosts=(ONE, TWO))
    run.end(3)
    run.come(0, 1)
    assert run.members == (0, 1)
    assert run.end(2)[1] == []
    decisions = run.decide(2.0)
    assert kinds(decisions) == ["Start", "Start", "Change"]
    starts = [each for each in decisions if isinstance(each, Start)]
    assert [each.assignment.workers.index(each.worker) for each in starts] == [2, 3]


def test_hosts_come_and_go() -> None:
    run = trained(HOST, discovers=True)
    run.membership.found((ONE, TWO))
    assert kinds(run.decide()) == ["Start", "Start", "Change"]
    assert run.come(0, 1) == []
    run.come(2, 3)
    assert run.members == (0, 1, 2, 3)
    run.membership.found((TWO,))
    assert run.decide() == [Change(added=False, removed=True)]
    run.come(0, 1, 2, 3)
    assert run.members == (2, 3)


def test_those_that_leave_hand_their_state_on() -> None:
    run = trained(HOST, discovers=True)
    run.membership.found((TWO,))
    run.decide()
    run.come(0, 1, 2, 3)
    assert run.members == (0, 1, 2, 3)
    assert run.decide() == [Change(added=False, removed=True)]
    run.come(0, 1, 2, 3)
    assert run.members == (2, 3)


def test_no_host_at_all_for_a_moment_changes_nothing() -> None:
    run = trained(HOST, discovers=True)
    run.membership.found(())
    assert run.decide() == []
    run.membership.found((ONE,))
    assert run.decide() == []
    assert run.membership.generation == 1


def test_too_few_workers() -> None:
    run = trained(replace(HOST, timeout_s=2.0), discovers=True, num_workers=2)
    run.end(0)
    assert kinds(run.decide(3.0)) == []  # given up before: no host is left
    assert any(isinstance(each, GiveUp) for each in run.seen)
    waits = trained(
        replace(HOST, min_np=4, timeout_s=2.0), hosts=(ONE, TWO), discovers=True, num_workers=4
    )
    waits.end(0)
    assert waits.come(1, 2, 3) == []
    (over,) = waits.decide(2.5)
    assert isinstance(over, GiveUp)
    assert "--min-np 4" in over.reason
    assert "2 s (--elastic-timeout)" in over.reason


def test_workers_that_still_import_may_take_longer_than_hosts_are_waited_for() -> None:
    run = trained(replace(SLOT, min_np=2, timeout_s=2.0))
    run.membership.start_timeout_s = 30.0
    run.end(1)
    assert run.come(0) == []
    assert run.decide(20.0) == []
    (over,) = run.decide(15.0)
    assert isinstance(over, GiveUp)
    assert "After 30 s 1 of 2 workers had called hvd.init()" in over.reason


def test_no_room_and_no_discovery_ends_at_once() -> None:
    run = trained(replace(HOST, min_np=4), hosts=(ONE, TWO), num_workers=4)
    _, decisions = run.end(0)
    assert kinds(decisions) == ["Break", "GiveUp"]


def test_the_reset_limit() -> None:
    run = trained(replace(SLOT, reset_limit=1))
    run.end(1)
    run.come(0)
    assert run.membership.generation == 2
    run.come(2)
    (over,) = run.come(0)
    assert isinstance(over, GiveUp)
    assert "exceed the limit: 1 (--reset-limit)" in over.reason


def test_who_does_not_come_is_killed_when_time_is_up() -> None:
    run = trained(replace(SLOT, timeout_s=5.0), hosts=(replace(ONE, count=3),), num_workers=3)
    run.end(2)
    assert run.come(0) == []
    assert run.decide(6.0) == [Kill(worker=1)]
    run.end(1)
    assert run.members == (0,)


def test_a_slot_that_fails_at_once_waits_and_then_its_host_is_excluded() -> None:
    run = trained()
    run.end(1)
    run.come(0)
    borne, decisions = run.end(2)
    assert borne
    # Its predecessor has failed, too: nothing is started on this host any more.
    assert decisions == []
    assert run.decide(600.0) == []
    assert run.membership.hosts.is_excluded("localhost", run.now_s)
    assert run.membership.generation == 2


def test_the_end_of_a_script_ends_all() -> None:
    run = trained()
    run.end(1)
    run.come(0)
    _, decisions = run.end(0, failed=False)
    # The replacement still imports, and cannot hear of it.
    assert decisions == [Dismiss(worker=2, at_once=True)]
    assert run.membership.over


def test_the_end_of_one_script_while_others_train() -> None:
    run = trained()
    run.end(0, failed=False)
    (over,) = run.come(1)
    assert isinstance(over, GiveUp)
    assert "Rank 0 came to the end of its script while rank 1" in over.reason


def test_a_script_that_fails_on_all_hosts_before_training_began() -> None:
    run = Run(options=HOST, hosts=(ONE, TWO), discovers=True)
    run.decide()
    run.end(0)
    run.end(2)
    run.end(1)
    _, (over,) = run.end(3)
    assert isinstance(over, GiveUp)
    assert "Excluded after failures: 127.0.0.1, localhost." in over.reason


def test_no_state_is_left() -> None:
    run = trained()
    run.end(0)
    _, decisions = run.end(1)
    assert GiveUp(reason="No worker is left that has the state of training.") in decisions


def test_those_that_got_no_state_yet_do_not_begin_anew() -> None:
    run = trained()
    run.membership.has_state(0)
    run.end(1)
    run.come(0, 2)
    assert run.members == (0, 2)
    run.end(0)
    assert GiveUp(reason="No worker is left that has the state of training.") in run.seen


def test_after_a_restart_only_those_have_state_that_said_so() -> None:
    run = Run()
    run.membership.restarted = True
    run.decide()
    run.come(0, 1)
    assert run.decide(60.0) == []
    run.end(1)
    assert GiveUp(reason="No worker is left that has the state of training.") in run.seen


def test_whoever_has_state_comes_before_those_that_joined_earlier() -> None:
    run = trained(hosts=(replace(ONE, count=3),), num_workers=3)
    run.membership.has_state(0)
    run.end(2)
    run.come(0, 1)
    run.come(3)
    run.come(0, 1)
    run.end(1)
    run.come(0, 3)
    run.come(4)
    run.come(0, 3)
    assert run.members == (0, 3, 4)
    run.membership.has_state(4)
    run.end(0)
    run.come(3, 4)
    assert run.members == (4, 3)


def test_a_worker_that_fails_before_training_began() -> None:
    run = Run()
    run.decide()
    borne, decisions = run.end(0)
    assert borne
    assert decisions == []
    assert kinds(run.decide(2.0)) == ["Start"]
    run.come(1, 2)
    assert run.members == (1, 2)
