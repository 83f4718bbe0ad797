"""Which hosts there are: read from a discovery script, kept by age, excluded after failures."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from farandole.errors import UsageError
from farandole.launch.placement import Slots, parse_hosts

# How often Horovod asks, and a script may answer.
ASK_EVERY_S = 1.0
# A script that has not answered by then hangs.
ANSWER_TIMEOUT_S = 30.0


def read_hosts(text: str, *, script: str, slots_per_host: int = 1) -> tuple[Slots, ...]:
    """Read what a discovery script has printed: `host` or `host:slots` in a line.

    No line at all is an answer, too: there are no hosts now.

    Raises:
        UsageError: A line is no host; the message shows it.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        word = line.strip()
        if not word:
            continue
        try:
            (host,) = parse_hosts(word if ":" in word else f"{word}:{slots_per_host}")
        except (UsageError, ValueError):
            raise UsageError(
                f"--host-discovery-script {script} printed {_short(line)!r}, which is no host. "
                "Each line has to be a host, or a host and its slots: h1:2."
            ) from None
        # Like Horovod's: the last line about a host counts.
        found[host.name] = host.count
    return tuple(Slots(name=name, count=count) for name, count in found.items())


def _short(line: str) -> str:
    return line if len(line) <= 80 else f"{line[:77]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A host that has failed."""

    failures: int
    until_s: float
    """On the launcher's clock; infinity: for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The hosts that there are, the longest known ones first, and those excluded.

    Rank 0 has to have state, so that low ranks are for hosts that have been there longest.
    """

    present: tuple[Slots, ...] = ()
    excluded: dict[str, Exclusion] = field(default_factory=dict)

    def found(self, now: Sequence[Slots]) -> Hosts:
        """Return what is known after discovery has found these."""
        counts = {host.name: host.count for host in now}
        stay = [host.name for host in self.present if host.name in counts]
        new = [host.name for host in now if host.name not in stay]
        present = tuple(Slots(name=name, count=counts[name]) for name in (*stay, *new))
        return replace(self, present=present)

    def excluding(
        self,
        name: str,
        *,
        now_s: float,
        cooldown_range_s: tuple[float, float] | None,
        chance: float,
    ) -> Hosts:
        """Return what is known after a failure that excludes a host.

        Args:
            name: The host.
            now_s: The time.
            cooldown_range_s: How long it is excluded at least and at most: as with Horovod, twice
                the least time at first, and twice as long with each failure. None: for good.
            chance: From 0 to 1: lengthens the time by up to the least time, so that hosts that
                failed together do not come back together.
        """
        failures = self.excluded[name].failures + 1 if name in self.excluded else 1
        until_s = math.inf
        if cooldown_range_s is not None:
            least_s, most_s = cooldown_range_s
            # No more doublings than a number can hold.
            length_s = least_s * (2.0 ** min(failures, 60) + chance)
            until_s = now_s + min(most_s, length_s)
        exclusion = Exclusion(failures=failures, until_s=until_s)
        # It is new when it comes back: whoever stayed has state that it lacks.
        others = tuple(host for host in self.present if host.name != name)
        mine = tuple(host for host in self.present if host.name == name)
        return replace(self, present=(*others, *mine), excluded={**self.excluded, name: exclusion})

    def usable(self, now_s: float) -> tuple[Slots, ...]:
        """Return the hosts that may have workers now, the longest known ones first."""
        return tuple(host for host in self.present if not self.is_excluded(host.name, now_s))

    def is_excluded(self, name: str, now_s: float) -> bool:
        """Say whether a host is excluded now."""
        return name in self.excluded and now_s < self.excluded[name].until_s

    def next_return_s(self, now_s: float) -> float | None:
        """Return when the first of the present hosts that are excluded may be used again."""
        times = [
            self.excluded[host.name].until_s
            for host in self.present
            if self.is_excluded(host.name, now_s)
        ]
        return min((each for each in times if each < math.inf), default=None)

    def num_slots(self, now_s: float) -> int:
        """Return how many workers there is room for now."""
        return sum(host.count for host in self.usable(now_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of asking a discovery script once."""

    hosts: tuple[Slots, ...] | None
    """None: it failed, or printed something else."""
    error: str = ""


class DiscoveryScript:
    """Asks a discovery script again and again, without waiting for its answers."""

    def __init__(self, command: Sequence[str], *, slots_per_host: int = 1) -> None:
        self.name = Path(command[0]).name
        """The script as errors name it."""
        self._command = tuple(command)
        self._failed = ""
        self._slots_per_host = slots_per_host
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (close() does)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._deadline_s = 0.0

    @property
    def asking(self) -> bool:
        """Whether an answer is awaited."""
        return self._process is not None

    def ask(self, now_s: float) -> None:
        """Start the script; does nothing while an answer is awaited."""
        if self._process is not None:
            return
        for file in (self._output, self._errors):
            file.seek(0)
            file.truncate()
        self._deadline_s = now_s + ANSWER_TIMEOUT_S
        try:
            self._process = self._started(self._command)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                self._failed = f"cannot be run ({error.strerror})"
                return
            # Without a first line that names a shell: shells run such scripts by themselves.
            self._command = ("/bin/sh", *self._command)
            self._process = self._started(self._command)

    def _started(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            # A group of its own, to be ended with whatever it has started.
            start_new_session=True,
        )

    def answer(self, now_s: float) -> Answer | None:
        """Return the answer to `ask`; None as long as there is none."""
        if self._failed:
            error, self._failed = f"--host-discovery-script {self.name} {self._failed}.", ""
            return Answer(hosts=None, error=error)
        if self._process is None:
            return None
        code = self._process.poll()
        if code is None:
            if now_s < self._deadline_s:
                return None
            self._end()
            return Answer(
                hosts=None,
                error=f"--host-discovery-script {self.name} gave no answer in "
                f"{ANSWER_TIMEOUT_S:g} s. It is run every second, and should answer at once.",
            )
        self._process = None
        if code:
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
            said = f": {_short(last[0])}" if last else ""
            how = f"exited with code {code}" if code > 0 else f"was ended by signal {-code}"
            return Answer(
                hosts=None,
                error=f"--host-discovery-script {self.name} {how}{said}. Run it by hand.",
            )
        self._output.seek(0)
        try:
            text = self._output.read().decode(errors="replace")
            hosts = read_hosts(text, script=self.name, slots_per_host=self._slots_per_host)
        except UsageError as error:
            return Answer(hosts=None, error=str(error))
        return Answer(hosts=hosts)

    def close(self) -> None:
        """End a script that is running."""
        self._end()
        self._output.close()
        self._errors.close()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
