"""A study's progress: bars on a terminal, sparse lines in a file."""

from __future__ import annotations

from typing import TextIO

from farandole.format import plural
from farandole.study.plan import Planned
from farandole.study.progress import Listener, Now, duration, ended_line, planned_words
from farandole.study.records import Launch


def listener(stream: TextIO) -> Lines:
    """Return who shows progress on this stream: as bars where it is a terminal."""
    return Bars(stream) if stream.isatty() else Lines(stream)


class Lines(Listener):
    """One line when a launch has ended, nothing in between."""

    _warned = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, line: str) -> None:
        """Print a sentence."""
        print(line, file=self._stream, flush=True)

    def ended(self, launch: Launch, *, number: int, total: int, left_s: float) -> None:
        """Print how a launch ended."""
        self.say(ended_line(launch, number=number, total=total, left_s=left_s))
        # A study takes minutes; that its workers do not train together shows in the first launch.
        if self._warned or launch.cell.workers < 2:
            return
        from farandole.model.verdicts import mistake_of

        if (mistake := mistake_of(launch)) is not None:
            self._warned = True
            self.say(f"{mistake} The study goes on, but without a speedup; Ctrl-C ends it.")


class Bars(Lines):
    """Two bars: the study's, and that of the launch under way with its throughput."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = Console(file=stream, highlight=False, force_terminal=True)
        # No thread that draws: the launcher's loop calls twice a second, and a thread would take
        # its time from the workers.
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """Print a sentence above the bars."""
        self._console.print(line, markup=False)

    def began(
        self, one: Planned, *, number: int, total: int, seconds: float, left_s: float
    ) -> None:
        """Begin a launch's bar."""
        if not self._progress.tasks:
            for name in ("study", ""):
                self._progress.add_task(name, note="")
        self._seconds, self._left_s = max(seconds, 1.0), left_s
        self._done, self._total = number - 1, total
        self._draw(0.0, 0.0, "starting", planned_words(one))

    def now(self, moment: Now) -> None:
        """Move the bars."""
        if not self._progress.tasks:
            return
        # A launch that takes longer than expected nears its end, and does not reach it.
        share = moment.elapsed_s / self._seconds
        share = share if share < 0.8 else 1 - 0.2 / (1 + 5 * (share - 0.8))
        note = f"{moment.elapsed_s:.0f} s"
        if moment.steps:
            note += f", {plural(moment.steps, 'step')}"
        if moment.samples_per_s:
            note += f", {moment.samples_per_s:,.0f} samples/s"
        self._draw(share, moment.elapsed_s, note)

    def _draw(self, share: float, elapsed_s: float, note: str, words: str | None = None) -> None:
        study, launch = self._progress.task_ids
        left_s = max(self._left_s - elapsed_s, 0.0)
        left = f"launch {self._done + 1} of {self._total}, about {duration(left_s)} left"
        self._progress.update(study, total=self._total, completed=self._done + share, note=left)
        self._progress.update(launch, total=1.0, completed=share, note=note, description=words)
        self._progress.refresh()
