"""The process that a Ray actor holds; tests/test_ray.py has real actors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farandole.launch.ray_agents import AgentActor

ECHO = (
    "import os, sys; greeting = sys.stdin.readline(); "
    "print(greeting.strip(), sys.argv[1:], os.environ.get('CUDA_VISIBLE_DEVICES')); "
    "sys.exit(3)"
)


TELL_FOLDER = "import os; print(os.environ['FARANDOLE_CALL_FOLDER'])"


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make agents as a Ray actor does; what they hold is ended."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    made: list[AgentActor] = []

    def make(code: str, *, call: bytes | None = None, gpus: bool) -> AgentActor:
        argv = ["another-python", "-c", code, "--host", "1"]
        made.append(AgentActor(argv, b"hello\n", call, gpus=gpus))
        return made[-1]

    yield make
    for agent in made:
        agent.end()
        agent.answers()


@pytest.mark.parametrize(("gpus", "devices"), [(False, ""), (True, "None")])
def test_an_agent_is_greeted_by_its_standard_input(carried: Any, gpus: bool, devices: str) -> None:
    """Ray hides GPUs from its actors: kept where none are reserved."""
    said = f"hello ['--host', '1'] {devices}".rstrip()
    assert carried(ECHO, gpus=gpus).wait() == (3, said)


def test_an_agent_that_does_not_go_is_ended(carried: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farandole.launch.ray_agents._END_S", 0.02)
    agent = carried("import signal; signal.pause()", gpus=False)
    agent.end()
    assert agent.wait()[0] < 0


def test_workers_answers_are_read_from_the_hosts_folder(
    carried: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    agent = carried(TELL_FOLDER, call=b"a call", gpus=False)
    folder = Path(agent.wait()[1])
    assert folder.parent == tmp_path
    assert (folder / "call").read_bytes() == b"a call"
    (folder / "answer-4").write_bytes(b"four")
    assert agent.answers() == {4: b"four"}
    assert not folder.exists()
