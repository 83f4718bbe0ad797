"""Random faults in elastic runs of a tiny model: its weights and samples are right at the end.

By hand: FARANDOLE_SOAK_FAULTS=500 pytest -m soak tests/launch/test_elastic_soak.py
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from farandole.launch import membership, restarts
from farandole.launch.elastic_options import ElasticOptions
from farandole.launch.launcher import Outcome, launch
from farandole.launch.plan import Plan
from tests.conftest import clean_environ, eventually

pytestmark = [pytest.mark.ranks, pytest.mark.soak]

FAULTS = int(os.environ.get("FARANDOLE_SOAK_FAULTS", "40"))
SEED = int(os.environ.get("FARANDOLE_SOAK_SEED", "1"))
SAMPLES = 37
# Sums of these are exact in whatever order: a sample left out or trained twice shows.
WORKER = """
import json, os, signal, sys, time
from pathlib import Path
import numpy as np
from farandole.elastic import generation
from farandole.engine import arrays, context
from farandole.errors import CollectiveError, NotNeededError
from farandole.transport.reduction import SUM

folder, samples = Path(sys.argv[1]), int(sys.argv[2])
signal.signal(signal.SIGUSR2, lambda *_: exec('raise ValueError("injected")'))
(folder / "pids" / str(os.getpid())).touch()

high = folder / "high"

def exchange(value):
    return json.loads(context.current().engine.exchange(json.dumps(value).encode())[0])

def commit(changed):
    saved.update(json.loads(json.dumps(state)))
    generation.store([json.dumps(saved).encode()])
    if context.rank() == 0:
        new = high.with_name(f"high.{os.getpid()}")
        new.write_text(str(saved["step"]))
        new.replace(high)
    if changed:
        raise InterruptedError

def train():
    while True:
        rest = [index for index in range(samples) if index not in state["done"]]
        mine = rest[context.rank()] if context.rank() < len(rest) else None
        gradient = np.zeros(samples)
        if mine is not None:
            gradient[mine] = (mine + 1) / 16
        gradient = arrays.allreduce(gradient, "gradient", SUM)
        state["weights"] = (np.array(state["weights"]) + gradient).tolist()
        state["done"] += rest[: context.size()]
        if len(state["done"]) == samples:
            state["epoch"] += 1
            state["done"] = []
        state["step"] += 1
        finish, changed = exchange(
            [(folder / "finish").exists(), generation.hosts_changed() is not None]
        )
        if finish and not state["done"]:
            return
        if state["step"] % 3 == 0 or changed:
            commit(changed)

state = {"epoch": 0, "step": 0, "done": [], "weights": [0.0] * samples}
kept = generation.stored()
if kept is not None:
    state = json.loads(bytes(kept))
saved = json.loads(json.dumps(state))
context.init()
while True:
    try:
        # Whoever has got furthest; after a restart, all have something.
        states = [json.loads(each) for each in context.current().engine.exchange(
            json.dumps(state if generation.restarts() else state).encode()
        )]
        state = max(states, key=lambda each: each["step"]) if first else states[0]
        first = False
        # A commit may not have come to all that take part in it.
        assert state["step"] >= int(high.read_text() if high.exists() else 0) - 3, "begun anew"
        commit(False)
        generation.note_state()
        train()
        break
    except CollectiveError:
        state = json.loads(json.dumps(saved))
    except InterruptedError:
        pass
    try:
        generation.next_generation()
    except NotNeededError:
        sys.exit(0)
(folder / f"end-{os.getpid()}").write_text(json.dumps(state))
""".replace(
    "context.init()\nwhile", "context.init()\nfirst = generation.number() == 1\nwhile"
).replace("state if generation.restarts() else state", "state")
KINDS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGUSR2, signal.SIGSTOP)


class Faults:
    """A thread that does harm to workers, again and again."""

    def __init__(self, folder: Path, chance: random.Random, count: int) -> None:
        self._folder, self._chance, self._left = folder, chance, count
        self.done = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while self.done < self._left and not self._stop.is_set():
            self._stop.wait(self._chance.choice((0.01, 0.1, 0.5, 1.0)) * self._chance.random())
            pids = [path for path in (self._folder / "pids").iterdir() if _runs(int(path.name))]
            harmed = self._chance.sample(pids, min(len(pids), self._chance.choice((1, 1, 1, 2))))
            for path in harmed:
                signum = self._chance.choice(KINDS)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(path.name), signum)
                    self.done += 1
        (self._folder / "finish").touch()

    def close(self) -> None:
        """Harm nobody any more."""
        self._stop.set()
        self._thread.join()


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return stat[0] not in "ZT" and int(stat[1]) == os.getpid()


def run(
    folder: Path, options: ElasticOptions, *, np: int, seed: int, count: int
) -> tuple[Outcome, int, list[str]]:
    """Train under faults; return how it ended, how many faults there were, and what was said."""
    (folder / "pids").mkdir()
    (folder / "train.py").write_text(WORKER)
    said: list[str] = []
    plan = Plan(
        argv=(sys.executable, str(folder / "train.py"), str(folder), str(SAMPLES)),
        num_workers=np,
        threads=1,
        silence_timeout_s=1.0,
        elastic=options,
    )
    # A run that has lost its state would begin anew for ever.
    faults = Faults(folder, random.Random(seed), count)
    try:
        outcome = launch(plan, environ=clean_environ(), show=lambda _, line: said.append(line))
    finally:
        faults.close()
    return outcome, faults.done, said


def check_weights(folder: Path, size: int) -> None:
    """Look at what the workers had at the end."""
    ends: list[dict[str, Any]] = [json.loads(end.read_text()) for end in folder.glob("end-*")]
    assert len(ends) == size
    for end in ends:
        assert end == ends[0]
    expected = [end["epoch"] * (index + 1) / 16 for index in range(SAMPLES)]
    assert ends[0]["weights"] == expected
    assert ends[0]["done"] == []


def children() -> int:
    return len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.parametrize(
    ("np", "least"), [(2, 1), (3, 1), (4, 2), (3, 3)], ids=lambda value: str(value)
)
def test_random_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, np: int, least: int
) -> None:
    # Faults come faster than in life.
    monkeypatch.setattr(membership, "_AT_ONCE_S", 0.0)
    monkeypatch.setattr(membership, "_FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(restarts, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(restarts, "_LONGEST_PAUSE_S", 0.1)
    held = len(list(Path("/proc/self/fd").iterdir())), children()
    options = ElasticOptions(
        min_np=least, max_np=np, cooldown_range_s=(0.05, 0.2), timeout_s=30.0, max_restarts=1000
    )
    began = time.monotonic()
    outcome, count, said = run(tmp_path, options, np=np, seed=SEED, count=FAULTS)
    print(f"{count} faults, {len(outcome.failures)} restarts, {time.monotonic() - began:.0f} s")
    for failure in outcome.failures:
        print("    ", *failure.replace("farandole: ", "").splitlines()[:2])
    assert outcome.verdict.kind == "done", said[-40:]
    check_weights(tmp_path, np if least == np else len(outcome.workers))
    eventually(lambda: (len(list(Path("/proc/self/fd").iterdir())), children()) <= held)
