"""Plain Keras, which never imports farandole: the limit when several run at once.

Options: model, warmup, steps, block, pin, rank, num_ranks, barrier_fd, barrier ("free" or "step").
The backend is KERAS_BACKEND's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farandole.bench.workers import harness, keras_training, meeting, pace
else:
    import harness
    import keras_training
    import meeting
    import pace


def main() -> None:
    given = harness.options()
    rank = given["rank"]
    if given["pin"]:
        keras_training.pin(rank)
    task = keras_training.build(given["model"])
    meet = meeting.Meeting(fd=given["barrier_fd"], rank=rank, num_ranks=given["num_ranks"])
    clock = pace.Pace(
        warmup=given["warmup"],
        steps=given["steps"],
        block=given["block"],
        finish=lambda: keras_training.finish(task.model),
        meet=meet.wait,
        meet_each_step=given["barrier"] == "step",
    )
    keras_training.train(task, keras_training.sgd(), clock, rank=rank)
    harness.forbid_farandole()
    harness.report(
        given,
        rank=rank,
        series={"step": clock.times_s},
        facts=keras_training.facts(task.model, clock),
    )


if __name__ == "__main__":
    main()
