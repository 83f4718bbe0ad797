"""Replicas of a network as threads of one process, in place of workers; cifar10.py uses this file.

farandole run -np 1 --threads 1 examples/cifar10.py --replicas 2
farandole run -np 2 --threads 1 examples/cifar10.py --replicas 1
"""

import copy
from concurrent.futures import ThreadPoolExecutor

import torch

import farandole.torch as hvd


def replicate(model, count):
    """Return a model that shares out its batches; on GPUs that is torch.nn.DataParallel's work."""
    if count == 1:
        return model
    if hvd.size() > 1:
        raise SystemExit(f"--replicas {count} is for one process, but there are {hvd.size()}.")
    if torch.cuda.is_available():
        return torch.nn.DataParallel(model, list(range(count)))
    return Replicas(model, count)


class Replicas(torch.nn.Module):
    """Copies of a network, each with its part of a batch in a thread of its own."""

    def __init__(self, model, count):
        super().__init__()
        self.copies = torch.nn.ModuleList(
            [model, *(copy.deepcopy(model) for _ in range(count - 1))]
        )
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
        """Let each replica work on its part."""
        ctx.replicas, count = replicas, len(replicas.copies)
        ctx.outputs = list(replicas.threads.map(call, replicas.copies, images.chunk(count)))
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


def call(replica, images):
    """Return what a replica makes of its part; threads begin with gradients enabled."""
    return replica(images)
