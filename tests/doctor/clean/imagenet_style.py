"""In the style of PyTorch's ImageNet example: meters, a validation with the rest of the data."""

import shutil
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class AverageMeter:
    def __init__(self, name):
        self.name, self.val, self.sum, self.count = name, 0, 0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(1, self.count)

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32)
        dist.all_reduce(total, dist.ReduceOp.SUM)
        self.sum, self.count = total.tolist()

    def __str__(self):
        return f"{self.name} {self.val:.3f} ({self.avg:.3f})"


def accuracy(output, target):
    return (output.argmax(1) == target).float().mean() * 100


def train(loader, model, criterion, optimizer, epoch):
    batch_time, losses, top1 = AverageMeter("Time"), AverageMeter("Loss"), AverageMeter("Acc@1")
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(loader):
        output = model(images)
        loss = criterion(output, target)
        losses.update(loss.item(), images.size(0))
        top1.update(accuracy(output, target).item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
        if i % 10 == 0:
            print(f"Epoch: [{epoch}][{i}/{len(loader)}]", batch_time, losses, top1, sep="\t")


def validate(loader, model, criterion):
    losses, top1 = AverageMeter("Loss"), AverageMeter("Acc@1")

    def run_validate(loader):
        with torch.no_grad():
            for images, target in loader:
                output = model(images)
                losses.update(criterion(output, target).item(), images.size(0))
                top1.update(accuracy(output, target).item(), images.size(0))

    model.eval()
    run_validate(loader)
    losses.all_reduce()
    top1.all_reduce()
    if len(loader.sampler) * dist.get_world_size() < len(loader.dataset):
        rest = range(len(loader.sampler) * dist.get_world_size(), len(loader.dataset))
        run_validate(DataLoader(Subset(loader.dataset, rest), batch_size=32))
    if dist.get_rank() == 0:
        print(f" * Acc@1 {top1.avg:.3f}")
    return top1.avg


def main(folder):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(1229, 3, 8, 8)
    data = TensorDataset(x, x[:, 0, 0, :4].argmax(1))
    train_set, val_set = Subset(data, range(1024)), Subset(data, range(1024, 1229))
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)
    )
    model = nn.parallel.DistributedDataParallel(net)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.1)
    train_sampler = DistributedSampler(train_set)
    val_sampler = DistributedSampler(val_set, shuffle=False, drop_last=True)
    train_loader = DataLoader(train_set, batch_size=32, sampler=train_sampler)
    val_loader = DataLoader(val_set, batch_size=32, sampler=val_sampler)
    best = 0.0
    for epoch in range(3):
        train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch)
        acc1 = validate(val_loader, model, criterion)
        scheduler.step()
        is_best, best = acc1 > best, max(acc1, best)
        if dist.get_rank() == 0:
            state = {"epoch": epoch + 1, "state_dict": model.state_dict(), "best_acc1": best}
            torch.save(state, f"{folder}/checkpoint.pth.tar")
            if is_best:
                shutil.copyfile(f"{folder}/checkpoint.pth.tar", f"{folder}/model_best.pth.tar")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
