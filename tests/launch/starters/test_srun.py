from __future__ import annotations

import os
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.launch.starters import SrunStarter, explain_srun, step_argv
from tests.conftest import eventually


def test_one_task_on_each_host() -> None:
    argv = step_argv(["n1", "n7"])
    assert argv[0] == "srun"
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=n1,n7"} <= set(argv)


def fake_srun(folder: Path, body: str) -> dict[str, str]:
    """A program of that name, which does what srun does with one node."""
    program = folder / "srun"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_greeting_and_environment_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = fake_srun(tmp_path, f"cat > {tmp_path}/greeting; env > {tmp_path}/environ")
    layout = {"SLURM_NTASKS_PER_NODE": "4", "SLURM_CPUS_PER_TASK": "2", "SRUN_CPUS_PER_TASK": "2"}
    monkeypatch.setenv("PATH", environ["PATH"])
    starter = SrunStarter(environ={**environ, **layout, "SLURM_JOB_ID": "7"})
    (agent,) = starter.start(["n1"], ["agent"], b'{"secret": 1}\n')
    try:
        assert eventually(lambda: agent.poll() is not None)
        assert agent.poll() == ""
        assert agent.hosts == ("n1",)
    finally:
        agent.close()
    assert (tmp_path / "greeting").read_bytes() == b'{"secret": 1}\n'
    seen = (tmp_path / "environ").read_text()
    assert "SLURM_JOB_ID=7\n" in seen
    assert not any(name in seen for name in layout)
    assert "secret" not in seen


def test_missing_srun_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no srun on PATH"):
        SrunStarter(environ={"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("errors", "says"),
    [
        (
            "farandole: The agent on n2 cannot reach the head.\n"
            "srun: error: n2: task 1: Exited with exit code 1\n",
            "The agent on n2 cannot reach the head.",
        ),
        (
            "srun: error: Unable to create step for job 7: Requested nodes are busy\n",
            "srun ended with code 1: Unable to create step for job 7: Requested nodes are busy",
        ),
        ("", "srun ended with code 1: srun failed and did not say why"),
    ],
)
def test_reasons(errors: str, says: str) -> None:
    assert explain_srun(1, errors, ["n1", "n2"]) == says
    assert explain_srun(0, errors, ["n1"]) == ""
