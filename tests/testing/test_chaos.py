"""Random faults, across hosts and on one. FARANDOLE_CHAOS_RUNS and _SEED choose how many and which.

Each run on one host has a seed of its own, which is printed: FARANDOLE_CHAOS_RUNS=1 with it repeats
that run. FARANDOLE_CHAOS_TORCH=1 has all ranks import torch, 0 none; unset, one run of three.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from farandole.testing.chaos import (
    PROMISE_S,
    Ending,
    Fault,
    FaultEnding,
    Moment,
    die_once,
    fail_once,
    random_death,
    random_fault,
)
from farandole.testing.faults import Mode
from farandole.testing.hosts import NamespaceHosts
from farandole.testing.shaped import why_not

RUNS = int(os.environ.get("FARANDOLE_CHAOS_RUNS", "100"))
SEED = int(os.environ.get("FARANDOLE_CHAOS_SEED", "0"))


@pytest.mark.soak
@pytest.mark.timeout(RUNS * 180)
@pytest.mark.skipif(bool(why_not()), reason=f"namespaces as hosts: {why_not()}")
def test_every_death_ends_everything_in_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(SEED)
    endings: list[Ending] = []
    with NamespaceHosts(2, tmp_path) as hosts:
        for number in range(RUNS):
            folder = tmp_path / f"run{number}"
            folder.mkdir()
            ending = die_once(hosts, random_death(chance, hosts=2, workers=2), folder)
            endings.append(ending)
            with capsys.disabled():
                print(f"\n{number}: {described(ending)}", end="", flush=True)
    unclean = [described(ending) for ending in endings if not ending.clean]
    unnamed = [described(ending) for ending in endings if not ending.named]
    assert not unclean
    assert len(unnamed) <= RUNS // 100, unnamed


def described(ending: Ending) -> str:
    death = ending.death
    who = f"rank {death.rank}" if death.kind == "rank" else f"{death.kind} {death.host}"
    text = (
        f"{who} died while {'training' if death.training else 'starting'}: head ended after "
        f"{ending.head_s:.1f} s, all after {ending.all_s:.1f} s, "
        f"{'named' if ending.named else 'NOT NAMED'}, {'clean' if ending.clean else 'NOT CLEAN'}"
    )
    if ending.named and ending.clean:
        return text
    return f"{text}, left {ending.left}, promise {PROMISE_S:g} s\n{ending.said}"


@pytest.mark.soak
@pytest.mark.timeout(RUNS * 200)
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux")
def test_every_fault_ends_the_run_in_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endings = []
    for seed in range(SEED, SEED + RUNS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        ending = fail_once(seeded(seed), folder)
        endings.append((seed, ending))
        with capsys.disabled():
            print(f"\n{seed}: {fault_described(ending)}", end="", flush=True)
    unclean = [f"{seed}: {fault_described(e)}" for seed, e in endings if not e.clean]
    unnamed = [f"{seed}: {fault_described(e)}" for seed, e in endings if not e.named]
    assert not unclean
    assert len(unnamed) <= RUNS // 100, unnamed


@pytest.mark.ranks
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux")
@pytest.mark.parametrize(
    ("mode", "moment"),
    [
        ("leave", "before init"),
        ("leave", "in a collective"),
        ("stop", "in init"),
        ("memory", "in a collective"),
        ("hang", "in a collective"),
        ("hang", "in atexit"),
        ("abort", "in atexit"),
    ],
)
def test_a_fault_is_named(mode: Mode, moment: Moment, tmp_path: Path) -> None:
    fault = Fault(mode=mode, moment=moment, rank=1, size=3, steps=3, torch=False)
    ending = fail_once(fault, tmp_path)
    assert ending.named, ending.said
    assert (ending.exit_code, ending.left) == (fault.exit_code, ()), ending.said


def seeded(seed: int) -> Fault:
    with_torch = os.environ.get("FARANDOLE_CHAOS_TORCH")
    return random_fault(
        random.Random(seed), torch=seed % 3 == 0 if with_torch is None else with_torch == "1"
    )


def fault_described(ending: FaultEnding) -> str:
    fault = ending.fault
    text = (
        f"{fault.mode} {fault.moment} of rank {fault.rank}/{fault.size}"
        f"{' with torch' if fault.torch else ''}: ended after {ending.end_s:.1f} s, code "
        f"{ending.exit_code}"
    )
    if ending.clean and ending.named:
        return text
    return f"{text} NOT AS IT SHOULD, named {ending.named}, left {ending.left}:\n{ending.said}"
