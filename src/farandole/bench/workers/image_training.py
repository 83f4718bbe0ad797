"""A training script like many: a network on images of CIFAR-10's shape, which `farandole study`
and `farandole run` start as they start a user's. Ends after --steps, if given."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import farandole.torch as hvd
from farandole.bench.workers.models import cnn, resnet18


def main() -> None:
    """Train on random images in bytes, as CIFAR-10's are; the same in all ranks."""
    parser = argparse.ArgumentParser(description="Train on random images.")
    parser.add_argument("--model", choices=("cnn", "resnet18"), default="cnn")
    parser.add_argument("--samples", type=int, default=50_000, help="in an epoch (default 50000)")
    parser.add_argument("--batch-size", type=int, default=128, help="per worker (default 128)")
    parser.add_argument("--steps", type=int, help="end after so many steps of all epochs")
    args = parser.parse_args()
    hvd.init()
    torch.manual_seed(1)
    images = torch.randint(256, (args.samples, 3, 32, 32), dtype=torch.uint8)
    samples = TensorDataset(images, torch.randint(10, (args.samples,)))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(
        samples, num_replicas=hvd.size(), rank=hvd.rank()
    )
    loader = DataLoader(samples, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = resnet18() if args.model == "resnet18" else cnn(channels=3, side=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    criterion = torch.nn.CrossEntropyLoss()

    def batches() -> Iterator[tuple[torch.Tensor, ...]]:
        for epoch in range(100):
            sampler.set_epoch(epoch)
            yield from loader

    for inputs, labels in itertools.islice(batches(), args.steps):
        optimizer.zero_grad()
        criterion(model(inputs.float() / 255), labels).backward()
        optimizer.step()
    hvd.shutdown()


if __name__ == "__main__":
    main()
