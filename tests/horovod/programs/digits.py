"""Train on handwritten digits, written as people write for Horovod: nothing of Farandole in it."""

import argparse

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser(description="Digits with Horovod")
parser.add_argument("--data", required=True, help="images and labels, as NumPy writes them")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--use-adasum", action="store_true")
parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)


class Net(nn.Module):
    """Two convolutions and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * 2 * 2, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = functional.relu(functional.max_pool2d(self.conv1(x), 2))
        x = functional.relu(functional.max_pool2d(self.conv2(x), 2))
        x = functional.relu(self.fc1(x.flatten(1)))
        return functional.log_softmax(self.fc2(x), dim=1)


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def main(arguments=None):
    args = parser.parse_args(arguments)
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)

    with np.load(args.data) as data:
        images = torch.tensor(data["images"], dtype=torch.float32).view(-1, 1, 8, 8) / 16
        labels = torch.tensor(data["labels"], dtype=torch.long)
    train = torch.utils.data.TensorDataset(images[:1500], labels[:1500])
    test = torch.utils.data.TensorDataset(images[1500:], labels[1500:])
    samplers = [
        torch.utils.data.distributed.DistributedSampler(
            each, num_replicas=hvd.size(), rank=hvd.rank()
        )
        for each in (train, test)
    ]
    train_loader, test_loader = (
        torch.utils.data.DataLoader(each, batch_size=args.batch_size, sampler=sampler)
        for each, sampler in zip((train, test), samplers, strict=True)
    )

    model = Net()
    lr_scaler = hvd.size() if not args.use_adasum else 1
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * lr_scaler, momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=compression,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor,
    )

    for epoch in range(args.epochs):
        model.train()
        samplers[0].set_epoch(epoch)
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = functional.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
    model.eval()
    test_loss, test_accuracy = 0.0, 0.0
    with torch.no_grad():
        for data, target in test_loader:
            output = model(data)
            test_loss += functional.nll_loss(output, target, reduction="sum").item()
            test_accuracy += (output.argmax(1) == target).float().sum().item()
    test_loss = metric_average(test_loss / len(samplers[1]), "avg_loss")
    test_accuracy = metric_average(test_accuracy / len(samplers[1]), "avg_accuracy")
    if hvd.rank() == 0:
        print(f"Test set: Average loss: {test_loss:.4f}, Accuracy: {100 * test_accuracy:.2f}%")
    return test_accuracy, [parameter.detach().clone() for parameter in model.parameters()]


if __name__ == "__main__":
    main()
