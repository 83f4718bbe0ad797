"""Elastic runs with real workers, which train nothing: their steps are exchanges."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from farandole.elastic import generation
from farandole.errors import UsageError
from farandole.launch.elastic_options import ElasticOptions
from farandole.launch.launcher import Outcome, launch
from farandole.launch.placement import Slots
from farandole.launch.plan import Plan
from tests.conftest import clean_environ

pytestmark = pytest.mark.ranks

WORKER = """
import json, os, signal, sys, threading
from pathlib import Path
from farandole.elastic import generation
from farandole.engine import context
from farandole.errors import CollectiveError

me = os.environ["FARANDOLE_WORKER"]

def say(**what):
    print(json.dumps({"worker": int(me), **what}), flush=True)

def held():
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd" in line]
    return [len(os.listdir("/proc/self/fd")), threading.active_count(), len(maps)]

def train(script):
    context.init()
    state = {"step": 0}
    while True:
        try:
            place = [generation.number(), context.rank(), context.size()]
            if state.get("place") != place:
                say(place=place, step=state["step"], host=context.known().world.hostname)
            state["place"] = place
            told = [state, generation.hosts_changed() is not None]
            answers = context.current().engine.exchange(json.dumps(told).encode())
            theirs, changed = json.loads(answers[0])
            state = {**theirs, "step": theirs["step"] + 1, "place": place}
            if script(state):
                return
            if changed:
                generation.next_generation()
        except CollectiveError as error:
            say(lost=str(error))
            generation.next_generation()
"""


def run(
    folder: Path, script: str, options: ElasticOptions, *, np: int
) -> tuple[Outcome, list[dict[str, Any]], list[str]]:
    """Run a script of steps; return how it ended, what its workers said, and the launcher."""
    file = folder / "train.py"
    file.write_text(WORKER + script)
    said: list[dict[str, Any]] = []
    remarks: list[str] = []

    def show(stream: str, line: str) -> None:
        if line.startswith("{"):
            said.append(json.loads(line))
        else:
            remarks.append(line)

    plan = Plan(
        argv=(sys.executable, str(file)), num_workers=np, threads=1, tag=False, elastic=options
    )
    return launch(plan, environ=clean_environ(), show=show), said, remarks


def test_workers_die_and_others_take_their_place(tmp_path: Path) -> None:
    script = """
def script(state):
    step = state["step"]
    if step % 3 == 0 and step <= 30:
        if step in (6, 30):
            say(held=held())
        generation.next_generation()
    if step == 35 and me == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    # The others go on by themselves until the replacement is there.
    state["whole"] = state.get("whole", 0) + (step > 35 and context.size() == 3)
    return state["whole"] == 5

train(script)
"""
    options = ElasticOptions(min_np=2, max_np=3)
    outcome, said, remarks = run(tmp_path, script, options, np=3)
    assert outcome.verdict.kind == "done", remarks
    assert outcome.verdict.exit_code == 0
    (lost,) = outcome.verdict.survived
    assert (lost.rank, lost.code) == (1, -9)
    places = {(each["worker"], *each["place"]) for each in said if "place" in each}
    # Eleven generations of the three that began, one of those that were left, one with the new one.
    assert {(0, 11, 0, 3), (1, 11, 1, 3), (2, 11, 2, 3)} < places
    assert {place for place in places if place[1] > 11} == {
        *[(0, 12, 0, 2), (2, 12, 1, 2)],
        *[(0, 13, 0, 3), (2, 13, 1, 3), (3, 13, 2, 3)],
    }
    assert sum("was ended by signal 9" in str(each.get("lost")) for each in said) == 2
    # Nothing more is open after ten generations than after two.
    for worker in (0, 1, 2):
        early, late = [each["held"] for each in said if "held" in each and each["worker"] == worker]
        assert early == late
    assert any("rank 1 failed (SIGKILL" in line for line in remarks)


def test_too_few_are_left(tmp_path: Path) -> None:
    script = """
def script(state):
    if state["step"] == 3 and me == "0":
        raise ValueError("bad loss")

train(script)
"""
    options = ElasticOptions(
        min_np=3,
        max_np=3,
        hosts=(Slots(name="localhost", count=2), Slots(name="127.0.0.1", count=1)),
        blacklist="host",
    )
    outcome, said, remarks = run(tmp_path, script, options, np=3)
    verdict = outcome.verdict
    assert (verdict.kind, verdict.exit_code, verdict.rank) == ("failed", 1, 0)
    assert verdict.failure is not None
    assert "ValueError: bad loss (train.py:" in verdict.failure.text
    assert verdict.reason.startswith("There is room for 1 worker only, but --min-np 3 are needed.")
    assert {each["host"] for each in said if each["worker"] == 2 and "host" in each} == {
        "127.0.0.1"
    }
    assert any("ValueError: bad loss" in line for line in outcome.last_lines), remarks


def test_all_start_again_when_too_few_are_left(tmp_path: Path) -> None:
    script = """
def script(state):
    generation.store([json.dumps(state).encode()])
    if state["step"] == 3 and generation.restarts() == 0 and me in "01":
        raise ValueError("bad loss")
    return state["step"] == 5

kept = generation.stored()
if kept is not None:
    say(kept=json.loads(bytes(kept))["step"])
train(script)
"""
    options = ElasticOptions(min_np=2, max_np=3, max_restarts=1, blacklist="host")
    outcome, said, remarks = run(tmp_path, script, options, np=3)
    assert outcome.verdict.kind == "done", remarks
    assert "bad loss" in outcome.failures[0]
    kept = [each["kept"] for each in said if "kept" in each]
    # Whoever heard of the failure in its third step had not stored that yet.
    assert len(kept) == 3
    assert set(kept) <= {2, 3}
    assert 3 in kept


def test_waiting_for_room_says_for_what_and_ends(tmp_path: Path) -> None:
    discover = tmp_path / "discover.sh"
    discover.write_text("#!/bin/sh\necho localhost:1\n")
    discover.chmod(0o755)
    options = ElasticOptions(min_np=2, max_np=3, discovery_command=(str(discover),), timeout_s=0.3)
    outcome, said, remarks = run(tmp_path, "", options, np=3)
    assert said == []
    assert "waiting for room for 3 workers (-np): found localhost:1 so far." in remarks[0]
    assert (outcome.verdict.kind, outcome.verdict.exit_code) == ("given up", 1)
    assert outcome.verdict.reason == (
        "After 0.3 s (--elastic-timeout) there was room for 1 worker, but -np 3 are needed."
    )


def test_a_worker_that_is_replaced_again_and_again_leaves_nothing(tmp_path: Path) -> None:
    script = """
def script(state):
    if len(sys.argv) == 1 and context.size() == 2 and context.rank() == 1:
        # What it has started itself is to end with it, and holds its output open.
        subprocess.Popen(["sleep", "600"])
        os.kill(os.getpid(), signal.SIGKILL)
    if generation.number() >= 12:
        return True
    if context.rank() == 0 and state["step"] % 50 == 0:
        launcher = os.environ["FARANDOLE_LAUNCHER_PID"]
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        say(launcher=[len(os.listdir(f"/proc/{launcher}/fd")), len(children)])

import subprocess
train(script)
"""
    options = ElasticOptions(min_np=1, max_np=2)
    with pytest.MonkeyPatch.context() as patch:
        # A replacement that fails at once is replaced at once.
        patch.setattr("farandole.launch.membership._AT_ONCE_S", 0.0)
        outcome, said, remarks = run(tmp_path, script, options, np=2)
    assert outcome.verdict.kind == "done", remarks
    assert len(outcome.verdict.survived) >= 5
    held = [each["launcher"] for each in said if "launcher" in each]
    assert max(held) <= [held[0][0] + 10, held[0][1] + 2]


def test_groups_of_torchs_own_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch.distributed", made)
    monkeypatch.setattr(generation, "membership", lambda: made)
    words = r"init_process_group\(\).*farandole run --max-restarts N, without --min-np"
    with pytest.raises(UsageError, match=words):
        generation.next_generation()
