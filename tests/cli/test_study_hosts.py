from __future__ import annotations

import argparse

import pytest

from farandole.cli.study_hosts import again


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
