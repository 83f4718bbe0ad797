"""`--max-restarts`: after a failure all workers start again, and find what they had committed."""

from __future__ import annotations

import contextlib
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from farandole.errors import StartError
from farandole.launch.local_workers import caught_signals
from farandole.launch.message import failure_lines
from farandole.launch.output import Show
from farandole.launch.plan import Plan
from farandole.launch.supervisor import Verdict
from farandole.world.stored_state import StateFiles

if TYPE_CHECKING:
    from farandole.launch.launcher import Outcome

# The pause before a restart doubles while rounds fail within the time below.
FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0
_SHORT_ROUND_S = 60.0


def with_restarts(plan: Plan, launch: Callable[[Plan], Outcome], *, show: Show) -> Outcome:
    """Launch a plan, again after each failure, as often as it allows.

    Args:
        plan: What to start.
        launch: Starts the workers and waits for their end; the plan says which time it is.
        show: Shows one line.

    Raises:
        UsageError: The plan cannot be started.
        StartError: A host cannot be used, and nothing has been trained yet.
    """
    most = 0 if plan.elastic is None else plan.elastic.max_restarts
    failures: list[str] = []
    short = 0
    while True:
        began_s = time.monotonic()
        outcome, failure = _one_round(plan, launch, first=not failures)
        if failure is None or len(failures) == most:
            return replace(outcome, failures=tuple(failures))
        failures.append(failure)
        short = short + 1 if time.monotonic() - began_s < _SHORT_ROUND_S else 1
        pause_s = min(FIRST_PAUSE_S * 2 ** (short - 1), _LONGEST_PAUSE_S)
        show(
            "stderr",
            f"{failure}\nfarandole: restart {len(failures)} of {most} (--max-restarts) in "
            f"{pause_s:g} s.\n",
        )
        if signum := _pause(pause_s):
            interrupted = Verdict(kind="interrupted", exit_code=128 + signum)
            if signum == signal.SIGUSR1:
                # A scheduler's warning: there is no time for another round.
                return replace(outcome, failures=tuple(failures[:-1]))
            return replace(outcome, verdict=interrupted, failures=tuple(failures))
        plan = replace(plan, restart=len(failures))


def _one_round(
    plan: Plan, launch: Callable[[Plan], Outcome], *, first: bool
) -> tuple[Outcome, str | None]:
    """Launch once; return how it ended, and what failed if it may be tried again."""
    from farandole.launch.launcher import Outcome

    try:
        outcome = launch(plan)
    except StartError as error:
        if first:
            raise
        # A host that failed may be on its way up.
        outcome = Outcome(verdict=Verdict(kind="given up", exit_code=1, reason=str(error)))
    verdict = outcome.verdict
    if verdict.kind in ("done", "interrupted") or outcome.asked_to_stop:
        return outcome, None
    lines = failure_lines(
        verdict, step=outcome.step, silence_timeout_s=plan.silence_timeout_s, rank_hosts=()
    )
    return outcome, "\n".join(lines)


def _pause(pause_s: float) -> int:
    """Wait; return the signal that came meanwhile, 0 for none."""
    with caught_signals() as signals:
        if signals is None:
            time.sleep(pause_s)
            return 0
        ready, _, _ = select.select([signals], [], [], pause_s)
        return signals.recv(1)[0] if ready else 0


class JobStates:
    """What workers have left with this launcher, over all rounds."""

    def __init__(self) -> None:
        self._files: dict[int, StateFiles] = {}
        """Of the workers of this round, by number."""
        self._ranks: dict[int, int] = {}
        """For which rank each of them was started."""
        self._before: dict[int, StateFiles] = {}
        """Of the last round, by rank."""

    def of(
        self, worker: int, rank: int, *, first: bool, running: Collection[int] | None = None
    ) -> StateFiles:
        """Return the files of a worker that is started.

        Args:
            worker: Its number; in a run that is not elastic, its rank.
            rank: Its rank: it finds what the last round's worker of that rank had.
            first: Whether it is one of those that a round starts with.
            running: The workers that run. What others of this round have got, which failed before
                it began, goes to this one.
        """
        files = self._before.pop(rank, None) if first else None
        ended = [] if running is None else [each for each in self._files if each not in running]
        if files is None and worker not in self._files and ended:
            same = [each for each in ended if self._ranks[each] == rank]
            files = self._files.pop((same or ended)[0])
        self._files[worker] = files or StateFiles()
        self._ranks[worker] = rank
        return self._files[worker]

    def next_round(self, workers: Sequence[int]) -> None:
        """Keep what these workers have, by rank, for the next round; forget the others'.

        Args:
            workers: Those of the last generation, by rank. None where no elastic run has begun:
                then all workers, by the ranks that they were started for.
        """
        ranks = {worker: rank for rank, worker in enumerate(workers)} or self._ranks
        chosen: dict[int, StateFiles] = {}
        for worker, rank in ranks.items():
            if worker in self._files and rank not in chosen:
                chosen[rank] = self._files.pop(worker)
        self.keep_only(())
        # Where a round failed before all were started, what was there before still is.
        for rank, files in self._before.items():
            if rank in chosen:
                files.close()
            else:
                chosen[rank] = files
        self._before, self._ranks = chosen, {}

    def keep_only(self, workers: Collection[int]) -> None:
        """Let go of what other workers of this round have."""
        for worker in [each for each in self._files if each not in workers]:
            self._files.pop(worker).close()

    def close(self) -> None:
        """Let go of everything."""
        self.keep_only(())
        for files in self._before.values():
            files.close()
        self._before = {}


@contextlib.contextmanager
def job_states(plan: Plan) -> Iterator[JobStates | None]:
    """Make room for workers' states, where a plan has restarts."""
    if plan.elastic is None or not plan.elastic.max_restarts:
        yield None
        return
    with contextlib.closing(JobStates()) as states:
        yield states
