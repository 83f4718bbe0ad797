"""Train on CIFAR-10 with PyTorch, on any number of workers; `farandole lab cifar10` runs this file.

farandole run -np 2 examples/cifar10.py --data cifar-10-batches-py
farandole study -np 1,2 -L batch=32,128 -- examples/cifar10.py --batch-size '{batch}'
"""

import argparse

import torch
from replicas import replicate
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import farandole
import farandole.torch as hvd
from farandole.labs.data import load_cifar10
from farandole.labs.networks import resnet18, small_cnn
from farandole.recipes import RECIPES

MODELS = {"small": small_cnn, "resnet18": resnet18}
option = (parser := argparse.ArgumentParser()).add_argument
option("--data", help="folder with CIFAR-10; without it, patterns are generated")
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
args = parser.parse_args()
hvd.init()
hvd.set_random_seed(args.seed)
device = f"cuda:{hvd.local_rank()}" if torch.cuda.is_available() else "cpu"
found = load_cifar10(args.data, samples=args.samples, test_samples=args.test_samples)
x, x_test = (torch.tensor(a).permute(0, 3, 1, 2) / 64 - 2 for a in (found.x_train, found.x_test))
data = TensorDataset(x, torch.tensor(found.y_train))
sampler = DistributedSampler(data, hvd.size(), hvd.rank(), seed=args.seed)
loader = DataLoader(data, args.batch_size * args.replicas, sampler=sampler, drop_last=True)
tests = TensorDataset(x_test, torch.tensor(found.y_test))
tests = DataLoader(tests, 250, sampler=range(hvd.rank(), len(x_test), hvd.size()))

model = MODELS[args.model]().to(device, memory_format=torch.channels_last)  # fastest on CPUs
if args.norm == "sync":
    model = hvd.SyncBatchNorm.convert_sync_batchnorm(model)
network = replicate(model, args.replicas)
optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
# More workers make fewer updates, of larger batches: the recipe sets the rate for that.
plan = {"epochs": RECIPES[args.recipe].epochs(args.epochs), "steps_per_epoch": len(loader)}
plan |= {"workers": hvd.size() * args.replicas, "decay": "cosine"}
scheduler = hvd.RecipeScheduler(optimizer, args.recipe, **plan)

for epoch in range(plan["epochs"]):
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
    with torch.no_grad():
        right = sum((model.eval()(x.to(device)).cpu().argmax(1) == y).sum() for x, y in tests)
    accuracy = hvd.allreduce(right, op=hvd.Sum, name="right") / len(x_test)
    figures = {"learning_rate": scheduler.get_last_lr()[0], "first_sample": next(iter(sampler))}
    farandole.record(epoch=epoch + 1, loss=loss, val_accuracy=accuracy, **figures)
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {loss:.3f}, test accuracy {accuracy:.4f}", flush=True)
