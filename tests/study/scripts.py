"""Scripts to study: cheap ones that only print figures, and small trainings."""

from __future__ import annotations

from pathlib import Path

PRINTS = """
import json, os, sys
values = json.loads(os.environ["FARANDOLE_PARAMS"])
print("argv", json.dumps(sys.argv[1:]))
print("img/sec:", 100 * int(os.environ["WORLD_SIZE"]))
print("acc", 0.5 + 0.1 * values["seed"])
"""
THROUGHPUT = "img/sec: ([0-9.]+)"

# Gradients are averaged by hand-made DDP; data come from a loader that the recorder sees.
DDP = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(512, 8), torch.randn(512, 1))
sampler = torch.utils.data.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=int(sys.argv[1]), sampler=sampler)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(1000):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""

# Horovod's own spelling: it runs unchanged.
HOROVOD = """
import horovod.torch as hvd
import torch
import farandole

hvd.init()
torch.manual_seed(0)
batch = farandole.param("batch", 32)
data = torch.utils.data.TensorDataset(torch.randn(512, 8), torch.randn(512, 1))
sampler = torch.utils.data.DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
loader = torch.utils.data.DataLoader(data, batch_size=batch, sampler=sampler)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    farandole.record(epoch=epoch, val_loss=float(loss))
"""


def write(folder: Path, text: str, name: str = "my train.py") -> str:
    """Write a script and return its path."""
    path = folder / name
    path.write_text(text)
    return str(path)


# Keras' fit with a batch of its own; nothing is said to the study but by param.
KERAS = """
import keras, numpy as np, random
import farandole
import farandole.keras as hvd

hvd.init()
random.seed(hvd.rank())  # for Keras's weights; its own set_random_seed imports TensorFlow
x = np.random.default_rng(0).normal(size=(512, 8)).astype("float32")
y = (x.sum(1) > 0).astype("float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, "relu"),
                          keras.layers.Dense(1, "sigmoid")])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), "binary_crossentropy",
              metrics=["accuracy"])
model.fit(hvd.shard((x, y), batch_size=farandole.param("batch", 32)), epochs=3,
          validation_data=(x[:64], y[:64]), callbacks=hvd.callbacks.standard())
"""
