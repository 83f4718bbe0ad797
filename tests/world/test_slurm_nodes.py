from __future__ import annotations

import pytest

from farandole.errors import StartError
from farandole.world.slurm import network_name

# A line of `scontrol show node --oneliner`, shortened.
LINE = "NodeName={} Arch=x86_64 CPUTot=4 NodeAddr={} NodeHostName=box Version=22.05.8 State=IDLE"
UNKNOWN = "no-such-node.invalid"


def never(node: str) -> str:
    raise AssertionError(f"SLURM was asked for {node}")


def test_name_that_the_network_knows_is_kept() -> None:
    assert network_name("localhost", ask=never) == "localhost"


def test_slurm_is_asked_for_the_others() -> None:
    assert network_name(UNKNOWN, ask=lambda node: LINE.format(node, "127.0.0.1")) == "127.0.0.1"


@pytest.mark.parametrize("answer", ["", LINE.format("n1", UNKNOWN)])
def test_node_that_nobody_knows_is_named(answer: str) -> None:
    with pytest.raises(StartError, match=f"{UNKNOWN}.*MASTER_ADDR"):
        network_name(UNKNOWN, ask=lambda node: answer)
