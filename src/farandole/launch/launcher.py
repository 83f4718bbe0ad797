"""The launcher: starts the workers of a plan on this host, and stays until all have ended."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import selectors
from collections.abc import Callable, Mapping
from dataclasses import replace

from farandole.launch.local_workers import LocalWorkers, caught_signals, hold_port
from farandole.launch.output import Outputs, Show, open_files
from farandole.launch.plan import Plan
from farandole.launch.supervision import Outcome, Supervision, Watch
from farandole.launch.variables import Job, launcher_environ, worker_environ
from farandole.launch.warm import WarmServer
from farandole.world.board import Board

__all__ = ["Outcome", "launch", "opened_outputs"]


def launch(
    plan: Plan,
    *,
    environ: Mapping[str, str],
    show: Show,
    worker_fds: Callable[[int], Mapping[str, int]] | None = None,
    started: Callable[[], None] | None = None,
    watch: Watch | None = None,
    own_process: bool = False,
    warm: WarmServer | None = None,
) -> Outcome:
    """Start the workers of a plan and stay until all have ended.

    Args:
        plan: What to start.
        environ: The environment to build the workers' from.
        show: Shows one tagged line.
        worker_fds: For a rank, descriptors to hand down, by the variable that tells the number.
        started: Called once all workers have been started.
        watch: Called ten times a second with the processes of the workers that run; True ends the
            launch as SIGTERM would.
        own_process: Whether this process does nothing but this launch (see LocalWorkers).
        warm: What to fork the workers from, where they do not start from nothing.

    Raises:
        UsageError: Nothing was started, since something of the plan cannot be had.
        KeyboardInterrupt: Python's own, where the caller is not in the main thread or has its own
            way with signals (a notebook); all workers have ended by then.
    """
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(hold_port(environ))
        outputs = opened_outputs(plan, show, stack)
        board = stack.enter_context(Board.create(plan.num_workers))
        job = Job(
            job_id=secrets.token_hex(8),
            launcher_pid=os.getpid(),
            board_path=board.path,
            master_port=held.getsockname()[1],
            hostname=platform.node() or "localhost",
        )
        selector = stack.enter_context(selectors.DefaultSelector())
        if warm and not warm.prepare(plan.argv, worker_environ(environ, plan, job, 0)):
            warm = None
        workers = stack.enter_context(
            contextlib.closing(
                LocalWorkers(board, selector, outputs.feed, own_process=own_process, warm=warm)
            )
        )
        supervision = Supervision(
            workers,
            outputs,
            selector,
            size=plan.num_workers,
            silence_timeout_s=plan.silence_timeout_s,
            exit_timeout_s=plan.exit_timeout_s,
            watch=watch,
            clean_stop=plan.clean_stop,
        )
        signals = stack.enter_context(caught_signals())
        for rank in range(plan.num_workers):
            fds = dict(worker_fds(rank)) if worker_fds else {}
            if rank == 0:
                fds["FARANDOLE_MASTER_FD"] = held.fileno()
            if plan.own_launcher:
                variables, fds = launcher_environ(environ, plan), {}
            else:
                variables = worker_environ(environ, plan, job, rank)
            variables |= {name: str(fd) for name, fd in fds.items()}
            workers.start(rank, plan.argv, environ=variables, fds=list(fds.values()), cwd=plan.cwd)
        if started is not None:
            started()
        return replace(supervision.until_all_ended(signals), warm=warm is not None)


def opened_outputs(plan: Plan, show: Show, stack: contextlib.ExitStack) -> Outputs:
    """Prepare the outputs of all ranks, with their files; the stack ends them.

    Raises:
        UsageError: The folder for files cannot be written to.
    """
    files = None if plan.output_dir is None else open_files(plan.output_dir, plan.num_workers)
    outputs = Outputs(plan.num_workers, show=show, tag=plan.tag, shown=plan.shown, files=files)
    stack.callback(outputs.end)
    return outputs
