"""Plain PyTorch, which never imports farandole: the limit when several run at once.

Options: model, warmup, steps, rank, num_ranks, barrier_fd, barrier ("free" or "step").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farandole.bench.workers import harness, meeting, training
else:
    import harness
    import meeting
    import training


def main() -> None:
    given = harness.options()
    rank = given["rank"]
    task = training.build(given["model"])
    step = training.make_step(task, task.model, training.sgd(task.model), rank=rank)
    meet = meeting.Meeting(fd=given["barrier_fd"], rank=rank, num_ranks=given["num_ranks"])

    def step_together(index: int) -> None:
        step(index)
        meet.wait()

    # All start at once in either case, or the first would train alone on the whole memory bus.
    meet.wait()
    times_s = harness.time_steps(
        step_together if given["barrier"] == "step" else step,
        warmup=given["warmup"],
        steps=given["steps"],
    )
    meet.wait()
    memory_kb = harness.memory_kb()
    meet.wait()
    harness.forbid_farandole()
    harness.report(
        given,
        rank=rank,
        series={"step": times_s},
        memory_kb=memory_kb,
        facts=training.facts(task.model),
    )


if __name__ == "__main__":
    main()
