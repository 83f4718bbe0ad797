"""SLURM's programs, called: sbatch, scontrol, sacct, scancel. All that talks to SLURM is here."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from farandole.errors import StartError, UsageError
from farandole.launch.slurm.status import (
    REFUSED,
    Status,
    parse_sacct,
    parse_scontrol,
    refusal,
)

_LIMIT_S = 60.0
# Which cluster, not which job.
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS")


class Slurm:
    """The cluster that this host belongs to."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Remember the environment that programs run in."""
        self._environ = dict(environ)

    def submit(self, script: str) -> str:
        """Submit a job script and return the job's number.

        Raises:
            UsageError: There is no sbatch, or it refused the script; the reason is SLURM's own.
        """
        # What a job around us was given must not be taken for what this one asks for.
        environ = {
            name: text
            for name, text in self._environ.items()
            if not name.startswith("SLURM_") or name in _KEPT
        }
        done = self._call("sbatch", ["--parsable"], stdin=script, environ=environ)
        if done.returncode:
            raise UsageError(f"{REFUSED}: {refusal(done.stderr, 'sbatch')}.")
        return done.stdout.strip().split("\n")[-1].partition(";")[0]

    def look(self, job_id: str) -> Status:
        """Say how a job is.

        Raises:
            StartError: SLURM does not know the job any more, or does not answer.
        """
        done = self._call("scontrol", ["show", "job", "--oneliner", job_id])
        status = parse_scontrol(done.stdout)
        if status is not None:
            return status
        why = refusal(done.stderr, "slurm_load_jobs") if done.stderr else "no answer"
        # The controller forgets a job minutes after its end; the accounts do not.
        flags = ["--noheader", "--allocations", "--parsable2", "--format=State,ExitCode,NodeList"]
        try:
            kept = parse_sacct(self._call("sacct", [*flags, "--jobs", job_id]).stdout)
        except UsageError:
            kept = None
        if kept is None:
            raise StartError(
                f"SLURM says nothing about job {job_id} ({why}). See squeue and sacct."
            )
        return kept

    def nodes(self, partition: str | None = None) -> tuple[int, int]:
        """Return the CPUs of the smallest node of a partition, and how many nodes it has.

        Raises:
            UsageError: There is no sinfo, or no such partition.
        """
        where = [] if partition is None else [f"--partition={partition}"]
        done = self._call("sinfo", ["--noheader", "--Node", "--format=%c %N", *where])
        found = {line.split()[1]: int(line.split()[0]) for line in done.stdout.splitlines()}
        if done.returncode or not found:
            what = "SLURM has no nodes" if partition is None else f"no partition {partition}"
            why = refusal(done.stderr, "sinfo") if done.stderr else what
            raise UsageError(f"SLURM's nodes cannot be listed: {why}.")
        return min(found.values()), len(found)

    def cancel(self, job_id: str) -> None:
        """End a job; one that has ended already is no error."""
        self._call("scancel", [job_id])

    def warn(self, job_id: str) -> None:
        """Warn a job as SLURM does before the time limit; one that does not run hears nothing."""
        self._call("scancel", ["--signal=USR1", "--batch", job_id])

    def _call(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        stdin: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [program, *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                env=dict(self._environ if environ is None else environ),
                # Ctrl-C is for whoever follows the job, not for a look at it.
                start_new_session=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise UsageError(
                f"A job of SLURM's was asked for, but there is no {program} on PATH: this host is "
                "not part of a cluster. Go to a login node; `farandole run --launcher slurm "
                "--script-only` writes a job script anywhere."
            ) from error
        except subprocess.TimeoutExpired as error:
            raise StartError(
                f"{program} did not answer within {_LIMIT_S:g} s: SLURM's controller is down or "
                "busy. Try `sinfo`."
            ) from error
