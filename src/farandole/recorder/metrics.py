"""Figures that a script reports, kept until they are written; those of devices until they know."""

from __future__ import annotations

from farandole.recorder.lines import line
from farandole.recorder.step import Later


class Metrics:
    """What `record` was told and is not on disk yet."""

    def __init__(self, begin_s: float) -> None:
        """Begin; `begin_s`: when the process started, from which their times count."""
        self._begin_s = begin_s
        self._kept: list[tuple[str, float | Later, int, float | None, float]] = []

    def add(
        self, name: str, value: float | Later, step: int, epoch: float | None, now_s: float
    ) -> None:
        """Keep a figure; one that a device will know is asked for later."""
        self._kept.append((name, value, step, epoch, now_s))

    def take_settled(self, *, final: bool) -> list[str]:
        """Return the lines of all figures that are known by now, and keep the others.

        In the end, what a device does not know yet is dropped.
        """
        lines, waiting = [], []
        for metric in self._kept:
            name, value, step, epoch, now_s = metric
            figure = value() if callable(value) else value
            if figure is not None:
                figure, time_s = float(figure), round(now_s - self._begin_s, 6)
                lines.append(
                    line("metric", name=name, value=figure, step=step, epoch=epoch, time_s=time_s)
                )
            elif not final:
                waiting.append(metric)
        self._kept = waiting
        return lines
