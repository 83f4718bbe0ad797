"""A plain script's own Gloo group under `farandole run`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import run_cli

pytestmark = pytest.mark.ranks

_SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group({backend})
x = torch.ones(3)
dist.all_reduce(x)
print(dist.get_backend(), x.tolist())
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("transport", "backend", "answered_by", "hint"),
    [
        ("shm", '"gloo"', "farandole", False),
        ("shm", "", "farandole", False),
        ("auto", '"gloo"', "gloo", True),
        ("gloo", '"gloo"', "gloo", False),
    ],
)
def test_who_answers(
    tmp_path: Path, transport: str, backend: str, answered_by: str, hint: bool
) -> None:
    script = tmp_path / "plain.py"
    script.write_text(_SCRIPT.format(backend=backend))
    ended = run_cli("run", "-np", "2", "--transport", transport, script)
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [
        f"[{rank}]<stdout>:{answered_by} [2.0, 2.0, 2.0]" for rank in range(2)
    ]
    assert ("--transport shm" in ended.stderr) == hint
