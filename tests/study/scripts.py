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


# A small language model as nanoGPT trains one: batches by random indices, no DataLoader, and
# gradient accumulation that is divided by the number of workers. `{average}` is filled in below.
GPT = """
import math
import os
import torch
import torch.nn.functional as F

size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
batch, block, vocabulary, width, accumulation = 6, 16, 32, 16, 4 // size
torch.manual_seed(1337 + rank)
data = torch.randint(vocabulary, (4000,))

def get_batch():
    at = torch.randint(len(data) - block - 1, (batch,)).tolist()
    return tuple(torch.stack([data[i + n : i + n + block] for i in at]) for n in (0, 1))

class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(3))
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x)
        logits = self.head(x).view(-1, vocabulary)
        return logits, F.cross_entropy(logits, targets.view(-1))

@torch.no_grad()
def estimate_loss():
    model.eval()
    tokens, targets = (part.repeat(7, 1) for part in get_batch())
    loss = model(tokens, targets)[1].item()
    model.train()
    return loss

{average}
for iteration in range(10_000):
    if iteration % 5 == 0:
        estimate_loss()
    for micro_step in range(accumulation):
        last = micro_step == accumulation - 1
        {before_pass}
        _, loss = model(*get_batch())
        (loss / accumulation).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""
GPT_DDP = GPT.replace(
    "{average}",
    """
torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(GPT())
optimizer = torch.optim.AdamW(model.parameters())
torch.manual_seed(rank)
""",
).replace("{before_pass}", "model.require_backward_grad_sync = last")
GPT_HOROVOD = (
    GPT.replace(
        "{average}",
        """
import horovod.torch as hvd
hvd.init()
model = GPT()
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.AdamW(model.parameters()),
                                     named_parameters=model.named_parameters(),
                                     backward_passes_per_step=accumulation)
""",
    )
    .replace("{before_pass}", "pass")
    .replace("    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", "")
)

# Gradient accumulation by libraries, with a batch of 16 per worker, 4 passes per update.
ACCELERATE = """
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(8192, 8), torch.randn(8192, 1))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(1000):
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
"""
# What transformers' Trainer does with Accelerate: it takes the batches of an update first, then
# keeps all but the last pass from sending gradients.
TRAINER = """
import contextlib
import itertools
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
data = [{"x": torch.randn(8), "labels": torch.randn(1)} for _ in range(2048)]
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 1)

    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.head(x), labels)}

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(1000):
    batches = iter(loader)
    while taken := list(itertools.islice(batches, 4)):
        for number, batch in enumerate(taken):
            last = number == len(taken) - 1
            accelerator.gradient_state._set_sync_gradients(last)
            with contextlib.nullcontext() if last else accelerator.no_sync(model=model):
                accelerator.backward(model(**batch)["loss"] / len(taken))
        optimizer.step()
        optimizer.zero_grad()
"""
LIGHTNING = """
import os
import lightning
import torch

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 1)

    def training_step(self, batch, number):
        x, y = batch
        return torch.nn.functional.mse_loss(self.head(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(8192, 8), torch.randn(8192, 1))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
trainer = lightning.Trainer(
    accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp", max_epochs=1000,
    accumulate_grad_batches=4, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Net(), loader)
"""

# No module is called and no loader is used: nobody sees what a step has to do.
FUNCTIONAL = """
import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(hvd.rank())
weight = torch.nn.Parameter(torch.ones(8, 1))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.01),
                                     named_parameters=[("weight", weight)])
for step in range(10_000):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(torch.randn(64 // hvd.size(), 8) @ weight,
                                 torch.zeros(64 // hvd.size(), 1)).backward()
    optimizer.step()
"""
