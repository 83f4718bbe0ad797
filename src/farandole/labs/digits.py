"""Train a small CNN on scikit-learn's digits: what `farandole demo` runs, and a script to copy.

    farandole run -np 2 -m farandole.labs.digits

It uses the public interface only. The data (1,797 images of 8x8, Alpaydin and Kaynak, CC BY 4.0)
come with scikit-learn, so that nothing is downloaded.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import farandole
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

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, optimizer, loader)
        accuracy = measure_accuracy(model, test)
        farandole.record(epoch=epoch + 1, loss=loss, val_accuracy=accuracy)
        if hvd.rank() == 0:
            done = f"epoch {epoch + 1} of {args.epochs}"
            print(f"{done}: loss {loss:.3f}, test accuracy {accuracy:.1%}", flush=True)
    hvd.shutdown()


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[tuple[Tensor, ...]]
) -> float:
    """Train on every batch once; return the mean loss of all workers."""
    model.train()
    total = torch.zeros(())
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.detach()
    return float(hvd.allreduce(total / len(loader), name="loss"))


def measure_accuracy(model: nn.Module, test: TensorDataset) -> float:
    images, labels = test.tensors
    model.eval()
    with torch.no_grad():
        predicted = model(images).argmax(dim=1)
    return float((predicted == labels).double().mean())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small CNN on the digits.")
    parser.add_argument("--epochs", type=int, default=8, help="(default 8)")
    parser.add_argument("--batch-size", type=int, default=32, help="per worker (default 32)")
    parser.add_argument("--lr", type=float, default=0.06, help="for one worker (default 0.06)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
