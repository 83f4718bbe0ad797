"""The learning rate, told when it has changed: a schedule that decays is seen afterwards."""

from __future__ import annotations

from typing import Any

from farandole.recorder.recorder import Recorder

# A schedule that changes a little in every step makes some hundreds of lines, not one per step.
LEAST_CHANGE = 0.01


class Rates:
    """Remembers what was told last."""

    def __init__(self) -> None:
        self._told: float | None = None
        self._same: float | None = None
        """The very object that held in the step before."""

    def held_by(self, recorder: Recorder, optimizer: Any) -> None:
        """Tell which learning rate one of torch's optimizers has in the step that ends."""
        groups = optimizer.param_groups
        rate = groups[0].get("lr")
        # The usual case, at the least cost; a tensor may be another number than it was.
        if rate is self._same and rate.__class__ is float and len(groups) == 1:
            return
        self._same = rate
        self.held(recorder, recorder.steps, torch_rate(optimizer))

    def held(self, recorder: Recorder, step: int, rate: float | None) -> None:
        """Tell which learning rate held in a step, if it is another than was told last.

        Args:
            recorder: is told.
            step: number of the step, from 0.
            rate: None where it is not known.
        """
        if rate is None or rate == self._told:
            return
        if self._told is None or abs(rate - self._told) >= LEAST_CHANGE * abs(self._told):
            self._told = rate
            recorder.tell("learning_rate", step=step, value=rate)


def torch_rate(optimizer: Any) -> float | None:
    """Return the largest rate of an optimizer's groups; None where reading it would take long."""
    rates = [group["lr"] for group in optimizer.param_groups if "lr" in group]
    # One on a GPU would have to be waited for.
    if not rates or any(getattr(rate, "is_cuda", False) for rate in rates):
        return None
    return float(max(rates))


def keras_rate(optimizer: Any) -> float | None:
    """Return an optimizer's rate as it is now, also where a schedule computes it."""
    import keras

    try:
        return float(keras.ops.convert_to_numpy(optimizer.learning_rate))
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None  # the program's own kind of rate


def has_schedule(optimizer: Any) -> bool:
    """Say whether a schedule of Keras's computes an optimizer's rate in each step."""
    import keras

    kind: Any = keras.optimizers.schedules.LearningRateSchedule
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return isinstance(getattr(inner, "_learning_rate", None), kind)
