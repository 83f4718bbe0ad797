"""Keras by Horovod's recipe. Options: module ("farandole.keras"), model, warmup, steps, block, pin.

The backend is KERAS_BACKEND's.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farandole.bench.workers import harness, keras_training, pace
else:
    import harness
    import keras_training
    import pace


def main() -> None:
    given = harness.options()
    hvd = importlib.import_module(given["module"])
    hvd.init()
    if given["pin"]:
        keras_training.pin(hvd.local_rank())
    task = keras_training.build(given["model"])
    # No meeting: every step's sum of gradients is one.
    clock = pace.Pace(
        warmup=given["warmup"],
        steps=given["steps"],
        block=given["block"],
        finish=lambda: keras_training.finish(task.model),
    )
    optimizer = hvd.DistributedOptimizer(keras_training.sgd())
    keras_training.train(task, optimizer, clock, rank=hvd.rank())
    harness.report(
        given,
        rank=hvd.rank(),
        series={"step": clock.times_s},
        facts=keras_training.facts(task.model, clock),
    )
    hvd.shutdown()


if __name__ == "__main__":
    main()
