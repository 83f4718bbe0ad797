"""Checks of gradients combined over the workers, against one process with the global batch."""

from __future__ import annotations

import tempfile
from pathlib import Path

import keras
import numpy as np
import pytest

import farandole.keras as hvd
from farandole.errors import MismatchError, StepsDifferError, UsageError
from tests.keras.seeding import seed_weights

BATCH, STEPS = 8, 20
BACKEND = keras.backend.backend()


def data(steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    """The global data: `size` batches for every step."""
    random = np.random.default_rng(1)
    count = BATCH * hvd.size() * steps
    return random.normal(size=(count, 6)).astype("float32"), random.normal(size=(count, 2)).astype(
        "float32"
    )


def share(array: np.ndarray, rank: int) -> np.ndarray:
    """One worker's part of every global batch."""
    return array.reshape(-1, hvd.size(), BATCH, *array.shape[1:])[:, rank].reshape(
        -1, *array.shape[1:]
    )


def model(seed: int = 3, **options: object) -> keras.Model:
    seed_weights(seed)
    return keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(2)], **options
    )


def weights(net: keras.Model) -> np.ndarray:
    return np.concatenate([np.ravel(w) for w in net.get_weights()])


def trained_alone(
    optimizer: keras.optimizers.Optimizer, steps: int = STEPS, passes: int = 1
) -> np.ndarray:
    """What one process ends with: rank 0 finds it out, as it is, and tells the others."""
    found = None
    if hvd.rank() == 0:
        net = model()
        # Compiling would take longer than all steps.
        net.compile(optimizer, "mse", run_eagerly=True)
        x, y = data(steps)
        net.fit(x, y, batch_size=passes * BATCH * hvd.size(), shuffle=False, verbose=0)
        found = weights(net)
    return hvd.broadcast_object(found)


def trained_together(
    optimizer: keras.optimizers.Optimizer, steps: int = STEPS, **compile_options: object
) -> np.ndarray:
    net = model()
    net.compile(optimizer, "mse", **compile_options)
    x, y = (share(array, hvd.rank()) for array in data(steps))
    net.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    return weights(net)


def assert_close(got: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-6) -> None:
    distance = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
    assert distance < tolerance, f"{distance} apart"


def assert_same_on_all(got: np.ndarray) -> None:
    everyone = hvd.allgather_object(got.tobytes())
    assert all(other == everyone[0] for other in everyone), "ranks differ"


def check_sgd() -> None:
    got = trained_together(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))
    assert_same_on_all(got)
    assert_close(got, trained_alone(keras.optimizers.SGD(0.1, momentum=0.9)))


def check_adam() -> None:
    got = trained_together(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    assert_same_on_all(got)
    assert_close(got, trained_alone(keras.optimizers.Adam(0.01)))


def check_clipping_sees_the_average() -> None:
    got = trained_together(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, global_clipnorm=0.1)))
    assert_close(got, trained_alone(keras.optimizers.SGD(0.1, global_clipnorm=0.1)))


def check_sum_is_size_times_the_average() -> None:
    got = trained_together(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Sum))
    assert_close(got, trained_alone(keras.optimizers.SGD(0.1 * hvd.size())))


def check_predivide() -> None:
    wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), gradient_predivide_factor=2.0)
    assert_close(trained_together(wrapped), trained_alone(keras.optimizers.SGD(0.1)))


def check_several_passes_per_step() -> None:
    wrapped = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    got = trained_together(wrapped)
    assert int(wrapped.iterations) == STEPS // 2
    assert_same_on_all(got)
    assert_close(got, trained_alone(keras.optimizers.SGD(0.1), passes=2))


def check_half_precision_on_the_way() -> None:
    alone = trained_alone(keras.optimizers.SGD(0.1))
    for compression, tolerance in ((hvd.Compression.fp16, 1e-3), (hvd.Compression.bf16, 1e-2)):
        got = trained_together(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), compression=compression)
        )
        assert_same_on_all(got)
        assert_close(got, alone, tolerance)
        assert not np.array_equal(got, alone)


def check_a_variable_without_gradient() -> None:
    """A layer that does not take part stays as it is; the others are combined."""
    seed_weights(3)
    inputs = keras.Input((6,))
    used, unused = keras.layers.Dense(2), keras.layers.Dense(2)
    net = keras.Model(inputs, used(inputs) + keras.ops.stop_gradient(unused(inputs)))
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    before = [np.array(w) for w in unused.get_weights()]
    x, y = (share(array, hvd.rank()) for array in data())
    net.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    assert_same_on_all(weights(net))
    for was, now in zip(before, unused.get_weights(), strict=True):
        assert np.array_equal(was, now)


def check_local_layers() -> None:
    net = model()
    layer = net.layers[-1]
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=layer)
    net.compile(optimizer, "mse")
    x, y = (share(array, hvd.rank()) for array in data())
    net.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    everyone = hvd.allgather_object([np.ravel(w).tobytes() for w in layer.get_weights()])
    assert everyone[0] != everyone[1], "the local layer was combined"


def check_an_embedding() -> None:
    """Sparse gradients travel as dense ones."""

    def net() -> keras.Model:
        seed_weights(5)
        return keras.Sequential(
            [
                keras.Input((3,), dtype="int32"),
                keras.layers.Embedding(11, 4),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )

    random = np.random.default_rng(2)
    x = random.integers(0, 11, (BATCH * hvd.size() * 5, 3)).astype("int32")
    y = random.normal(size=(len(x), 1)).astype("float32")
    together, alone = net(), net()
    together.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    together.fit(
        share(x, hvd.rank()), share(y, hvd.rank()), batch_size=BATCH, shuffle=False, verbose=0
    )
    alone.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    alone.fit(x, y, batch_size=BATCH * hvd.size(), shuffle=False, verbose=0)
    assert_close(weights(together), weights(alone))


def check_train_on_batch() -> None:
    net, reference = model(), model()
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    reference.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    x, y = data(1)
    net.train_on_batch(share(x, hvd.rank()), share(y, hvd.rank()))
    reference.train_on_batch(x, y)
    assert_close(weights(net), weights(reference))


def check_a_loop_of_ones_own() -> None:
    net, reference = model(), model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    optimizer.build(net.trainable_variables)
    plain = keras.optimizers.SGD(0.1)
    plain.build(reference.trainable_variables)
    x, y = data(5)
    for step in range(5):
        part = slice(step * BATCH, (step + 1) * BATCH)
        _own_step(net, optimizer, share(x, hvd.rank())[part], share(y, hvd.rank())[part])
        whole = slice(step * BATCH * hvd.size(), (step + 1) * BATCH * hvd.size())
        _own_step(reference, plain, x[whole], y[whole])
    assert_same_on_all(weights(net))
    assert_close(weights(net), weights(reference))


def check_variables_in_another_order_and_in_parts() -> None:
    """A rank may give variables in its own order; a step may leave some of them out."""
    net, reference = model(), model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    optimizer.build(net.trainable_variables)
    plain = keras.optimizers.SGD(0.1, momentum=0.9)
    plain.build(reference.trainable_variables)
    count = len(net.trainable_variables)
    for step in range(6):
        chosen = list(range(count)) if step % 3 else [step % count, (step + 2) % count]
        mean = (hvd.size() - 1) / 2
        for kind, one, value in (
            (optimizer, net, float(hvd.rank())),
            (plain, reference, mean),
        ):
            order = chosen if hvd.rank() == 0 or one is reference else chosen[::-1]
            variables = [one.trainable_variables[i] for i in order]
            gradients = [
                keras.ops.ones(v.shape) * (value + i) for i, v in zip(order, variables, strict=True)
            ]
            kind.apply(gradients, variables)
    assert_same_on_all(weights(net))
    assert_close(weights(net), weights(reference))


def check_every_optimizer() -> None:
    """Each of Keras's does with the workers' gradients what it does with their mean."""
    kinds = {
        name: kind
        for name, kind in vars(keras.optimizers).items()
        if isinstance(kind, type) and issubclass(kind, keras.optimizers.Optimizer)
    }
    made = {
        name: kind
        for name, kind in kinds.items()
        if name not in ("Optimizer", "LossScaleOptimizer")
    }
    assert len(made) >= 12
    if "MultiOptimizer" in made:
        # What makes the choice here is called with a variable.
        made["MultiOptimizer"] = lambda **_: kinds["MultiOptimizer"](
            keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1))
        )
    for name, make in made.items():
        net, reference = model(), model()
        wrapped, plain = hvd.DistributedOptimizer(make(learning_rate=0.1)), make(learning_rate=0.1)
        for optimizer, one in ((wrapped, net), (plain, reference)):
            optimizer.build(one.trainable_variables)
            for step in range(3):
                mine = hvd.rank() if optimizer is wrapped else (hvd.size() - 1) / 2
                gradients = [
                    keras.ops.cos(keras.ops.reshape(keras.ops.arange(np.prod(v.shape)), v.shape))
                    + (mine + step)
                    for v in one.trainable_variables
                ]
                optimizer.apply(gradients, one.trainable_variables)
        assert_same_on_all(weights(net))
        distance = np.linalg.norm(weights(net) - weights(reference))
        assert distance < 1e-5 * np.linalg.norm(weights(reference)), f"{name}: {distance} apart"


def check_several_steps_in_one_execution() -> None:
    """Also where a gradient does not depend on its weight, and could come before the update."""
    got = trained_together(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), steps_per_execution=4
    )
    assert_same_on_all(got)
    assert_close(got, trained_alone(keras.optimizers.SGD(0.1)))
    net = keras.Sequential(
        [keras.Input((512,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    net.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)),
        loss=lambda y_true, y_pred: keras.ops.mean(y_pred),
        steps_per_execution=4,
    )
    random = np.random.default_rng(8)
    x = random.normal(size=(STEPS * hvd.size() * BATCH, 512)).astype("float32")
    mine = share(x, hvd.rank())
    net.fit(mine, np.zeros((len(mine), 1)), batch_size=BATCH, shuffle=False, verbose=0)
    assert_close(weights(net), -STEPS * x.mean(axis=0), 1e-5)


def check_each_worker_has_cores_of_its_own() -> None:
    import os

    everyone = hvd.allgather_object(sorted(os.sched_getaffinity(0)))
    cores = sorted({core for own in everyone for core in own})
    if len(cores) % hvd.size() == 0:
        assert sorted(core for own in everyone for core in own) == cores, everyone


def _own_step(net: keras.Model, optimizer: object, x: np.ndarray, y: np.ndarray) -> None:
    if BACKEND == "torch":
        import torch

        loss = keras.ops.mean((net(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2)
        values = [v.value for v in net.trainable_variables]
        # Not by backward(): these gradients never were in `.grad`.
        gradients = torch.autograd.grad(loss, values)
        with torch.no_grad():
            optimizer.apply(list(gradients), net.trainable_variables)
    elif BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x) - y) ** 2)
        variables = net.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    else:
        import jax

        def loss_of(values: list) -> object:
            out, _ = net.stateless_call(values, [], x)
            return keras.ops.mean((out - y) ** 2)

        values = [v.value for v in net.trainable_variables]
        gradients = jax.grad(loss_of)(values)
        optimizer.apply(gradients, net.trainable_variables)


def check_a_train_step_of_ones_own() -> None:
    """A model with its own train_step, which on JAX is compiled as a whole."""

    class Own(keras.Sequential):
        def train_step(self, *arguments: object) -> object:
            return super().train_step(*arguments)

    seed_weights(3)
    net = Own([keras.Input((6,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(2)])
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x, y = (share(array, hvd.rank()) for array in data(5))
    net.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    assert_close(weights(net), trained_alone(keras.optimizers.SGD(0.1), 5))


def check_gradients_with_other_memory() -> None:
    """A train_step that gives gradients other memory: the average is of what it gave."""

    class Own(keras.Sequential):
        def train_step(self, given: tuple) -> dict:
            x, y = given[:2]
            self.zero_grad()
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
            loss.backward()
            for variable in self.trainable_weights:
                variable.value.grad.data = variable.value.grad.data / 2
            gradients = [variable.value.grad for variable in self.trainable_weights]
            self.optimizer.apply(gradients, self.trainable_weights)
            return {"loss": loss}

    seed_weights(3)
    net = Own([keras.Input((6,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(2)])
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x, y = (share(array, hvd.rank()) for array in data(5))
    net.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    assert_close(weights(net), trained_alone(keras.optimizers.SGD(0.05), 5))


def check_loss_scaling_decides_alike() -> None:
    """An infinite gradient on one rank skips the update on all of them."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        net = model()
    finally:
        keras.config.set_dtype_policy("float32")
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    assert type(net.optimizer).__name__ == "LossScaleOptimizer"
    before = weights(net)
    x, y = (share(array, hvd.rank()) for array in data(1))
    net.train_on_batch(np.full_like(x, np.inf) if hvd.rank() == 1 else x, y)
    assert np.array_equal(before, weights(net)), "updated by an infinite gradient"
    for _ in range(20):  # the scale falls until gradients are finite
        net.train_on_batch(x, y)
    assert not np.array_equal(before, weights(net))
    assert_same_on_all(weights(net))


def check_saved_without_us_and_resumed_exactly() -> None:
    wrapped = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    x, y = (share(array, hvd.rank()) for array in data())
    half = len(x) // 2
    through = model()
    through.compile(wrapped, "mse")
    through.fit(x[:half], y[:half], batch_size=BATCH, shuffle=False, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.keras")
        through.save(file)
        assert b"farandole" not in file.read_bytes()
        loaded = keras.models.load_model(file)
        assert type(loaded.optimizer) is type(keras.optimizers.Adam())
        assert "apply" not in vars(loaded.optimizer)
        resumed = hvd.load_model(file)
    for net in (through, resumed):
        net.fit(x[half:], y[half:], batch_size=BATCH, shuffle=False, verbose=0)
    assert_same_on_all(weights(resumed))
    assert np.array_equal(weights(through), weights(resumed))


def check_collectives() -> None:
    size, rank = hvd.size(), hvd.rank()
    mean = (size - 1) / 2
    tensor = keras.ops.convert_to_tensor(np.full((2, 3), rank, "float32"))
    got = hvd.allreduce(tensor)
    assert keras.ops.is_tensor(got)
    assert np.allclose(keras.ops.convert_to_numpy(got), mean)
    assert hvd.allreduce(float(rank), op=hvd.Sum) == size * mean
    assert np.allclose(hvd.allreduce(np.float32([rank]), compression=hvd.Compression.fp16), mean)
    gathered = hvd.allgather(keras.ops.convert_to_tensor(np.full((rank + 1, 2), rank, "int32")))
    assert keras.ops.convert_to_numpy(gathered)[:, 0].tolist() == [
        r for r in range(size) for _ in range(r + 1)
    ]
    assert keras.ops.convert_to_numpy(hvd.broadcast(tensor, 1)).max() == 1
    assert hvd.reducescatter(np.ones((size, 2)), op=hvd.Sum).shape == (1, 2)
    variable = keras.Variable(np.full(3, rank, "float32"))
    hvd.broadcast_variables([variable], root_rank=1)
    assert keras.ops.convert_to_numpy(variable).tolist() == [1, 1, 1]


def check_adasum() -> None:
    """What points in one direction is averaged, what is at right angles added."""
    size, rank = hvd.size(), hvd.rank()
    same = np.arange(1, 7, dtype="float32").reshape(2, 3)
    got = hvd.allreduce(keras.ops.convert_to_tensor(same), op=hvd.Adasum)
    assert keras.ops.is_tensor(got)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(got), same, rtol=1e-6)
    own = np.eye(size, dtype="float32")[rank] * (rank + 1)
    np.testing.assert_allclose(hvd.allreduce(own, op=hvd.Adasum), np.arange(1, size + 1), rtol=1e-6)
    a, b = np.float32([1, 2, 3]), np.float32([3, -1, 2])
    dot = float(a @ b)
    between = (1 - dot / (2 * a @ a)) * a + (1 - dot / (2 * b @ b)) * b
    got = hvd.allreduce(a if rank == 0 else b, op=hvd.Adasum, compression=hvd.Compression.fp16)
    np.testing.assert_allclose(got, between, rtol=1e-3)
    with pytest.raises(UsageError, match="floating-point numbers, not int32"):
        hvd.allreduce(np.int32([1]), op=hvd.Adasum)
    with pytest.raises(UsageError, match="Adasum cannot combine gradients in buckets"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Adasum)


def check_broadcast_global_variables() -> None:
    net = model(seed=hvd.rank())
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), "mse")
    hvd.broadcast_global_variables(0)
    assert_same_on_all(weights(net))
    later = keras.Sequential([keras.layers.Dense(1)])
    later.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    with pytest.raises(UsageError, match="is not built yet"):
        hvd.broadcast_global_variables(0)


def check_unequal_steps_are_named_at_once() -> None:
    net = model()
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x, y = (share(array, hvd.rank()) for array in data(6))
    mine = len(x) if hvd.rank() else len(x) - 2 * BATCH
    with pytest.raises(StepsDifferError, match="rank 0: at the end of the epoch, after 4 steps"):
        net.fit(x[:mine], y[:mine], batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    # The library stays usable.
    hvd.barrier()
    net = model()
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    net.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    assert_same_on_all(weights(net))


def check_unequal_epochs_are_named_at_once() -> None:
    net = model()
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x, y = (share(array, hvd.rank()) for array in data(2))
    with pytest.raises(
        StepsDifferError, match="rank 0: done, after 2 epochs; rank 1: at the begin"
    ):
        net.fit(x, y, batch_size=BATCH, epochs=2 + hvd.rank(), shuffle=False, verbose=0)


def check_progress_on_rank_0_only() -> None:
    import contextlib
    import io

    net = model()
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x, y = (share(array, hvd.rank()) for array in data(2))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        net.fit(x, y, batch_size=BATCH)
        net.evaluate(x, y)
        net.predict(x)
    assert bool(printed.getvalue()) == (hvd.rank() == 0), printed.getvalue()


def check_wrapped_twice() -> None:
    wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    with pytest.raises(UsageError, match="already"):
        hvd.DistributedOptimizer(wrapped)
    with pytest.raises(UsageError, match="takes a Keras 3 optimizer, not a builtins"):
        hvd.DistributedOptimizer(object())
    with pytest.raises(UsageError, match="is no compression"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), compression=3)
    with pytest.raises(UsageError, match="must be at least 1"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=0)


def check_xla() -> None:
    net = model()
    wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    net.compile(wrapped, "mse")
    assert net.jit_compile is False
    with pytest.raises(UsageError, match="jit_compile=True does not work"):
        net.compile(wrapped, "mse", jit_compile=True)


def check_different_models_are_named() -> None:
    net = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2 + hvd.rank())])
    net.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x, _ = (share(array, hvd.rank()) for array in data(1))
    with pytest.raises(MismatchError, match="rank 1"):
        net.fit(x, np.zeros((len(x), 2 + hvd.rank()), "float32"), batch_size=BATCH, verbose=0)
