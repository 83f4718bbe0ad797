"""The cifar10 lab's plan: the studies of each size; no two of them run the same cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from farandole.format import listed, plural, size
from farandole.labs import plan as plans
from farandole.labs.lab import Asked, Choice, DataFacts, Plan, Planned, Rate
from farandole.labs.plan import STUDY_S, launch_s, speed_options
from farandole.recipes import recipe

LAB_SAMPLES = 50_000
LAB_BATCHES = (32, 128, 512)
LAB_TOO_LARGE = 2048
"""The lab's batch that did not fit its GPU."""
LAB_ACCURACY_BATCH = 512
IMAGES = f"{LAB_SAMPLES:,} images"
LEARNING_RATE = 0.01
"""Of one worker, at 32 images per batch."""
TRIED = ("fixed", "linear", "warmup", "longer")
"""Recipes, in the order in which a larger effort adds them."""

TIME, BASELINE, ACCURACY, FEWER = "speedup", "baseline", "accuracy", "fewer"
ORDER, REPLICAS, NORM, SYNC = "order", "replicas", "norm", "sync"
"""Names of the studies. Those that end as a published table's name are drawn beside it."""
TRAINED = (BASELINE, FEWER, ACCURACY, NORM, SYNC, ORDER)
"""Studies whose launches train to the end."""
RESNET, SMALL = "resnet18", "small"
"""Names of the pilots, and of the networks."""

# One core of a virtual machine, where no pilot has measured: for `quick` and `full`.
_GUESS = {
    RESNET: Rate(samples_per_s=18.0, startup_s=3.5),
    SMALL: Rate(samples_per_s=1200.0, startup_s=3.5),
}
_OUT_OF_MEMORY_S = 2.0
"""What a launch takes beyond its start until its memory is used up."""
_CALIBRATION_S = 18.0
"""Of the link, and of workers that send nothing, for each number of workers."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of the lab is run; a larger effort has no smaller figure."""

    # Timed launches of ResNet-18: batches per worker, one that does not fit the memory limit, steps
    # (0: a whole epoch), and how often each is repeated.
    batches: tuple[int, ...]
    too_large: int
    steps: int
    repeats: int
    # Runs for accuracy: samples (0: all), and how many of TRIED are tried with the most workers.
    samples: int
    test_samples: int
    epochs: int
    seeds: int
    workers: tuple[int, ...]
    recipes: int
    model: str = SMALL
    batch: int = 32

    @property
    def calibrated(self) -> bool:
        """Whether the link between the workers is measured as well."""
        return self.repeats > 1 or self.steps == 0

    @property
    def recipes_below(self) -> int:
        """How many recipes are tried with fewer workers."""
        return self.recipes if len(self.workers) > 3 or self.steps == 0 else 1


_TWO, _FAR, _EIGHT = (1, 2), (1, 2, 8), (1, 2, 4, 8)
# Batches, the one that is too large, steps and repeats of timed launches.
_SHORT = ((8, 32), 256, 6, 1)
_TWICE = ((8, 32), 256, 8, 2)
_THREE = ((8, 32, 64), 512, 10, 3)
_WIDE = ((8, 32, 128), 1024, 12, 3)
_LONG = ((8, 32, 128), 1024, 20, 3)

# Then samples, test samples, epochs, seeds, workers and recipes of the runs for accuracy.
QUICK = Effort((2, 8), 256, 3, 1, 512, 250, 2, 1, _TWO, 2)
LADDER = (
    Effort((4, 16), 256, 4, 1, 1024, 500, 3, 1, _TWO, 2),
    Effort(*_SHORT, 1024, 1000, 3, 1, _TWO, 4),
    Effort(*_SHORT, 2048, 1000, 4, 1, _FAR, 4),
    Effort(*_SHORT, 2048, 2000, 6, 1, _FAR, 4),
    Effort(*_TWICE, 2048, 2000, 6, 2, _FAR, 4),
    Effort(*_TWICE, 2048, 2000, 6, 3, _FAR, 4),
    Effort(*_TWICE, 3072, 2000, 6, 3, _FAR, 4),
    Effort(*_TWICE, 4096, 2000, 6, 3, _FAR, 4),
    Effort(*_TWICE, 4096, 2000, 8, 3, _FAR, 4),
    Effort(*_THREE, 4096, 2000, 8, 3, _FAR, 4),
    Effort(*_THREE, 6000, 2000, 10, 3, _FAR, 4),
    Effort(*_THREE, 10_000, 2000, 10, 3, _FAR, 4),
    Effort(*_WIDE, 10_000, 2000, 10, 3, _EIGHT, 4),
    Effort(*_WIDE, 10_000, 5000, 15, 3, _EIGHT, 4),
    Effort(*_WIDE, 20_000, 10_000, 15, 3, _EIGHT, 4),
    Effort(*_LONG, 0, 0, 20, 3, _EIGHT, 4),
    Effort(*_LONG, 0, 0, 20, 5, _EIGHT, 4),
)
# One run of each, as the lab made them: each takes hours where it had GPUs.
FULL = Effort(
    *(LAB_BATCHES, LAB_TOO_LARGE, 0, 1, 0, 0, 10, 1, (1, 2, 4), 4),
    model=RESNET,
    batch=LAB_ACCURACY_BATCH,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What all studies of one plan have in common."""

    asked: Asked
    data: DataFacts
    rates: Mapping[str, Rate]
    here: Effort

    @property
    def timed(self) -> tuple[int, ...]:
        """Numbers of workers whose speed counts; one is what the others are compared with."""
        chosen = plans.counts(self.asked, self.here.workers)
        return tuple(sorted({1, *(count for count in chosen if count <= self.asked.cores)}))

    @property
    def trained(self) -> tuple[int, ...]:
        """Numbers of workers above one that are trained to the end, ascending."""
        return tuple(n for n in plans.counts(self.asked, self.here.workers) if n > 1)

    @property
    def recipes(self) -> tuple[str, ...]:
        """The first is used wherever something else is varied."""
        return plans.recipes(self.asked, TRIED[: self.here.recipes])

    @property
    def timed_samples(self) -> int:
        """Images of timed launches, 0: all. One batch of each worker, also where it does not fit;
        passes over them go on."""
        return 0 if self.here.steps == 0 else self.here.too_large * self.timed[-1]

    @property
    def memory_bytes(self) -> int:
        """A limit per worker that half as much again as the largest batch fits into.

        Peak of ResNet-18 with SGD on torch 2.13, without mapped files: 387 MB at batch 4, 1360 MB
        at 128, that is 355 MB and 7.85 MB an image of a batch. On top come what the heap keeps for
        the next step (engine.memory), the shared buckets of gradients, and the images to choose
        from as 32-bit numbers, three times while they are made. The batch that is too large goes
        beyond the limit in its first layers.
        """
        fixed, heap, per_image, buckets = 355e6, 100e6, 7.85e6, 150e6
        images = 3 * 4 * 32 * 32 * 3 * (self.timed_samples or LAB_SAMPLES)
        return int(fixed + heap + buckets + images + 1.5 * per_image * max(self.here.batches))

    def launch_s(
        self, model: str, workers: int, samples: int, epochs: int = 1, tests: int = 0
    ) -> float:
        """Return what a launch takes."""
        rate, cores = self.rates[model], self.asked.cores
        count = {"workers": workers, "samples": samples, "test_samples": tests}
        return launch_s(rate, cores=cores, epochs=epochs, **count)

    def study(
        self,
        name: str,
        title: str,
        workers: tuple[int, ...],
        varied: Mapping[str, Any],
        options: Mapping[str, Any],
        settings: tuple[str, ...],
        *,
        seconds: float,
        samples: int,
        tests: int = 10,
        model: str = RESNET,
        batch: int | str = "{batch}",
        epochs: int = 1000,
    ) -> Planned:
        """Return a study of the lab's script; one of 1000 epochs ends after so many steps."""
        # Whole epochs of ResNet-18 take longer than a launch usually may; where time is short, no
        # launch that others disturbed is made again.
        full = self.asked.size == "full"
        busy = {"launch_timeout": "24h"} if full else {"keep_busy": True}
        return Planned(
            name=name,
            title=title,
            options={"workers": workers, "threads": 1, "params": varied, **options, **busy},
            script="cifar10.py",
            arguments=(
                *plans.data_arguments(self.asked),
                *("--model", model, "--epochs", str(epochs), "--batch-size", str(batch)),
                *("--samples", str(plans.subset(samples, self.data.train))),
                *("--test-samples", str(plans.subset(tests, self.data.test))),
                *("--lr", f"{LEARNING_RATE:g}", *settings),
            ),
            estimate_s=seconds + STUDY_S,
        )

    def times(self) -> Planned:
        """Return the study of ResNet-18's times by batch and workers."""
        here, counts, train = self.here, self.timed, self.data.train
        once = sum(
            self.launch_s(RESNET, n, train if here.steps == 0 else here.steps * batch * n)
            for n in counts
            for batch in here.batches
        )
        failing = sum(self.launch_s(RESNET, n, 0) + _OUT_OF_MEMORY_S for n in counts)
        calibration_s = _CALIBRATION_S * (len(counts) - 1) if here.calibrated else 0.0
        return self.study(
            TIME,
            "ResNet-18's times by batch and workers",
            counts,
            {"batch": (*here.batches, here.too_large)},
            {
                **({"epochs": 1} if here.steps == 0 else {"steps": here.steps}),
                "memory": f"{self.memory_bytes // 10**6}M",
                **speed_options(here.repeats),
                "no_calibration": not here.calibrated,
            },
            ("--recipe", "fixed"),
            samples=self.timed_samples,
            seconds=here.repeats * once + failing + calibration_s,
        )

    def replicas(self, count: int) -> Planned:
        """Return the study of replicas as threads of one process."""
        here = self.here
        steps, repeats = 24 if here.seeds == 1 else 60, max(here.repeats, here.seeds)
        return self.study(
            REPLICAS,
            f"{count} replicas as threads of one process",
            (1,),
            {"replicas": count},
            {"steps": steps, **speed_options(repeats)},
            (
                *("--recipe", "fixed", "--norm", "local", "--order", "epoch"),
                *("--replicas", "{replicas}", "--seed", "{seed}"),
            ),
            model=here.model,
            batch=here.batch,
            samples=here.samples,
            seconds=repeats * self.launch_s(here.model, count, steps * here.batch * count),
        )

    def training(
        self, name: str, title: str, workers: tuple[int, ...], varied: str, *values: str, by: str
    ) -> Planned:
        """Return a study whose launches run to the script's end, `by` a recipe if that is fixed."""
        here, data = self.here, self.data
        given = {"recipe": by, "norm": "local", "order": "epoch"} | {varied: f"{{{varied}}}"}
        samples = plans.taken(here.samples, data.train)
        tests = plans.taken(here.test_samples, data.test)
        epochs = [recipe(v if varied == "recipe" else by).epochs(here.epochs) for v in values]
        one_seed = sum(
            self.launch_s(here.model, n, samples, each, tests) for n in workers for each in epochs
        )
        return self.study(
            name,
            title,
            workers,
            {varied: values},
            {"measure": "accuracy", "seeds": here.seeds, "no_calibration": True},
            (*(w for key, v in given.items() for w in (f"--{key}", v)), "--seed", "{seed}"),
            model=here.model,
            batch=here.batch,
            samples=here.samples,
            tests=here.test_samples,
            epochs=here.epochs,
            seconds=here.seeds * one_seed,
        )


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size, with what they choose; no two of them run the same cell."""
    here = {"quick": QUICK, "full": FULL}.get(asked.size) or LADDER[effort]
    sizing = Sizing(asked=asked, data=data, rates={**_GUESS, **rates}, here=here)
    return Plan(studies=tuple(_studies(sizing)), choices=plans.choices(*_choices(sizing)))


def pilot(asked: Asked) -> tuple[Planned, ...]:
    """Return the studies that measure what one worker does in a second, for both networks."""
    data = DataFacts(source="", train=1024, test=1024, sample="")
    sizing = Sizing(asked=asked, data=data, rates=_GUESS, here=QUICK)
    return tuple(
        sizing.study(
            model,
            f"How fast one worker trains {words}",
            (1,),
            {"batch": batch},
            {"steps": steps, **speed_options(1)},
            ("--recipe", "fixed"),
            model=model,
            samples=512,
            seconds=sizing.launch_s(model, 1, steps * batch),
        )
        for model, batch, steps, words in (
            (RESNET, 8, 5, "ResNet-18"),
            (SMALL, QUICK.batch, 40, "the small network"),
        )
    )


def _studies(sizing: Sizing) -> Iterator[Planned]:
    here, trained, recipes = sizing.here, sizing.trained, sizing.recipes
    title, train = "Accuracy of one worker", sizing.training
    yield sizing.times()
    yield train(BASELINE, title, (1,), "recipe", "fixed", by="fixed")
    if trained:
        pair, most = trained[:1], trained[-1:]
        title, by = f"Accuracy of {most[0]} workers", recipes[0]
        yield train(ACCURACY, f"{title} by recipe", most, "recipe", *recipes, by=by)
        if len(trained) > 1:
            below, names = "Accuracy of fewer workers", recipes[: here.recipes_below]
            yield train(FEWER, below, trained[:-1], "recipe", *names, by=by)
        # Statistics left alone are in the study of the recipes.
        norm = "Batch norm's statistics broadcast and synchronised"
        yield train(NORM, norm, pair, "norm", "broadcast", "sync", by=by)
        yield sizing.replicas(pair[0])
        # SyncBatchNorm as a remedy: where a large global batch loses most, on top of the recipe
        # that usually helps most. NORM may have it already.
        scaled = [name for name in recipes if recipe(name).scaled]
        if scaled and here.recipes == len(TRIED) and (most, scaled[-1]) != (pair, by):
            title = f"{title} with batch norm synchronised, recipe {scaled[-1]}"
            yield train(SYNC, title, most, "norm", "sync", by=scaled[-1])
    title = "One worker that sees its samples in the same order in every epoch"
    yield train(ORDER, title, (1,), "order", "fixed", by="fixed")


def _choices(sizing: Sizing) -> list[Choice]:
    here, data, names, cores = sizing.here, sizing.data, sizing.recipes, sizing.asked.cores
    longer = sorted({recipe(each).epochs(here.epochs) for each in names} - {here.epochs})
    trained = (1, *sizing.trained)
    beyond = listed([str(count) for count in trained if count > cores])
    memory, epoch = size(sizing.memory_bytes), f"an epoch of {IMAGES}"

    def choice(what: str, lab: str, here: str, why: str = "") -> Choice:
        return Choice(what=what, lab=lab, here=here, why=why)

    return [
        choice(
            "device",
            "1 to 4 K80 GPUs",
            f"{plural(cores, 'CPU core')}, one thread per worker",
            "one thread each, so that only workers differ",
        ),
        choice(
            *("workers, times", "1, 2 and 4", plans.words(sizing.timed)),
            f"speed counts up to {plural(cores, 'core')}",
        ),
        choice(
            *("steps of a launch for times", epoch, f"{here.steps}" if here.steps else epoch),
            "ResNet-18 makes some 20 images/s on a core; an epoch's time is derived from steps",
        ),
        choice(
            *("batches per worker, times", plans.words(LAB_BATCHES), plans.words(here.batches)),
            "to fit the time",
        ),
        choice(
            *("batch that does not fit", f"{LAB_TOO_LARGE:,} in a GPU's memory"),
            f"{here.too_large:,} in {memory} per worker (--memory)",
            "so little that memory runs out in seconds and the machine is not endangered",
        ),
        choice("data set", "CIFAR-10", data.source),
        plans.samples_choice("training images, accuracy", "50,000", here.samples, data.train),
        plans.samples_choice("test images", "10,000", here.test_samples, data.test),
        choice(
            *("network, accuracy", "ResNet-18"),
            "ResNet-18" if here.model == RESNET else "a small network: 3 convolutions",
            "it trains in minutes on a core; times are ResNet-18's",
        ),
        choice(
            *("batch per worker, accuracy", f"{LAB_ACCURACY_BATCH}", f"{here.batch}"),
            "with fewer images a run would have too few steps",
        ),
        choice(
            *("epochs", "not said"),
            f"{here.epochs}" + (f" ({longer[-1]} with recipe longer)" if longer else ""),
        ),
        choice("learning rate of one worker", "not said", f"{LEARNING_RATE:g}"),
        plans.DECAY,
        choice(
            *("workers, accuracy", "4", plans.words(trained)),
            f"{beyond} share {plural(cores, 'core')}: for accuracy only" if beyond else "",
        ),
        choice("recipes", "linear, longer, warmup", ", ".join(names)),
        choice(
            *("one process with several replicas", "nn.DataParallel", "threads of one process"),
            "nn.DataParallel needs GPUs",
        ),
    ]
