"""Agents by srun: one step of the job around us, with one task on each of its hosts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence

from farandole.errors import UsageError
from farandole.launch.slurm.client import refusal
from farandole.launch.starters.protocol import AgentProcess, RunningAgents
from farandole.world.slurm import network_name

# What the job was submitted with says how its tasks are laid out; agents are one per node, with all
# that the job has there. srun takes these variables for its own flags.
_LAYOUT = re.compile(
    r"SLURM_(N?TASKS\w*|NPROCS|N?NODES|JOB_NUM_NODES|DISTRIBUTION|CPUS_PER_\w+|CPU_BIND\w*|"
    r"MEM_BIND\w*|MEM_PER_\w+|GPU_BIND|GPUS_PER_\w+|NTASKS_PER_\w+|THREADS_PER_CORE|"
    r"THREAD_SPEC|CORE_SPEC|HINT|EXCLUSIVE|EXACT|OVERCOMMIT|OPEN_MODE|STDIO_MODE|STDINMODE|"
    r"STDOUTMODE|STDERRMODE|LABELIO|UNBUFFEREDIO|WCKEY|RESV_PORTS|STEP_\w+|TRES_PER_TASK)"
    r"|SRUN_\w+"
)
_ERROR = re.compile(r"^srun: (?:error: |fatal: )?(?!Job step aborted|launch/slurm)")


class SrunStarter:
    """Starts all agents by one srun, inside of an allocation."""

    name = "slurm"

    def __init__(self, *, environ: Mapping[str, str]) -> None:
        """Prepare.

        Args:
            environ: The head's environment, with the job's variables.

        Raises:
            UsageError: There is no srun here.
        """
        if shutil.which("srun", path=environ.get("PATH")) is None:
            raise UsageError(
                "This process is part of a SLURM job, but there is no srun on PATH to start "
                "workers with. Add SLURM's programs to PATH, or use --launcher local."
            )
        self._environ = {
            name: text for name, text in environ.items() if not _LAYOUT.fullmatch(name)
        }

    def network_name(self, host: str) -> str:
        """Return the name or address under which the network knows a node."""
        return network_name(host)

    def start(
        self, hosts: Sequence[str], argv: Sequence[str], greeting: bytes
    ) -> list[RunningAgents]:
        """Start the agents, which are numbered by SLURM_NODEID."""
        command = [*step_argv(hosts), *argv]
        return [AgentProcess(hosts, command, greeting, environ=self._environ, explain=explain)]


def step_argv(hosts: Sequence[str]) -> list[str]:
    """Return srun and its flags for one task on each of these hosts."""
    return [
        "srun",
        f"--nodes={len(hosts)}",
        f"--ntasks={len(hosts)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(hosts)}",
        # The batch script is a step too, and keeps what it has.
        "--overlap",
        "--mem=0",
        "--cpu-bind=none",
        "--mpi=none",
        # The greeting goes to all; agents end by themselves, and say why.
        "--input=all",
        "--kill-on-bad-exit=0",
        "--export=ALL",
    ]


def explain(code: int, errors: str, hosts: Sequence[str]) -> str:
    """Say why srun ended: by what an agent said, or by SLURM's own message."""
    if code == 0:
        return ""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    said = [line.removeprefix("farandole: ") for line in lines if line.startswith("farandole: ")]
    if said:
        return said[-1]
    own = [line for line in lines if _ERROR.match(line)]
    text = refusal("\n".join(own or lines), "srun")
    return f"srun ended with code {code}: {text}"
