"""Train on CIFAR-10 with PyTorch, on any number of workers; `farandole lab cifar10` runs this file.

farandole run -np 2 examples/cifar10.py --data cifar-10-batches-py
farandole study -np 1,2 -L batch=32,128 -- examples/cifar10.py --batch-size '{batch}'
farandole run -np 1 --threads 1 examples/cifar10.py --replicas 2
"""

import argparse
import copy
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import farandole
import farandole.torch as hvd
from farandole.labs.data import load_cifar10
from farandole.labs.networks import resnet18, small_cnn
from farandole.recipes import RECIPES

MODELS = {"small": small_cnn, "resnet18": resnet18}


def parse_arguments():
    """Return what the command line says."""
    parser = argparse.ArgumentParser()
    option = parser.add_argument
    option("--data", help="folder with CIFAR-10; without it, images are generated")
    option("--model", choices=MODELS, default="small")
    option("--epochs", type=int, default=10)
    option("--batch-size", type=int, default=32, help="of each worker or replica")
    option("--samples", type=int, default=0, help="to train on; 0: all")
    option("--test-samples", type=int, default=0, help="to test on; 0: all")
    option("--lr", type=float, default=0.01, help="learning rate of one worker")
    option("--recipe", choices=RECIPES, default="warmup", help="what more workers do to it")
    option("--norm", choices=["local", "broadcast", "sync"], default="local", help="batch norm")
    option("--order", choices=["epoch", "fixed"], default="epoch", help="new in each epoch, or not")
    option("--replicas", type=int, default=1, help="threads of one process, in place of workers")
    option("--seed", type=int, default=0)
    return parser.parse_args()


class Replicas(torch.nn.Module):
    """Copies of a network in one process, each with its part of a batch in a thread of its own."""

    def __init__(self, model, count):
        super().__init__()
        copies = [model, *(copy.deepcopy(model) for _ in range(count - 1))]
        self.copies = torch.nn.ModuleList(copies)
        self.threads = ThreadPoolExecutor(count)
        for first, *others in self.parameters_by_replica():
            for other in others:
                # Threads see the same memory: who updates the first replica's weights updates all.
                # GPUs have their own, so that DataParallel copies all weights in every step.
                other.data = first.data

    def forward(self, images):
        """Return what the replicas make of their parts."""
        return InThreads.apply(self, images, next(self.parameters()))

    def parameters_by_replica(self):
        """Return each parameter as it is in the first replica, the second, ..."""
        return zip(*(replica.parameters() for replica in self.copies), strict=True)


class InThreads(torch.autograd.Function):
    """Both ways through the replicas: autograd alone would go back in a single thread."""

    @staticmethod
    def forward(ctx, replicas, images, _parameter):
        """Let each replica work on its part; threads begin with gradients enabled."""
        parts = images.chunk(len(replicas.copies))
        ctx.replicas = replicas
        ctx.outputs = list(replicas.threads.map(torch.nn.Module.__call__, replicas.copies, parts))
        return torch.cat([output.detach() for output in ctx.outputs])

    @staticmethod
    def backward(ctx, gradient):
        """Add all gradients up in the first replica."""
        parts = gradient.chunk(len(ctx.outputs))
        list(ctx.replicas.threads.map(torch.autograd.backward, ctx.outputs, parts))
        for first, *others in ctx.replicas.parameters_by_replica():
            for other in others:
                first.grad += other.grad
                other.grad = None
        return None, None, None


def replicate(model, count):
    """Return a model that shares out its batches; on GPUs that is torch.nn.DataParallel's work."""
    if count == 1:
        return model
    if hvd.size() > 1:
        raise SystemExit(f"--replicas {count} is for one process, but there are {hvd.size()}.")
    if torch.cuda.is_available():
        return torch.nn.DataParallel(model, list(range(count)))
    return Replicas(model, count)


def load(args):
    """Return the training data, this worker's sampler and loader, and its part of the tests."""
    found = load_cifar10(args.data, samples=args.samples, test_samples=args.test_samples)
    # From uint8 (N, height, width, channels) to about -2 to 2, channels first.
    x, x_test = (
        torch.tensor(images).permute(0, 3, 1, 2) / 64 - 2
        for images in (found.x_train, found.x_test)
    )
    data = TensorDataset(x, torch.tensor(found.y_train))
    sampler = DistributedSampler(data, hvd.size(), hvd.rank(), seed=args.seed)
    loader = DataLoader(data, args.batch_size * args.replicas, sampler=sampler, drop_last=True)
    tests = TensorDataset(x_test, torch.tensor(found.y_test))
    part = range(hvd.rank(), len(tests), hvd.size())
    return sampler, loader, DataLoader(tests, 250, sampler=part)


def main():
    """Train and test."""
    args = parse_arguments()
    hvd.init()
    hvd.set_random_seed(args.seed)
    device = f"cuda:{hvd.local_rank()}" if torch.cuda.is_available() else "cpu"
    sampler, loader, tests = load(args)

    model = MODELS[args.model]().to(device, memory_format=torch.channels_last)  # fastest on CPUs
    if args.norm == "sync":
        model = hvd.SyncBatchNorm.convert_sync_batchnorm(model)
    network = replicate(model, args.replicas)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    # More workers make fewer updates, of larger batches: the recipe sets the rate for that.
    epochs = RECIPES[args.recipe].epochs(args.epochs)
    scheduler = hvd.RecipeScheduler(
        optimizer,
        args.recipe,
        epochs=epochs,
        steps_per_epoch=len(loader),
        workers=hvd.size() * args.replicas,
        decay="cosine",
    )

    for epoch in range(epochs):
        sampler.set_epoch(epoch if args.order == "epoch" else 0)
        network.train()
        losses = []
        for images, labels in loader:
            if args.norm == "broadcast":
                hvd.broadcast_parameters(dict(model.named_buffers()), root_rank=0)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.detach())
        loss = hvd.allreduce(torch.stack(losses).mean(), name="loss")
        # Rank 0's network is tested, by each worker on its part of the images.
        hvd.broadcast_parameters(dict(model.named_buffers()), root_rank=0)
        model.eval()
        with torch.no_grad():
            right = sum((model(x.to(device)).cpu().argmax(1) == y).sum() for x, y in tests)
        accuracy = hvd.allreduce(right, op=hvd.Sum, name="right") / len(tests.dataset)
        farandole.record(
            epoch=epoch + 1,
            loss=loss,
            val_accuracy=accuracy,
            learning_rate=scheduler.get_last_lr()[0],
            first_sample=next(iter(sampler)),
        )
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss:.3f}, test accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
