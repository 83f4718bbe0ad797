"""Checks of the callbacks that each backend has to pass."""

from __future__ import annotations

import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np

import farandole.keras as hvd
from farandole.recipes import recipe
from tests.keras.seeding import seed_weights

# What each rank has: unequal shares of validation, and batches of unequal size in training.
BATCHES = (8, 5, 3)
# JAX compiles for each size of batch, which takes seconds: no last batch of another size there.
VALIDATION = (20, 12, 4) if keras.backend.backend() == "jax" else (20, 11, 6)
VALIDATION_BATCH = 4
STEPS = 4
RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(STEPS * sum(BATCHES), 6)).astype("float32")
Y = (X @ RANDOM.normal(size=6) + RANDOM.normal(size=len(X)) > 0).astype("float32")[:, None]


class Hundredfold(keras.metrics.Metric):
    """A user's metric, of whose state nothing is known: the mean prediction, times 100."""

    def __init__(self, name: str = "hundredfold", **options: Any) -> None:
        super().__init__(name=name, **options)
        self.total = self.add_variable((), "zeros", name="total")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(100.0 * keras.ops.sum(y_pred))
        self.count.assign_add(keras.ops.cast(keras.ops.size(y_pred), "float32"))

    def result(self) -> Any:
        return self.total / self.count


class Watch(keras.callbacks.Callback):
    """Writes down what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []
        self.logs: list[dict[str, float]] = []
        self.at_begin: list[np.ndarray] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.at_begin = [np.array(w) for w in self.model.get_weights()]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.logs.append(dict(logs))


def share(parts: tuple[int, ...]) -> slice:
    ends = np.cumsum((0, *parts[: hvd.size()]))
    return slice(int(ends[hvd.rank()]), int(ends[hvd.rank() + 1]))


def whole(parts: tuple[int, ...]) -> slice:
    return slice(0, sum(parts[: hvd.size()]))


def model(
    rate: float = 0.1,
    seed: int = 3,
    loss: str = "binary_crossentropy",
    metrics: list[Any] | None = None,
) -> keras.Model:
    seed_weights(seed)
    net = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(5, "tanh"),
            keras.layers.Dense(1, "sigmoid"),
        ]
    )
    net.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(rate)),
        loss,
        metrics=metrics or ["accuracy"],
    )
    return net


def fit(net: keras.Model, callbacks: list[Any], epochs: int = 1, **options: Any) -> dict[str, Any]:
    batch = BATCHES[hvd.rank()]
    mine = share(tuple(STEPS * size for size in BATCHES))
    history = net.fit(
        *(X[mine], Y[mine]),
        batch_size=batch,
        epochs=epochs,
        callbacks=callbacks,
        verbose=0,
        shuffle=False,
        **options,
    )
    found: dict[str, Any] = history.history
    return found


def assert_same_on_all(value: Any) -> None:
    everyone = hvd.allgather_object(value)
    assert all(str(other) == str(everyone[0]) for other in everyone), everyone


def assert_near(got: dict[str, float], expected: dict[str, float]) -> None:
    assert got.keys() == expected.keys(), (got, expected)
    for name in expected:
        assert abs(got[name] - expected[name]) <= 1e-6 * max(1, abs(expected[name])), (
            f"{name}: {got[name]} instead of {expected[name]}"
        )


@cache
def measured() -> keras.Model:
    """A model with metrics of all kinds; at a rate of 0 all batches see the same weights."""
    return model(rate=0.0, metrics=["accuracy", keras.metrics.AUC(name="auc"), Hundredfold()])


def evaluated(net: keras.Model, part: slice, batch: int, **options: Any) -> Any:
    return net.evaluate(X[part], Y[part], batch_size=batch, verbose=0, return_dict=True, **options)


def check_metrics_are_those_of_one_process() -> None:
    net, mine = measured(), share(VALIDATION)
    history = fit(
        net,
        [hvd.callbacks.MetricAverageCallback()],
        epochs=2,
        validation_data=(X[mine], Y[mine]),
        validation_batch_size=VALIDATION_BATCH,
        validation_freq=2,
    )
    trained = evaluated(net, whole(tuple(STEPS * size for size in BATCHES)), VALIDATION_BATCH)
    validated = evaluated(net, whole(VALIDATION), VALIDATION_BATCH)
    assert set(trained) == {"loss", "accuracy", "auc", "hundredfold"}
    # An epoch without validation, and one with it, which resets the metrics of training.
    for epoch in range(2):
        assert_near({name: history[name][epoch] for name in trained}, trained)
    assert_near({name: history[f"val_{name}"][0] for name in validated}, validated)
    assert_same_on_all(history)


def check_evaluate_returns_metrics_over_all_workers() -> None:
    net, mine = measured(), share(VALIDATION)
    expected = evaluated(net, whole(VALIDATION), VALIDATION_BATCH)
    own = evaluated(net, mine, VALIDATION_BATCH)
    average = hvd.callbacks.MetricAverageCallback()
    got = evaluated(net, mine, VALIDATION_BATCH, callbacks=[average])
    assert_near(got, expected)
    listed = net.evaluate(
        X[mine], Y[mine], batch_size=VALIDATION_BATCH, verbose=0, callbacks=[average]
    )
    assert listed == [got[name] for name in ("loss", "accuracy", "auc", "hundredfold")]
    # Without the callback it is this rank's again.
    assert evaluated(net, mine, VALIDATION_BATCH) == own


def check_later_callbacks_see_averages() -> None:
    before, after = Watch(), Watch()
    history = fit(model(), [before, hvd.callbacks.MetricAverageCallback(), after], epochs=2)
    assert [logs["loss"] for logs in after.logs] == history["loss"]
    everyone = hvd.allgather_object([logs["loss"] for logs in before.logs])
    weights = np.array(BATCHES[: hvd.size()], float)
    expected = np.average(np.array(everyone), axis=0, weights=weights)
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-6)


def check_a_metric_that_is_not_a_number_is_said_on_every_rank() -> None:
    net = model(rate=0.0, loss="mse", metrics=["mae"])
    mine = share(VALIDATION)
    x = X[mine].copy()
    if hvd.rank() == 1:
        x[0] = np.nan
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = fit(net, [hvd.callbacks.MetricAverageCallback()], validation_data=(x, Y[mine]))
    said = [str(w.message) for w in caught if "not a number" in str(w.message)]
    assert len(said) == 1, [str(w.message) for w in caught]
    assert "val_loss on rank 1" in said[0], said
    assert np.isnan(history["val_loss"][0])
    assert np.isfinite(history["loss"][0])
    assert_same_on_all(said)
    assert_same_on_all(history)


def slope(optimizer: Any) -> keras.Model:
    """A model of one weight, whose gradient is 1 whatever it is."""
    net = keras.Sequential(
        [
            keras.Input((1,)),
            keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros"),
        ]
    )
    net.compile(
        hvd.DistributedOptimizer(optimizer), loss=lambda y_true, y_pred: keras.ops.mean(y_pred)
    )
    return net


def train_slope(net: keras.Model, callbacks: list[Any], epochs: int) -> float:
    ones = np.ones((6, 1), "float32")
    net.fit(ones, ones, batch_size=2, epochs=epochs, verbose=0, callbacks=callbacks)
    return float(net.get_weights()[0][0, 0])


def warmup_rates(full: float, epochs: int, warmup: int) -> list[float]:
    size, steps = hvd.size(), 3
    line = [
        full / size * (1 + (size - 1) * (step + 1) / (warmup * steps))
        for step in range(warmup * steps)
    ]
    return line + [full] * ((epochs - warmup) * steps)


def check_warmup_sets_the_rate_of_every_batch() -> None:
    watch = Watch()
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.6, warmup_epochs=2)
    net = slope(keras.optimizers.SGD(0.6))
    moved = train_slope(net, [warmup], epochs=3)
    expected = warmup_rates(0.6, epochs=3, warmup=2)
    # The compiled step took them. Nobody watches: on JAX looking at the model puts it in order.
    np.testing.assert_allclose(moved, -sum(expected), rtol=1e-5)
    train_slope(net, [warmup, watch], epochs=3)
    np.testing.assert_allclose(watch.rates, expected, rtol=1e-6)
    np.testing.assert_allclose(
        [logs["learning_rate"] for logs in watch.logs], expected[2::3], rtol=1e-6
    )


def check_momentum_is_corrected_when_the_rate_changes() -> None:
    for corrected in (True, False):
        net = slope(keras.optimizers.SGD(0.6, momentum=0.9))
        warmup = hvd.callbacks.LearningRateWarmupCallback(
            0.6, warmup_epochs=2, momentum_correction=corrected
        )
        moved = train_slope(net, [warmup], epochs=3)
        old, velocity, expected = 0.6, 0.0, 0.0
        for rate in warmup_rates(0.6, epochs=3, warmup=2):
            velocity = 0.9 * velocity * (rate / old if corrected else 1.0) - rate
            expected, old = expected + velocity, rate
        np.testing.assert_allclose(moved, expected, rtol=1e-5)


def recipe_rates(name: str, decay: str, epochs: int, base: float = 0.2) -> list[float]:
    made = recipe(name)
    return [
        made.rate(base, hvd.size(), step / 3, epochs, decay=decay) for step in range(3 * epochs)
    ]


def check_a_recipe_sets_the_rate_of_every_batch() -> None:
    for name, decay in (("warmup", "constant"), ("linear", "cosine")):
        expected = recipe_rates(name, decay, epochs=4)
        net, watch = slope(keras.optimizers.SGD(0.7)), Watch()
        moved = train_slope(net, [hvd.callbacks.RecipeCallback(name, 0.2, decay=decay)], epochs=4)
        # As above: what the compiled step took, without anybody who looks.
        np.testing.assert_allclose(moved, -sum(expected), rtol=1e-5)
        chosen = hvd.callbacks.standard(recipe=name, base_lr=0.2, decay=decay, callbacks=[watch])
        train_slope(net, chosen, epochs=4)
        np.testing.assert_allclose(watch.rates, expected, rtol=1e-6)
        logged = [logs["learning_rate"] for logs in watch.logs]
        np.testing.assert_allclose(logged, expected[2::3], rtol=1e-6)


def check_momentum_is_corrected_when_a_recipe_changes_the_rate() -> None:
    net = slope(keras.optimizers.SGD(0.2, momentum=0.9))
    moved = train_slope(net, [hvd.callbacks.RecipeCallback("warmup", 0.2)], epochs=4)
    old, velocity, expected = 0.2, 0.0, 0.0
    for rate in recipe_rates("warmup", "constant", epochs=4):
        velocity = 0.9 * velocity * (rate / old) - rate
        expected, old = expected + velocity, rate
    np.testing.assert_allclose(moved, expected, rtol=1e-5)


def check_broadcast_gives_every_rank_the_roots_state() -> None:
    root = hvd.size() - 1
    net = model(seed=hvd.rank())
    own = net.get_weights()
    net.optimizer.learning_rate = 0.01 * (hvd.rank() + 1)
    watch = Watch()
    fit(net, [hvd.callbacks.BroadcastGlobalVariablesCallback(root), watch])
    for got, expected in zip(watch.at_begin, hvd.broadcast_object(own, root), strict=True):
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_allclose(watch.rates, 0.01 * (root + 1), rtol=1e-6)
    assert_same_on_all([w.tolist() for w in net.get_weights()])


def check_broadcast_of_a_model_that_its_first_batch_builds() -> None:
    # Only TensorFlow leaves the building to the first batch: of an epoch with others, or without.
    for batches in (1, 3) if keras.backend.backend() == "tensorflow" else (1,):
        seed_weights(hvd.rank())
        net = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
        net.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(1)
        net.fit(
            *(X[: 4 * batches], Y[: 4 * batches]),
            batch_size=4,
            verbose=0,
            callbacks=[callback],
        )
        assert callback.broadcast_done
        assert_same_on_all([w.tolist() for w in net.get_weights()])
        state = [keras.ops.convert_to_numpy(v).tolist() for v in net.optimizer.variables]
        assert_same_on_all(state)


class StopAt(keras.callbacks.Callback):
    """Stops one rank after an epoch."""

    def __init__(self, epoch: int, rank: int) -> None:
        super().__init__()
        self.epoch, self.rank = epoch, rank

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == self.epoch and hvd.rank() == self.rank:
            self.model.stop_training = True


def check_all_ranks_stop_when_one_does() -> None:
    callbacks = hvd.callbacks.standard(callbacks=[StopAt(epoch=1, rank=1)], monitor="loss")
    history = fit(model(), callbacks, epochs=5)
    assert len(history["loss"]) == 2
    assert callbacks[-1].stopped_by == [1]


def check_standard_set_stops_early_and_keeps_the_best_model() -> None:
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    path = Path(folder, "made", "best.keras")
    # The wrong way: the loss only grows, so that the first epoch is the best.
    net = model(rate=-0.5, seed=hvd.rank())
    mine = share(VALIDATION)
    early = keras.callbacks.EarlyStopping(patience=2)
    watch = Watch()
    callbacks = hvd.callbacks.standard(checkpoint=path, early_stopping=early, callbacks=[watch])
    history = fit(
        net,
        callbacks,
        epochs=9,
        validation_data=(X[mine], Y[mine]),
        validation_batch_size=VALIDATION_BATCH,
    )
    assert len(history["val_loss"]) == 3, history
    assert_same_on_all(history)
    assert early.stopped_epoch == 2
    # Every rank finds the file, and nothing beside it.
    assert [file.name for file in path.parent.iterdir()] == ["best.keras"]
    best = keras.models.load_model(path)
    loss = evaluated(best, whole(VALIDATION), VALIDATION_BATCH)["loss"]
    np.testing.assert_allclose(loss, history["val_loss"][0], rtol=1e-6)
    hvd.barrier()
    if hvd.rank() == 0:
        path.unlink()
        path.parent.rmdir()
        Path(folder).rmdir()
