"""--max-restarts: all workers start again after a failure, with what they had committed."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.errors import StartError
from farandole.launch import restarts
from farandole.launch.elastic_options import ElasticOptions
from farandole.launch.launcher import Outcome
from farandole.launch.plan import Plan
from farandole.launch.restarts import JobStates, with_restarts
from farandole.launch.supervisor import Verdict
from farandole.world.board import Failure
from farandole.world.stored_state import StoredState
from tests.conftest import clean_environ, cli_argv

PLAN = Plan(
    argv=("x",),
    num_workers=2,
    threads=1,
    elastic=ElasticOptions(min_np=2, max_np=2, in_place=False, max_restarts=2),
)
DONE = Outcome(verdict=Verdict(kind="done", exit_code=0))


def failed(text: str) -> Outcome:
    failure = Failure(time_ns=1, text=text, secondary=False)
    return Outcome(verdict=Verdict(kind="failed", exit_code=1, rank=1, code=1, failure=failure))


class Rounds:
    """Ends rounds as tests say."""

    def __init__(self, *ends: Outcome | Exception) -> None:
        self.ends = list(ends)
        self.plans: list[Plan] = []
        self.shown: list[str] = []

    def __call__(self, plan: Plan) -> Outcome:
        self.plans.append(plan)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    def run(self, plan: Plan = PLAN) -> Outcome:
        return with_restarts(plan, self, show=lambda _, line: self.shown.append(line))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    def pause(pause_s: float) -> int:
        found.append(pause_s)
        return 0

    monkeypatch.setattr(restarts, "_pause", pause)
    return found


def test_until_it_ends_well(pauses: list[float]) -> None:
    rounds = Rounds(failed("ValueError: one"), failed("ValueError: two"), DONE)
    outcome = rounds.run()
    assert outcome.verdict.kind == "done"
    assert [plan.restart for plan in rounds.plans] == [0, 1, 2]
    assert [text.partition("failed first: ")[2][:15] for text in outcome.failures] == [
        "ValueError: one",
        "ValueError: two",
    ]
    assert pauses == [0.5, 1.0]
    assert "restart 2 of 2 (--max-restarts) in 1 s." in rounds.shown[1]


def test_no_more_than_that(pauses: list[float]) -> None:
    rounds = Rounds(*[failed(f"ValueError: {number}") for number in range(3)])
    outcome = rounds.run()
    assert outcome.verdict.failure is not None
    assert outcome.verdict.failure.text == "ValueError: 2"
    assert len(outcome.failures) == 2
    assert len(Rounds(failed("x")).run(replace(PLAN, elastic=None)).failures) == 0


def test_what_ends_it_for_good(pauses: list[float]) -> None:
    interrupted = Outcome(verdict=Verdict(kind="interrupted", exit_code=130))
    assert Rounds(interrupted).run().verdict.exit_code == 130
    assert Rounds(replace(failed("x"), asked_to_stop=True)).run().failures == ()
    assert pauses == []


def test_a_host_that_is_not_there_yet(pauses: list[float]) -> None:
    with pytest.raises(StartError):
        Rounds(StartError("no such host")).run()
    rounds = Rounds(failed("x"), StartError("host n2 does not answer"), DONE)
    assert rounds.run().failures[1] == "farandole: host n2 does not answer"


def test_states_go_to_the_worker_of_the_same_rank() -> None:
    states = JobStates()
    for worker in range(3):
        stored = StoredState(states.of(worker, worker, first=True).paths)
        stored.write([b"worker %d" % worker])
        stored.close()
    # Worker 0 is lost, and worker 3 joins as the last rank.
    states.of(3, 2, first=False)
    states.keep_only([1, 2, 3])
    before = len(list(Path("/proc/self/fd").iterdir()))
    states.next_round([1, 2, 3])
    for rank, expected in ((0, b"worker 1"), (1, b"worker 2"), (2, None)):
        stored = StoredState(states.of(rank, rank, first=True).paths)
        found = stored.read()
        assert (None if found is None else bytes(found)) == expected
        stored.close()
    # A round that was over before it began changes nothing.
    states.next_round([0, 1, 2])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    states.close()


def test_a_state_outlives_a_worker_that_dies_before_training_begins_again() -> None:
    states = JobStates()
    stored = StoredState(states.of(0, 0, first=True).paths)
    stored.write([b"state"])
    stored.close()
    states.next_round([0])
    states.of(0, 0, first=True, running=[])
    stored = StoredState(states.of(1, 0, first=True, running=[]).paths)
    assert stored.read() == b"state"
    stored.close()
    # This round ends before anybody trained.
    states.next_round([])
    stored = StoredState(states.of(0, 0, first=True, running=[]).paths)
    assert stored.read() == b"state"
    stored.close()
    states.close()


WORKER = """
import os, sys
from farandole.elastic import generation
from farandole.engine import context
rank, restart = int(os.environ["RANK"]), generation.restarts()
assert os.environ["TORCHELASTIC_RESTART_COUNT"] == str(restart)
stored = generation.stored()
print(f"{restart}:", None if stored is None else bytes(stored).decode(), flush=True)
context.init()
generation.store([b"state of %d " % rank, b"in round %d" % restart])
context.current().engine.exchange(b"")
if restart == 1 and rank == 0:
    generation.store([b"newer"])
if restart < 2 and rank == restart:
    raise ValueError(f"round {restart}")
context.current().engine.exchange(b"")
context.current().engine.exchange(b"")
"""


@pytest.mark.ranks
def test_a_script_that_fails_twice(script: Path) -> None:
    script.write_text(WORKER)
    flags = ["-np", "2", "--max-restarts", "3", "--output-dir", str(script.parent / "logs")]
    done = subprocess.run(
        [*cli_argv(), "run", *flags, str(script)],
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = (script.parent / "logs/rank.0/stdout").read_text().splitlines()
    assert said == ["0: None", "1: state of 0 in round 0", "2: newer"]
    said = (script.parent / "logs/rank.1/stdout").read_text().splitlines()
    assert said[1:] == ["1: state of 1 in round 0", "2: state of 1 in round 1"]
    *_, last = done.stderr.partition("farandole: all workers were started again 2 times:")
    first, second = last.strip().splitlines()
    assert first.startswith("1. rank 0 failed first: ValueError: round 0 (train.py:15)")
    assert second.strip().startswith("2. rank 1 failed first: ValueError: round 1")
