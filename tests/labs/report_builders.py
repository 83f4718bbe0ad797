"""The report of a small lab, made by hand; every string in it can be made hostile at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np

from farandole.format import seconds, size, times, whole
from farandole.labs import lab as labs
from farandole.labs.data.images import contact_sheet
from farandole.labs.lab import Answered, Choice, Correction, DataFacts, Found, Plan, Planned, Size
from farandole.labs.questions import Question
from farandole.labs.report import LabReport
from farandole.labs.rows import column, measure, text
from farandole.model.statistics import Estimate
from farandole.report.charts import bars, lines
from farandole.report.table import Table
from tests.labs.tiny import tiny
from tests.report.builders import ODD, Words, near, speedup, study

Say = Callable[[str], str]
"""What to write in the place of a usual word."""


def plainly(word: str) -> str:
    """Return the word itself."""
    return word


def oddly(turn: int) -> Say:
    """Return a way to say that puts one hostile string after the other."""
    turns = count(turn)

    def say(word: str) -> str:
        return ODD[next(turns) % len(ODD)]

    return say


def speed_table(say: Say = plainly) -> Table:
    """Return a speedup by batch and workers, with intervals."""
    return Table(
        name="speedup",
        title=say("Speedup by workers"),
        columns=(
            text("batch", say("batch")),
            column("workers", say("workers"), whole),
            measure("speedup", say("speedup"), times),
            measure("epoch_s", say("epoch"), seconds),
        ),
        rows=tuple(
            (batch, workers, near(speedup(workers)), near(40 / speedup(workers)))
            for batch in (say("batch 32"), say("batch 128"))
            for workers in (1, 2, 4)
        ),
        notes=(say("One thread per worker."),),
    )


def bytes_table(say: Say = plainly) -> Table:
    """Return bytes by kind, far apart, one of them none."""
    names = [say(word) for word in ("left alone", "broadcast", "synchronised")]
    kinds = [say(word) for word in ("gradients", "buffers")]
    figures = ((44_695_848, 0), (44_695_848, 38_400), (44_695_848, 76_800))
    return Table(
        name="bytes",
        title=say("Bytes by kind"),
        columns=(
            *(text("norm", say("batch norm")), text("kind", say("kind"))),
            column("bytes", say("bytes per step"), size),
        ),
        rows=tuple(
            (name, kind, value)
            for name, values in zip(names, figures, strict=True)
            for kind, value in zip(kinds, values, strict=True)
        ),
    )


@cache
def lab(say: Say = plainly, *, size_: Size = "budget", words: Words | None = None) -> LabReport:
    """Return the report of a lab with three questions, the last one not answered by a table."""
    speed, sent = speed_table(say), bytes_table(say)
    here = study(words=words)
    there = study((1, 2, 4), words=words)
    asked = labs.Asked(
        size=size_, budget_s=900.0, data=Path("data"), workers=(), recipes=(), cores=2
    )
    data = DataFacts(
        source=say("made by hand"),
        train=50_000,
        test=10_000,
        sample=say("32x32 RGB"),
        skipped=(say("7.png: not an image"), say("8.png: empty")),
        class_counts={say("cat"): (30_000, 6_000), say("dog"): (20_000, 4_000)},
        sides=(80, 351, 827),
    )
    plan = Plan(
        studies=tuple(_planned(say, name) for name in ("speedup", "lost", "broken")),
        choices=(Choice(what=say("epochs"), lab=say("5"), here=say("2"), why=say("fits 15 min")),),
    )
    found = Found(
        asked=asked,
        data=data,
        plan=plan,
        studies={plan.studies[0].name: here},
        records={},
        published={say("tiny_speedup"): there},
        failed={plan.studies[2].name: say("it broke")},
    )
    facts = replace(
        tiny(),
        name=say("tiny"),
        title=say("Where the time goes"),
        introduction=say("Adding workers was to save time."),
        original_data={
            "source": say("CIFAR-10"),
            "classes": say("10"),
            "training samples per class": say("5,000"),
            "image size": say("32 pixels a side"),
        },
        references=(say("A book about it."),),
    )
    axes = {"x": "workers", "y": "speedup", "series": "batch"}
    by_epoch, by_kind = axes | {"y": "epoch_s"}, {"x": "norm", "y": "bytes", "series": "kind"}
    return LabReport(
        lab=facts,
        found=found,
        answered=(
            Answered(
                question=Question(key=say("speedup"), text=say("What do more workers bring?")),
                sentences=(say("2 workers: 1.85x."), say("4 workers: 3.2x.")),
                tables=(speed,),
                figures=(
                    lines("speedup", say("Speedup"), say("With ideal."), speed, ideal=True, **axes),
                    lines("epoch", say("Epoch"), say("By workers."), speed, log=True, **by_epoch),
                ),
            ),
            Answered(
                question=Question(key=say("bytes"), text=say("What crosses the network?")),
                sentences=(say("Gradients: 44.7 MB."),),
                tables=(sent, speed),
                figures=(bars("bytes", say("Bytes"), say("By kind."), sent, **by_kind),),
            ),
            Answered(
                question=Question(key=say("enough"), text=say("Would gradients do?")),
                sentences=(),
                tables=(),
            ),
        ),
        corrections=(
            Correction(said=say("1.19 times"), right=say("1.23"), shown_by=say("4.9460 / 4.0171")),
        ),
        method=(Choice(what=say("loss"), lab=say("cross-entropy"), here=say("the same")),),
        conclusion=(say("It was worth it."),),
        created=say("2026-11-16T05:00:00Z"),
        samples=contact_sheet(np.zeros((2, 8, 8, 3), np.uint8)),
    )


def alone(value: float) -> Estimate:
    """Return a value without an interval."""
    return Estimate(value=value, low=None, high=None)


def _planned(say: Say, name: str) -> Planned:
    return Planned(
        name=say(name),
        title=say(f"For {name}"),
        options={"workers": (1, 2)},
        script="tiny.py",
        arguments=(),
        estimate_s=60.0,
    )
