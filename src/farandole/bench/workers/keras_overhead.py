"""One worker through DistributedOptimizer and plain Keras in turns, in one process. Options: model,
warmup, steps, block, turn, pin.

What the wrapper costs is far below what two launches differ by, so that both are measured in one:
the series "ratio" has one value per pair of neighbouring turns, each a `fit` of `turn` timed steps.
The backend is KERAS_BACKEND's.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import farandole.keras as hvd

if TYPE_CHECKING:
    from farandole.bench.workers import harness, keras_training, pace
else:
    import harness
    import keras_training
    import pace

# A call of fit prepares its data during its first step.
_WARMUP_STEPS = 2


def main() -> None:
    given = harness.options()
    hvd.init()
    if given["pin"]:
        keras_training.pin(hvd.local_rank())
    tasks = {wrapped: keras_training.build(given["model"]) for wrapped in (True, False)}
    for wrapped, task in tasks.items():
        sgd = keras_training.sgd()
        keras_training.compile_model(task, hvd.DistributedOptimizer(sgd) if wrapped else sgd)

    def take_turn(*, wrapped: bool, warmup: int = _WARMUP_STEPS) -> pace.Pace:
        task = tasks[wrapped]
        clock = pace.Pace(
            warmup=warmup,
            steps=given["turn"],
            block=given["block"],
            finish=lambda: keras_training.finish(task.model),
        )
        keras_training.fit(task, clock, rank=0)
        return clock

    for wrapped in tasks:
        take_turn(wrapped=wrapped, warmup=given["warmup"])
    ratios = []
    for pair in range(max(1, given["steps"] // (2 * given["turn"]))):
        # Now one, now the other goes first, so that a drift of the machine cancels.
        order = (True, False) if pair.bit_count() % 2 == 0 else (False, True)
        clocks = {wrapped: take_turn(wrapped=wrapped) for wrapped in order}
        ratios.append(median(clocks[True].times_s) / median(clocks[False].times_s))
    harness.report(
        given,
        rank=0,
        series={"ratio": ratios},
        facts=keras_training.facts(tasks[True].model, clocks[True]),
    )
    hvd.shutdown()


if __name__ == "__main__":
    main()
