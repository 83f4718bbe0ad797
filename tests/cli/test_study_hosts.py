from __future__ import annotations

import argparse

import pytest

from farandole.cli.study_hosts import again, check_resumed
from farandole.errors import UsageError
from farandole.study.spec import Room, Spec


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, ""),
        ({"hosts": "n1:2,n2:2"}, " -H n1:2,n2:2"),
        ({"hostfile": "my hosts", "rsh": "ssh -p 22"}, " --hostfile 'my hosts' --rsh 'ssh -p 22'"),
    ],
)
def test_hosts_are_named_again(flags: dict[str, str], words: str) -> None:
    none = {"hosts": None, "hostfile": None, "rsh": None}
    assert again(argparse.Namespace(**none | flags)) == words


def test_a_study_of_several_hosts_is_not_gone_on_with_on_one() -> None:
    spec = Spec(command=("x",), room=Room(cores=2, physical=2, hosts=2), workers=(2,))
    with pytest.raises(UsageError, match=r"begun on 2 hosts, and here are 1.*name hosts with -H"):
        check_resumed(spec, None)
