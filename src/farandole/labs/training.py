"""A lab's script as studies: a pilot of few steps, and launches that train to the script's end."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.labs import effort as alike
from farandole.labs.effort import STUDY_S, lab_recipe, launch_s, steps_s
from farandole.labs.lab import Asked, DataFacts, Planned, Rate

_PILOT_STEPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A Keras script, with what a lab runs it with throughout."""

    name: str
    """Of the pilot study, and so of its rate."""
    script: str
    """A file of examples/."""
    batch: int
    """Per worker."""
    learning_rate: float
    """Of one worker."""
    guess: Rate
    """Of one core of a virtual machine, where no pilot has measured: for `quick` and `full`."""
    few_test_samples: int
    """For studies of speed, which do not look at accuracy."""
    arguments: tuple[str, ...] = ()
    """Further ones of the script, in all studies."""

    def endless(self, asked: Asked) -> tuple[str, ...]:
        """Return the arguments of a job without an end: the study ends it after so many steps."""
        return (
            *alike.data_arguments(asked),
            *("--epochs", "1000", "--batch-size", "{batch}", "--samples", "0"),
            *("--test-samples", str(self.few_test_samples)),
            *("--lr", f"{self.learning_rate:g}", "--recipe", "fixed"),
            *self.arguments,
        )

    def pilot(self, asked: Asked) -> Planned:
        """Return the study that measures what one worker does in a second."""
        once_s = steps_s(self.guess, threads=1, batches=(self.batch,), steps=_PILOT_STEPS)
        return Planned(
            name=self.name,
            title="How fast one worker trains",
            flags=(
                *("-np", "1", "--threads", "1", "-L", f"batch={self.batch}"),
                *("--steps", str(_PILOT_STEPS), *speed_flags(1)),
            ),
            script=self.script,
            arguments=self.endless(asked),
            estimate_s=once_s + STUDY_S,
            environ=alike.KERAS,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What the studies of a plan have in common whose launches train to the script's end."""

    workload: Workload
    asked: Asked
    data: DataFacts
    rate: Rate
    samples: int
    """To train on; 0: all."""
    test_samples: int
    """0: all."""
    epochs: int
    seeds: int

    def study(
        self,
        *,
        name: str,
        title: str,
        recipes: tuple[str, ...],
        workers: tuple[int, ...],
        sizes: tuple[int, ...] = (),
        arguments: tuple[str, ...] = (),
    ) -> Planned:
        """Return a study of accuracy or loss, and of times beside it.

        Args:
            name: Its folder.
            title: What it is for.
            recipes: To train by, each on all numbers of workers.
            workers: Their numbers.
            sizes: Numbers of samples to train on instead, with one seed: for times only.
            arguments: Further ones of the script.
        """
        work, data = self.workload, self.data
        seeds = 1 if sizes else self.seeds
        one_seed = sum(
            launch_s(
                self.rate,
                workers=count,
                cores=self.asked.cores,
                samples=samples,
                epochs=lab_recipe(each).epochs(self.epochs),
                test_samples=alike.taken(self.test_samples, data.test),
            )
            for count in workers
            for each in recipes
            for samples in sizes or (alike.taken(self.samples, data.train),)
        )
        samples = "{samples}" if sizes else str(alike.subset(self.samples, data.train))
        return Planned(
            name=name,
            title=title,
            flags=(
                *("-np", alike.numbers(workers), "-L", f"batch={work.batch}"),
                *("-L", f"recipe={','.join(recipes)}"),
                *(("-L", f"samples={alike.numbers(sizes)}") if sizes else ()),
                *("--measure", "accuracy", "--seeds", str(seeds), "--no-calibration"),
                *busy_flags(self.asked),
            ),
            script=work.script,
            arguments=(
                *alike.data_arguments(self.asked),
                *("--epochs", str(self.epochs), "--batch-size", "{batch}", "--samples", samples),
                *("--test-samples", str(alike.subset(self.test_samples, data.test))),
                *("--lr", f"{work.learning_rate:g}", "--recipe", "{recipe}", "--seed", "{seed}"),
                *(*work.arguments, *arguments),
            ),
            estimate_s=seeds * one_seed + STUDY_S,
            environ=alike.KERAS,
        )


def speed_flags(repeats: int) -> tuple[str, ...]:
    """Return what makes a study of nothing but steps."""
    return ("--repeats", str(repeats), "--no-epoch", "--no-today", "--no-calibration")


def busy_flags(asked: Asked) -> tuple[str, ...]:
    """Make no launch again that others disturbed where time is short."""
    return () if asked.size == "full" else ("--keep-busy",)
