"""The callbacks that training on several workers needs, in the order that it needs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import keras

from farandole.engine import context
from farandole.engine.objects import allgather_object
from farandole.errors import UsageError
from farandole.keras.callbacks.best_model import BestModelCheckpoint
from farandole.keras.callbacks.broadcast import BroadcastGlobalVariablesCallback
from farandole.keras.callbacks.learning_rate import LearningRateWarmupCallback, RecipeCallback
from farandole.keras.callbacks.metric_average import MetricAverageCallback
from farandole.recipes import Recipe


class StopTogetherCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Stop every worker at the end of an epoch in which a callback has stopped one of them.

    Put it last: it looks at what callbacks before it have decided. A worker that is stopped in the
    middle of an epoch is too early for this, and an error on every rank.
    """

    def __init__(self) -> None:
        """Prepare."""
        super().__init__()
        self.stopped_by: list[int] = []
        """Ranks that wanted to stop."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop if any rank stops."""
        if context.size() == 1:
            return
        model = self.model
        wishes = allgather_object(bool(model.stop_training), name="keras.stop_training")
        self.stopped_by = [rank for rank, wish in enumerate(wishes) if wish]
        model.stop_training = bool(self.stopped_by)


_OURS = (BroadcastGlobalVariablesCallback, MetricAverageCallback, StopTogetherCallback)


def standard(
    initial_lr: float | None = None,
    *,
    warmup_epochs: float = 5,
    recipe: str | Recipe | None = None,
    base_lr: float | None = None,
    decay: str = "constant",
    checkpoint: str | os.PathLike[str] | keras.callbacks.Callback | None = None,
    early_stopping: int | keras.callbacks.Callback | None = None,
    monitor: str = "val_loss",
    mode: str = "auto",
    callbacks: Iterable[keras.callbacks.Callback] = (),
    root_rank: int = 0,
    steps_per_epoch: int | None = None,
    momentum_correction: bool = True,
    verbose: int = 0,
) -> list[keras.callbacks.Callback]:
    """Return the callbacks for `fit`, in this order.

    1. BroadcastGlobalVariablesCallback: nothing counts before all workers have the same weights.
    2. MetricAverageCallback: whatever decides by metrics must see those over all workers, or
       workers decide differently.
    3. LearningRateWarmupCallback, if there is an `initial_lr`, or RecipeCallback, if there is a
       `recipe`: before callbacks that lower the rate at the end of an epoch.
    4. `callbacks`, yours: among them ReduceLROnPlateau, TensorBoard.
    5. BestModelCheckpoint and EarlyStopping: after yours, which may add to the logs; the
       checkpoint first, so that the last epoch is saved, too.
    6. StopTogetherCallback: last, when everybody has said whether to stop.

    Call `hvd.init()` before.

    Args:
        initial_lr: the learning rate after warm-up, the one that the optimizer has: usually
            `rate * hvd.size()`. None is for no warm-up.
        warmup_epochs: how long warm-up takes.
        recipe: how the learning rate follows from `base_lr` and the number of workers (its name,
            or one of your own), instead of `initial_lr`.
        base_lr: the learning rate that is good for one worker, with `recipe`.
        decay: how the rate falls in the course of training, with `recipe`.
        checkpoint: where rank 0 keeps the best model (ends in .keras, or in .weights.h5 for
            weights only), or a callback of yours.
        early_stopping: after how many epochs without a better `monitor` to stop, or an
            EarlyStopping of yours.
        monitor: the metric that the last two go by.
        mode: "min", "max", or "auto" to know by the metric.
        callbacks: more of them.
        root_rank: whose weights count at the beginning.
        steps_per_epoch: batches per epoch, for warm-up, where `fit` does not know.
        momentum_correction: as of LearningRateScheduleCallback.
        verbose: 1 to let rank 0 say when warm-up ends, the model is saved, training stops.

    Example:
        model.fit(x, y, callbacks=hvd.callbacks.standard(0.1 * hvd.size(), early_stopping=3))
    """
    loud = verbose if context.rank() == 0 else 0
    yours = list(callbacks)
    for callback in yours:
        if isinstance(callback, _OURS):
            raise UsageError(
                f"{type(callback).__name__} is part of standard(). Leave it out of callbacks=."
            )
    chosen: list[Any] = [BroadcastGlobalVariablesCallback(root_rank), MetricAverageCallback()]
    _check_rates(initial_lr, recipe, base_lr)
    if recipe is not None and base_lr is not None:
        chosen.append(
            RecipeCallback(
                recipe,
                base_lr,
                decay=decay,
                momentum_correction=momentum_correction,
                steps_per_epoch=steps_per_epoch,
                verbose=loud,
            )
        )
    if initial_lr is not None:
        chosen.append(
            LearningRateWarmupCallback(
                initial_lr,
                warmup_epochs=warmup_epochs,
                momentum_correction=momentum_correction,
                steps_per_epoch=steps_per_epoch,
                verbose=loud,
            )
        )
    chosen += yours
    if isinstance(checkpoint, keras.callbacks.Callback):
        chosen.append(checkpoint)
    elif checkpoint is not None:
        path = os.fspath(checkpoint)
        chosen.append(
            BestModelCheckpoint(
                monitor=monitor,
                mode=mode,
                verbose=loud,
                save_weights_only=path.endswith(".weights.h5"),
                filepath=path,
            )
        )
    if isinstance(early_stopping, keras.callbacks.Callback):
        chosen.append(early_stopping)
    elif early_stopping is not None:
        chosen.append(
            keras.callbacks.EarlyStopping(
                monitor=monitor, mode=mode, patience=_patience(early_stopping), verbose=loud
            )
        )
    return [*chosen, StopTogetherCallback()]


def _check_rates(
    initial_lr: float | None, recipe: str | Recipe | None, base_lr: float | None
) -> None:
    if (recipe is None) != (base_lr is None):
        raise UsageError(
            f"recipe={recipe!r} and base_lr={base_lr!r}: a recipe makes the learning rate from the "
            "one that is good for one worker. Give both, or none."
        )
    if recipe is not None and initial_lr is not None:
        raise UsageError(
            f"recipe={recipe!r} and initial_lr={initial_lr!r} both set the learning rate. Leave "
            "one of them out."
        )


def _patience(early_stopping: Any) -> int:
    if isinstance(early_stopping, bool) or not isinstance(early_stopping, int):
        raise UsageError(
            f"early_stopping={early_stopping!r}: give the number of epochs to wait for a better "
            "metric, or a keras.callbacks.EarlyStopping."
        )
    return early_stopping
