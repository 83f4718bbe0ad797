"""Random deaths across hosts. FARANDOLE_CHAOS_RUNS and _SEED choose how many, and which."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from farandole.testing.chaos import PROMISE_S, Ending, die_once, random_death
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
