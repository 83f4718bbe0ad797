"""Elastic runs that train: right afterwards everything is as if nothing had happened."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from farandole.launch.elastic_options import ElasticOptions
from farandole.launch.launcher import Outcome, launch
from farandole.launch.plan import Plan
from tests.conftest import clean_environ, keras_on, run_cli

pytestmark = pytest.mark.ranks

TRAIN = """
import hashlib, json, os, random, signal, sys
import numpy as np
import torch
import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError

worker = int(os.environ["FARANDOLE_WORKER"])
hvd.init()

def digest(*values):
    return hashlib.sha1(repr(values).encode()).hexdigest()[:12]

def bits(value):
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes()
    if isinstance(value, dict):
        return [(key, bits(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [bits(each) for each in value]
    return value

def train_all(name, faults):
    torch.manual_seed(7)
    data = torch.randn(24, 6)
    # Two models, so that the order counts in which optimizers go over to other workers.
    models = [
        torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        for _ in range(2)
    ]
    plain = [
        torch.optim.SGD(models[0].parameters(), lr=0.1, momentum=0.9),
        torch.optim.Adam(models[1].parameters(), lr=0.01),
    ]
    optimizers = [
        hvd.DistributedOptimizer(each, model.named_parameters(), backward_passes_per_step=2)
        for each, model in zip(plain, models)
    ]
    schedule = torch.optim.lr_scheduler.StepLR(optimizers[0], 3, gamma=0.5)
    sampler = hvd.elastic.ElasticSampler(data)
    state = hvd.elastic.TorchState(
        model=models[0], other=models[1], sgd=optimizers[0], adam=optimizers[1],
        schedule=schedule, sampler=sampler, batch=0, epoch=0, seen=[],
    )
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(100 + hvd.rank())

    @hvd.elastic.run
    def train(state):
        while state.epoch < 2:
            order = list(sampler)
            for batch in range(len(order) // 2):
                mine = order[2 * batch : 2 * batch + 2]
                noise = random.random() + np.random.rand()
                loss = sum(model(data[mine] + noise).square().mean() for model in models)
                loss.backward()
                state.batch += 1
                faults(state)
                if state.batch % 2 == 0:
                    for optimizer in optimizers:
                        optimizer.step()
                        optimizer.zero_grad()
                    schedule.step()
                state.seen.append(state.batch)
                sampler.record_batch(batch, 2)
                told = {
                    "weights": digest([bits(model.state_dict()) for model in models]),
                    "optimizers": digest([bits(each.state_dict()) for each in optimizers]),
                    "random": digest(random.random(), np.random.rand(), torch.rand(1).item()),
                    "samples": mine, "position": sampler.state_dict(), "seen": state.seen,
                }
                who = {"run": name, "worker": worker, "rank": hvd.rank(), "batch": state.batch}
                print(json.dumps(who | told), flush=True)
                state.commit()  # half of the steps are under way here
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()

    train(state)

if worker < 2:
    train_all("undisturbed", lambda state: None)

def faults(state):
    # Never twice: those who take their place have other numbers.
    if (worker, state.batch) == (1, 4):
        os.kill(os.getpid(), signal.SIGKILL)
    if (worker, state.batch) == (0, 9):
        raise ValueError("mine")

train_all("disturbed", faults)
"""


def run(
    folder: Path, script: str, *, np: int, options: ElasticOptions | None, **environ: str
) -> tuple[Outcome, list[dict[str, Any]], list[str]]:
    """Run a script; return how it ended, what its workers said in JSON, and all else."""
    file = folder / "train.py"
    file.write_text(script)
    said: list[dict[str, Any]] = []
    remarks: list[str] = []

    def show(stream: str, line: str) -> None:
        if line.startswith("{"):
            said.append(json.loads(line))
        else:
            remarks.append(line)

    plan = Plan(
        argv=(sys.executable, str(file)), num_workers=np, threads=1, tag=False, elastic=options
    )
    return launch(plan, environ=clean_environ(**environ), show=show), said, remarks


def test_right_afterwards_everything_is_as_if_nothing_had_happened(tmp_path: Path) -> None:
    options = ElasticOptions(min_np=2, max_np=2)
    outcome, said, remarks = run(tmp_path, TRAIN, np=2, options=options)
    assert outcome.verdict.exit_code == 0, remarks
    assert [each.code for each in outcome.verdict.survived] == [-9, 1]

    def told(run: str) -> dict[tuple[int, int], dict[str, Any]]:
        # What was done again after a loss counts.
        return {
            (each["rank"], each["batch"]): {**each, "run": "", "worker": ""}
            for each in said
            if each["run"] == run
        }

    undisturbed, disturbed = told("undisturbed"), told("disturbed")
    assert sorted(undisturbed) == [(rank, batch) for rank in (0, 1) for batch in range(1, 13)]
    assert disturbed == undisturbed
    workers = {(each["rank"], each["worker"]) for each in said if each["run"] == "disturbed"}
    # Who was rank 1 becomes rank 0, which has the state that the others get.
    assert {(0, 0), (1, 1), (1, 2), (0, 2)} < workers
    trained = [sample for each in disturbed.values() for sample in each["samples"]]
    assert sorted(trained) == sorted([*range(24), *range(24)])


FIT = """
import hashlib, json, os, signal
import numpy as np
import keras
import farandole.keras as hvd

worker = int(os.environ["FARANDOLE_WORKER"])
hvd.init()

def train_all(name, victim):
    keras.utils.set_random_seed(5)
    x = np.random.rand(48, 6).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(8), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    hvd.set_random_seed(100)
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)

    class Tell(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if (worker, state.epoch, batch) == (victim, 1, 3):
                os.kill(os.getpid(), signal.SIGKILL)

        def on_epoch_end(self, epoch, logs=None):
            variables = [*self.model.weights, *self.model.optimizer.variables]
            values = [keras.ops.convert_to_numpy(each).tobytes() for each in variables]
            print(json.dumps({
                "run": name, "worker": worker, "rank": hvd.rank(), "size": hvd.size(),
                "epoch": epoch, "weights": hashlib.sha1(b"".join(values)).hexdigest()[:12],
            }), flush=True)

    @hvd.elastic.run
    def train(state):
        data = hvd.shard((x, y), batch_size=4, shuffle=True)
        model.fit(data, epochs=3, initial_epoch=state.epoch, verbose=0, callbacks=[
            Tell(),
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            # Whole epochs, as fit begins none in its middle.
            hvd.elastic.CommitStateCallback(state, batches_per_commit=1000),
        ])

    train(state)
    assert (state.epoch, state.batch) == (3, 0)

if worker < 2:
    train_all("undisturbed", None)
train_all("disturbed", 0)
"""


TAPE = """
import json, os, signal
import numpy as np
import keras
import tensorflow as tf
import farandole.tensorflow as hvd

worker = int(os.environ["FARANDOLE_WORKER"])
hvd.init()

def train_all(name, victim):
    keras.utils.set_random_seed(5)
    weights, momentum = tf.Variable(tf.ones((3, 1))), tf.Variable(tf.zeros((3, 1)))
    layer = keras.layers.Dense(1)
    layer.build((4, 3))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    optimizer.build(layer.trainable_variables)
    variables = [weights, momentum, *layer.variables, *optimizer.variables]
    state = hvd.elastic.TensorFlowState(variables, epoch=0)
    # A model with a loop of one's own is not compiled.
    model = keras.Sequential([keras.Input((3,)), layer])
    hvd.elastic.TensorFlowKerasState(model, optimizer)
    np.random.seed(hvd.rank())

    @tf.function
    def step(x):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean(tf.square(x @ weights))
        momentum.assign(0.9 * momentum + tape.gradient(loss, weights))
        weights.assign_sub(0.1 * momentum)
        with tf.GradientTape() as plain:
            loss = tf.reduce_mean(tf.square(layer(x)))
        mine = layer.trainable_variables
        optimizer.apply(plain.gradient(loss, mine), mine)

    @hvd.elastic.run
    def train(state):
        while state.epoch < 3:
            for batch in range(4):
                if (worker, state.epoch, batch) == (victim, 1, 3):
                    os.kill(os.getpid(), signal.SIGKILL)
                step(tf.constant(np.random.rand(4, 3), tf.float32))
            values = [each.numpy().tolist() for each in variables]
            print(json.dumps({
                "run": name, "worker": worker, "rank": hvd.rank(), "size": hvd.size(),
                "epoch": state.epoch, "weights": str(values),
            }), flush=True)
            state.epoch += 1
            state.commit()

    train(state)

if worker < 2:
    train_all("undisturbed", None)
train_all("disturbed", 0)
"""


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_keras_goes_on_as_if_nothing_had_happened(tmp_path: Path, backend: str) -> None:
    pytest.importorskip(backend)
    check_that_it_goes_on(tmp_path, FIT, **keras_on(backend))


def test_a_compiled_step_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    check_that_it_goes_on(tmp_path, TAPE, **keras_on("tensorflow"))


def check_that_it_goes_on(folder: Path, script: str, **environ: str) -> None:
    """Run a script that trains for 3 epochs, twice; rank 0 dies in the second training's second."""
    options = ElasticOptions(min_np=2, max_np=2)
    outcome, said, remarks = run(folder, script, np=2, options=options, **environ)
    assert outcome.verdict.exit_code == 0, remarks
    assert [each.code for each in outcome.verdict.survived] == [-9]

    def told(run: str) -> dict[tuple[int, int], tuple[int, str]]:
        return {
            (each["epoch"], each["rank"]): (each["size"], each["weights"])
            for each in said
            if each["run"] == run
        }

    undisturbed = told("undisturbed")
    assert sorted(undisturbed) == [(epoch, rank) for epoch in range(3) for rank in (0, 1)]
    assert told("disturbed") == undisturbed
    assert len({weights for _, weights in undisturbed.values()}) == 3
    # Who was rank 1 is rank 0 now.
    assert {(each["epoch"], each["rank"]) for each in said if each["worker"] == 1} >= {(1, 0)}


KEEP = """
import json, sys
import torch
import farandole.torch as hvd

hvd.init()
model = torch.nn.Linear(2, 1, bias=False)
torch.nn.init.ones_(model.weight)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
state = hvd.elastic.TorchState(model, optimizer, step=0)
if sys.argv[1:]:
    state.save_to(sys.argv[1])

@hvd.elastic.run
def train(state):
    begun = state.step
    while state.step < 8:
        optimizer.zero_grad()
        model(torch.ones(4, 2)).square().mean().backward()
        optimizer.step()
        state.step += 1
        state.commit()
    print(json.dumps({"rank": hvd.rank(), "begun": begun, "weights": model.weight.tolist()}))

train(state)
"""


def test_all_workers_are_lost(tmp_path: Path) -> None:
    file, states = tmp_path / "train.py", tmp_path / "states"
    file.write_text(KEEP)

    def end(*flags: str, more: tuple[str, ...] = ()) -> tuple[list[dict[str, Any]], str]:
        done = run_cli("run", "-np", "2", "--threads", "1", *flags, "--no-tag", file, *more)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines], done.stderr

    undisturbed, _ = end()
    assert [each["begun"] for each in undisturbed] == [0, 0]
    weights = undisturbed[0]["weights"]
    # In the launcher's memory: the step that the fault is in was not committed.
    again, said = end("--max-restarts", "1", "--inject", "kill rank=0 step=4")
    assert [(each["begun"], each["weights"]) for each in again] == [(3, weights)] * 2, said
    assert "--inject: kill on rank 0 at step 4." in said
    # In files.
    _, said = end("--inject", "exit rank=1 step=5", more=(str(states),))
    assert "rank 1 failed first" in said or "rank 1 " in said
    kept = sorted(path.name for path in states.iterdir())
    assert kept
    again, said = end(more=(str(states),))
    assert {each["begun"] for each in again} == {int(kept[-1].split("-")[1].split(".")[0])}
    assert [each["weights"] for each in again] == [weights] * 2
