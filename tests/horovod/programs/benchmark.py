"""Measure images per second on random data, written as people write for Horovod."""

import argparse
import timeit

import horovod.torch as hvd
import numpy as np
import torch
from torch.nn import functional

parser = argparse.ArgumentParser(description="Synthetic benchmark with Horovod")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--num-warmup-batches", type=int, default=2)
parser.add_argument("--num-batches-per-iter", type=int, default=2)
parser.add_argument("--num-iters", type=int, default=3)
args = parser.parse_args()

hvd.init()
torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(4),
    torch.nn.Flatten(),
    torch.nn.Linear(128, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
data = torch.randn(args.batch_size, 3, 32, 32)
target = torch.randint(10, (args.batch_size,))


def benchmark_step():
    optimizer.zero_grad()
    functional.cross_entropy(model(data), target).backward()
    optimizer.step()


def log(text, nl=True):
    if hvd.rank() == 0:
        print(text, end="\n" if nl else "")


log(f"Batch size: {args.batch_size}")
log(f"Number of CPUs: {hvd.size()}")
timeit.timeit(benchmark_step, number=args.num_warmup_batches)
img_secs = []
for number in range(args.num_iters):
    seconds = timeit.timeit(benchmark_step, number=args.num_batches_per_iter)
    img_sec = args.batch_size * args.num_batches_per_iter / seconds
    log(f"Iter #{number}: {img_sec:.1f} img/sec per CPU")
    img_secs.append(img_sec)
mean, spread = np.mean(img_secs), 1.96 * np.std(img_secs)
log(f"Img/sec per CPU: {mean:.1f} +-{spread:.1f}")
log(f"Total img/sec on {hvd.size()} CPU(s): {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f}")
