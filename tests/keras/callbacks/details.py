"""Checks of the callbacks that are the same on every backend."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest

import farandole.keras as hvd
from farandole.errors import CollectiveError, MismatchError, UsageError
from farandole.keras import metrics
from tests.keras.callbacks.everywhere import (
    VALIDATION,
    Watch,
    X,
    Y,
    assert_near,
    assert_same_on_all,
    fit,
    model,
    share,
    slope,
    train_slope,
    whole,
)
from tests.keras.seeding import seed_weights


class Says(keras.callbacks.Callback):
    """Puts something into the logs."""

    def __init__(self, *names: str, value: Any) -> None:
        super().__init__()
        self.names, self.value = names, value

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs.update(dict.fromkeys(self.names, self.value))


def messages(caught: list[warnings.WarningMessage]) -> list[str]:
    """What was said of metrics; NumPy warns of Keras's own ways, too."""
    return [str(warning.message) for warning in caught if warning.category is RuntimeWarning]


def check_numbers_that_others_log_are_averaged_by_samples() -> None:
    says = Says("mine", value=float(hvd.rank()))
    history = fit(model(), [says, hvd.callbacks.MetricAverageCallback()])
    # Batches of 8 and of 5 samples.
    np.testing.assert_allclose(history["mine"], [5 / 13], rtol=1e-12)


def check_a_log_of_one_rank_is_said_and_is_everybodys() -> None:
    says = [Says("extra", value=2.5)] if hvd.rank() == 1 else []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = fit(model(), [*says, hvd.callbacks.MetricAverageCallback()])
    assert len(messages(caught)) == 1, messages(caught)
    assert "missing: extra on rank 0" in messages(caught)[0], messages(caught)
    assert history["extra"] == [2.5]
    assert_same_on_all(messages(caught))
    assert_same_on_all(history)


def check_validation_on_one_rank_only_is_said() -> None:
    options = {"validation_data": (X[:7], Y[:7])} if hvd.rank() == 0 else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = fit(model(), [hvd.callbacks.MetricAverageCallback()], **options)
    assert "val_loss on rank 1" in messages(caught)[0], messages(caught)
    assert_same_on_all(history)


def check_an_evaluation_in_between_does_not_spoil_the_averages() -> None:
    class Evaluates(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.evaluate(X[:3], Y[:3], verbose=0)

    before = Watch()
    average = hvd.callbacks.MetricAverageCallback()
    history = fit(model(), [Evaluates(), before, average], epochs=2)
    everyone = hvd.allgather_object([logs["loss"] for logs in before.logs])
    # Whose metrics were reset has no count of samples any more.
    np.testing.assert_allclose(history["loss"], np.mean(everyone, axis=0), rtol=1e-6)


def check_there_is_one_exchange_per_epoch() -> None:
    calls = []
    plain = metrics.allgather_object

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        return plain(*arguments, **named)

    metrics.allgather_object = counted  # type: ignore[attr-defined]
    try:
        fit(
            model(),
            [hvd.callbacks.MetricAverageCallback()],
            epochs=3,
            validation_data=(X[:7], Y[:7]),
        )
    finally:
        metrics.allgather_object = plain  # type: ignore[attr-defined]
    assert len(calls) == 3


def check_metrics_of_a_step_of_ones_own() -> None:
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.seen = keras.metrics.Sum(name="seen")

        def call(self, x: Any) -> Any:
            return self.dense(x)

        @property
        def metrics(self) -> list[Any]:
            return [self.seen]

        def train_step(self, data: Any) -> dict[str, Any]:
            self.seen.update_state(keras.ops.ones((len(data[0]),)))
            return {"seen": self.seen.result()}

    net = Own()
    net.compile(keras.optimizers.SGD(0.1), "mse")
    history = fit(net, [hvd.callbacks.MetricAverageCallback()])
    assert history["seen"] == [4.0 * (8 + 5)]


def check_local_variables_stay_each_ranks_own() -> None:
    net = model(seed=hvd.rank())
    net.optimizer.build(net.trainable_variables)
    kernel = net.layers[0].kernel
    own = keras.ops.convert_to_numpy(kernel).copy()
    watch = Watch()
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[kernel])
    fit(net, [callback, watch])
    np.testing.assert_array_equal(watch.at_begin[0], own)
    assert_same_on_all([w.tolist() for w in watch.at_begin[1:]])


def check_what_an_optimizer_keeps_for_local_variables_is_local() -> None:
    from farandole.keras.callbacks import global_variables

    net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dropout(0.5)])
    net.compile(keras.optimizers.Adam(0.1), "mse")
    net.optimizer.build(net.trainable_variables)
    everything = global_variables(net)
    # Two weights, the rate, the count of steps, two moments each; no state of Dropout's random.
    assert len(everything) == 8
    left = global_variables(net, [net.layers[0].kernel])
    assert [v.path for v in left] == [v.path for v in everything if "kernel" not in v.path]
    assert len(left) == 5


def check_another_model_on_a_rank_is_an_error_on_all() -> None:
    seed_weights(1)
    net = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1 + hvd.rank())])
    net.compile(keras.optimizers.SGD(0.1), "mse")
    with pytest.raises(MismatchError, match=r"shape \(6, 2\) on rank 1, and .*\(6, 1\) on rank 0"):
        fit(net, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    net = keras.Sequential(
        [keras.Input((6,)), *[keras.layers.Dense(6) for _ in range(1 + hvd.rank())]]
    )
    net.compile(keras.optimizers.SGD(0.1), "mse")
    with pytest.raises(MismatchError, match="Rank 1 has a model and optimizer with 6 variables"):
        fit(net, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])


def check_a_root_that_is_no_rank() -> None:
    with pytest.raises(UsageError, match="root_rank=2"):
        fit(model(), [hvd.callbacks.BroadcastGlobalVariablesCallback(2)])


def check_a_schedule_of_epochs() -> None:
    watch = Watch()
    schedule = hvd.callbacks.LearningRateScheduleCallback(
        0.5, lambda epoch: 0.1**epoch, start_epoch=1, end_epoch=3
    )
    moved = train_slope(slope(keras.optimizers.SGD(0.25)), [schedule, watch], epochs=4)
    expected = np.repeat([0.25, 0.05, 0.005, 0.005], 3)
    np.testing.assert_allclose(watch.rates, expected, rtol=1e-6)
    np.testing.assert_allclose(moved, -expected.sum(), rtol=1e-5)


def check_a_constant_multiplier_and_others_that_set_the_rate() -> None:
    class Lowers(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = 0.001

    watch = Watch()
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.5, 0.1, end_epoch=2, staircase=False)
    train_slope(slope(keras.optimizers.SGD(0.25)), [schedule, Lowers(), watch], epochs=3)
    np.testing.assert_allclose(watch.rates, np.repeat([0.05, 0.05, 0.001], 3), rtol=1e-6)


def check_momentum_of_rmsprop_is_corrected() -> None:
    net = slope(keras.optimizers.RMSprop(0.1, momentum=0.9))
    train_slope(net, [], epochs=1)
    before = keras.ops.convert_to_numpy(net.optimizer._momentums[0]).copy()
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5)
    schedule.set_model(net)
    schedule.on_train_begin()
    schedule.on_epoch_begin(0)
    schedule.on_train_batch_begin(0)
    after = keras.ops.convert_to_numpy(net.optimizer._momentums[0])
    np.testing.assert_allclose(after, before / 2, rtol=1e-6)


def check_the_rate_of_an_optimizer_in_a_loss_scale() -> None:
    inner = keras.optimizers.SGD(0.1, momentum=0.9)
    scaled = keras.optimizers.LossScaleOptimizer(inner)
    watch = Watch()
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=1)
    net = slope(scaled)
    train_slope(net, [hvd.callbacks.BroadcastGlobalVariablesCallback(0), warmup, watch], epochs=1)
    np.testing.assert_allclose(watch.rates, [0.2 / 3, 0.25 / 3, 0.1], rtol=1e-6)
    assert float(keras.ops.convert_to_numpy(inner.learning_rate)) == np.float32(0.1)


def check_rates_that_cannot_be_set() -> None:
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.1)
    with pytest.raises(UsageError, match="learning_rate is a ExponentialDecay"):
        train_slope(slope(keras.optimizers.SGD(decay)), [warmup], epochs=1)
    for bad in (0.0, -1, float("nan"), None, "0.1"):
        with pytest.raises(UsageError, match="initial_lr"):
            hvd.callbacks.LearningRateWarmupCallback(bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="warmup_epochs"):
        hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=-1)


def check_batches_that_fit_does_not_know() -> None:
    def batches() -> Any:
        while True:
            yield np.ones((2, 1), "float32"), np.ones((2, 1), "float32")

    net = slope(keras.optimizers.SGD(0.1))
    with pytest.raises(UsageError, match="steps_per_epoch"):
        net.fit(batches(), verbose=0, callbacks=[hvd.callbacks.LearningRateWarmupCallback(0.1)])
    watch = Watch()
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=1, steps_per_epoch=2)
    net.fit(batches(), steps_per_epoch=2, verbose=0, callbacks=[warmup, watch])
    np.testing.assert_allclose(watch.rates, [0.075, 0.1], rtol=1e-6)


def shared_folder() -> Path:
    return Path(hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None))


def remove(folder: Path) -> None:
    hvd.barrier()
    if hvd.rank() == 0:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


class Dictates(keras.callbacks.Callback):
    """Says what the monitored metric is, on each rank another."""

    def __init__(self, *values: tuple[float, float]) -> None:
        super().__init__()
        self.values = values

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["score"] = self.values[epoch][hvd.rank()]


def check_rank_0_decides_what_is_best_and_all_agree() -> None:
    folder = shared_folder()
    nan = float("nan")
    dictates = Dictates((nan, 9.0), (0.5, 9.0), (0.4, 10.0), (0.7, 1.0), (nan, 11.0))
    best = hvd.callbacks.BestModelCheckpoint("score", mode="max", save_weights_only=True)
    best.filepath = folder / "{epoch}-{score:.1f}.weights.h5"
    seen: list[list[str]] = []

    class Looks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(sorted(file.name for file in folder.iterdir()))
            hvd.barrier()

    fit(model(), [dictates, best, Looks()], epochs=5)
    first, second = "2-0.5.weights.h5", "4-0.7.weights.h5"
    assert seen == [[], [first], [first], [first, second], [first, second]]
    assert best.best == 0.7
    remove(folder)


def check_a_model_that_cannot_be_saved_is_an_error_on_all() -> None:
    folder = shared_folder()
    path = folder / "best.keras"
    if hvd.rank() == 0:
        path.mkdir()
    best = hvd.callbacks.BestModelCheckpoint("loss", filepath=path)
    with pytest.raises(CollectiveError, match=r"Rank 0 could not save .*is a folder"):
        fit(model(), [best])
    assert [file.name for file in folder.iterdir()] == ["best.keras"]
    hvd.barrier()
    if hvd.rank() == 0:
        path.rmdir()
    remove(folder)


def check_saving_every_few_batches() -> None:
    folder = shared_folder()
    best = hvd.callbacks.BestModelCheckpoint("loss", save_freq=2, filepath=folder / "b.keras")
    fit(model(), [best], epochs=2)
    assert (folder / "b.keras").exists()
    assert_same_on_all(best.best)
    remove(folder)


def check_paths_that_cannot_be_used() -> None:
    with pytest.raises(UsageError, match="has no filepath"):
        fit(model(), [hvd.callbacks.BestModelCheckpoint()])
    with pytest.raises(UsageError, match=r"must end in \.keras or \.h5"):
        hvd.callbacks.BestModelCheckpoint(filepath="best.weights")
    with pytest.raises(UsageError, match=r"must end in \.weights\.h5"):
        hvd.callbacks.BestModelCheckpoint(filepath="best.keras", save_weights_only=True)


def check_the_standard_order() -> None:
    reduce = keras.callbacks.ReduceLROnPlateau()
    chosen = hvd.callbacks.standard(
        0.1, checkpoint="best.weights.h5", early_stopping=3, callbacks=[reduce], verbose=1
    )
    assert [type(callback).__name__ for callback in chosen] == [
        "BroadcastGlobalVariablesCallback",
        "MetricAverageCallback",
        "LearningRateWarmupCallback",
        "ReduceLROnPlateau",
        "BestModelCheckpoint",
        "EarlyStopping",
        "StopTogetherCallback",
    ]
    assert chosen[4].save_weights_only
    assert chosen[5].patience == 3
    # Rank 0 alone speaks.
    assert {chosen[place].verbose for place in (2, 4, 5)} == {int(hvd.rank() == 0)}
    assert [type(callback).__name__ for callback in hvd.callbacks.standard()] == [
        "BroadcastGlobalVariablesCallback",
        "MetricAverageCallback",
        "StopTogetherCallback",
    ]


def check_the_standard_set_refuses_what_makes_no_sense() -> None:
    with pytest.raises(UsageError, match=r"MetricAverageCallback is part of standard"):
        hvd.callbacks.standard(callbacks=[hvd.callbacks.MetricAverageCallback()])
    for bad in (True, 2.5, "3"):
        with pytest.raises(UsageError, match="early_stopping"):
            hvd.callbacks.standard(early_stopping=bad)  # type: ignore[arg-type]


def check_a_recipe_in_the_standard_order() -> None:
    chosen = hvd.callbacks.standard(
        recipe="warmup", base_lr=0.1, early_stopping=1, callbacks=[Watch()], verbose=1
    )
    names = [type(callback).__name__ for callback in chosen]
    assert names[1:4] == ["MetricAverageCallback", "RecipeCallback", "Watch"]
    assert chosen[2].verbose == int(hvd.rank() == 0)
    for bad in ({"recipe": "warmup"}, {"base_lr": 0.1}):
        with pytest.raises(UsageError, match="Give both, or none"):
            hvd.callbacks.standard(**bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="both set the learning rate"):
        hvd.callbacks.standard(0.1, recipe="warmup", base_lr=0.1)


def check_recipes_that_cannot_be_used() -> None:
    with pytest.raises(UsageError, match="There is no recipe 'none'"):
        hvd.callbacks.RecipeCallback("none", 0.1)
    with pytest.raises(UsageError, match="There is no decay 'none'"):
        hvd.callbacks.RecipeCallback("fixed", 0.1, decay="none")
    with pytest.raises(UsageError, match="base_lr"):
        hvd.callbacks.RecipeCallback("fixed", 0.0)


def check_a_recipe_sets_what_it_changes_and_leaves_the_rest() -> None:
    class Lowers(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = 0.001

    watch, told = Watch(), hvd.callbacks.RecipeCallback("linear", 0.1, epochs=8, workers=5)
    train_slope(slope(keras.optimizers.SGD(0.25)), [told, Lowers(), watch], epochs=2)
    np.testing.assert_allclose(watch.rates, np.repeat([0.5, 0.001], 3), rtol=1e-6)
    assert told.describe() == "linear: learning rate 0.1 x 5 = 0.5"
    # A run that goes on has the rate of where it is.
    watch, ones = Watch(), np.ones((6, 1), "float32")
    told = hvd.callbacks.RecipeCallback("warmup", 0.1, workers=3)
    net = slope(keras.optimizers.SGD(0.25))
    net.fit(ones, ones, batch_size=6, initial_epoch=1, epochs=4, verbose=0, callbacks=[told, watch])
    np.testing.assert_allclose(watch.rates, [0.2, 0.3, 0.3], rtol=1e-6)


def check_the_example_of_the_docs_of_recipes_runs() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "recipes.md"
    example = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[1]
    said = StringIO()
    # As a study says it.
    study = {"FARANDOLE_PARAMS": '{"recipe": "longer"}'}
    with mock.patch.dict(os.environ, study), redirect_stdout(said):
        exec(example, names := {})
    expected = "longer: learning rate 0.05, for 2 times the epochs\n"
    assert said.getvalue() == (expected if hvd.rank() == 0 else "")
    history = names["model"].history.history
    np.testing.assert_allclose(history["learning_rate"], [0.05] * 8, rtol=1e-6)
    assert history["accuracy"][-1] > 0.6


def check_plateaus_are_the_same_on_every_rank() -> None:
    net = model(rate=-0.5, seed=hvd.rank())
    mine = share(VALIDATION)
    reduce = keras.callbacks.ReduceLROnPlateau(patience=1, factor=0.5, min_lr=-1)
    history = fit(
        net,
        hvd.callbacks.standard(callbacks=[reduce]),
        epochs=4,
        validation_data=(X[mine], Y[mine]),
    )
    assert_same_on_all(history)
    everything = whole(VALIDATION)
    expected = net.evaluate(X[everything], Y[everything], verbose=0, return_dict=True)
    assert_near({name: history[f"val_{name}"][-1] for name in expected}, expected)


def check_the_example_of_the_docs_runs() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "keras.md"
    example = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[-1]
    folder = shared_folder()
    mine = share(VALIDATION)
    names = {"hvd": hvd, "keras": keras, "model": model()}
    names |= {"x": X[:16], "y": Y[:16], "x_valid": X[mine], "y_valid": Y[mine]}
    exec(example.replace("best.keras", str(folder / "best.keras")), names)
    assert [file.name for file in folder.iterdir()] == ["best.keras"]
    remove(folder)
