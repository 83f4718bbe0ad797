"""A training whose every part takes a known time, and which makes a mistake on request.

Steps sleep: the truth is what they are told to sleep, on any machine.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import farandole.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--samples", type=int, default=512)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--serial", type=float, default=0.0, help="seconds of each step")
parser.add_argument("--per-sample", type=float, default=0.0, help="seconds of each sample")
parser.add_argument("--loading", type=float, default=0.0, help="seconds to load a sample")
parser.add_argument("--slow-rank", type=float, default=1.0, help="times as long on rank 1")
parser.add_argument("--checkpoint", type=float, default=0.0, help="of rank 0, each 12 steps")
parser.add_argument("--mistake", default="")
args = parser.parse_args()

hvd.init()
rank = hvd.rank()
torch.manual_seed(rank if args.mistake == "no broadcast" else 1)


class Samples(Dataset):
    def __len__(self) -> int:
        return args.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(args.loading)
        return torch.full((4,), float(index)), torch.zeros(1)


class Sleeping(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        seconds = args.serial + args.per_sample * len(batch)
        time.sleep(seconds * (args.slow_rank if rank == 1 else 1.0))
        return self.layer(batch / 1000)


data = Samples()
model: torch.nn.Module = Sleeping()
sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=rank)
if args.mistake == "no sampler":
    loader = DataLoader(data, batch_size=args.batch)
elif args.mistake == "own shuffle":
    order = torch.Generator().manual_seed(rank)
    loader = DataLoader(data, batch_size=args.batch, shuffle=True, generator=order)
else:
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)
if args.mistake == "no step":  # DDP averages in backward, whoever steps
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
if args.mistake not in ("no averaging", "no step"):
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
if args.mistake != "no broadcast":
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
steps = 0
for _ in range(args.epochs):
    for inputs, targets in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        steps += 1
        if args.mistake == "crash" and rank == 1 and steps == 3:
            raise RuntimeError("planted crash")
        if args.mistake == "no step" and rank == 1:
            continue
        optimizer.step()
        if args.checkpoint and rank == 0 and steps % 12 == 0:
            time.sleep(args.checkpoint)
