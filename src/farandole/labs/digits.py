"""Train a small CNN on scikit-learn's digits: what `farandole demo` runs, and a script to copy.

    farandole run -np 2 -m farandole.labs.digits

It uses the public interface only. The data (1,797 images of 8x8, Alpaydin and Kaynak, CC BY 4.0)
come with scikit-learn, so that nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import farandole.torch as hvd

TEST_SAMPLES = 360  # a fifth
SPLIT_SEED = 1  # the same test images in every run, whatever the seed of the training


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Return the images for training and for testing, in a fixed random split."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16  # pixels are 0..16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    test, train = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def main() -> None:
    args = parse_arguments()
    hvd.init()
    torch.manual_seed(args.seed)

    train, test = load_data()
    # Each worker reads its own part of the data, another one in every epoch.
    sampler: DistributedSampler[int] = DistributedSampler(
        train, num_replicas=hvd.size(), rank=hvd.rank(), seed=args.seed
    )
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    model = make_model()
    # The batch that a step averages over grows with the workers, and the learning rate with it.
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    step_times_s: list[float] = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        epoch_step_times_s, loss = train_epoch(model, optimizer, loader)
        # The first epoch warms up: allocations, the plan of the gradient buckets.
        if epoch > 0:
            step_times_s += epoch_step_times_s
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1} of {args.epochs}: loss {loss:.3f}", flush=True)

    accuracy = measure_accuracy(model, test)
    # A step takes as long as its slowest worker.
    slowest_s = hvd.allreduce(torch.tensor(step_times_s, dtype=torch.float64), op=hvd.Max)
    step_time_s = statistics.median(slowest_s.tolist())
    result = {
        "schema": 1,
        "workers": hvd.size(),
        "samples_per_s": args.batch_size * hvd.size() / step_time_s,
        "step_time_s": step_time_s,
        "steps_timed": len(step_times_s),
        "accuracy": accuracy,
        "weights_equal": weights_are_equal(model),
        "threads": torch.get_num_threads(),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    if hvd.rank() == 0:
        print(f"{result['samples_per_s']:.0f} samples/s, test accuracy {accuracy:.1%}")
        if args.result is not None:
            args.result.write_text(json.dumps(result) + "\n")
    hvd.shutdown()


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[tuple[Tensor, ...]]
) -> tuple[list[float], float]:
    """Return the duration of each step, loading included, and the last loss."""
    model.train()
    step_times_s = []
    loss = torch.tensor(0.0)
    started = time.perf_counter()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        ended = time.perf_counter()
        step_times_s.append(ended - started)
        started = ended
    return step_times_s, loss.item()


def measure_accuracy(model: nn.Module, test: TensorDataset) -> float:
    images, labels = test.tensors
    model.eval()
    with torch.no_grad():
        predicted = model(images).argmax(dim=1)
    return float((predicted == labels).double().mean())


def weights_are_equal(model: nn.Module) -> bool:
    """Tell whether every worker ended with the same weights, to the last bit."""
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    largest = hvd.allreduce(weights, op=hvd.Max)
    smallest = hvd.allreduce(weights, op=hvd.Min)
    return torch.equal(largest, smallest)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small CNN on the digits.")
    parser.add_argument("--epochs", type=int, default=8, help="the first is not timed (default 8)")
    parser.add_argument("--batch-size", type=int, default=32, help="per worker (default 32)")
    parser.add_argument("--lr", type=float, default=0.06, help="for one worker (default 0.06)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--result", type=Path, help="where rank 0 writes its figures, as JSON")
    args = parser.parse_args()
    if args.epochs < 2:
        parser.error(f"--epochs {args.epochs} leaves nothing to time; use 2 or more")
    return args


if __name__ == "__main__":
    main()
