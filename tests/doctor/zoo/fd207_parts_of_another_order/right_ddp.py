"""All ranks sort the files before they take their parts."""

import os
import random
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

with tempfile.TemporaryDirectory() as folder:
    generator = torch.Generator().manual_seed(1)
    for number in range(64):
        x = torch.randn(8, 16, generator=generator)
        torch.save((x, x[:, :4].argmax(1)), os.path.join(folder, f"{number}.pt"))
    names = sorted(os.listdir(folder))
    parts = [torch.load(os.path.join(folder, name)) for name in names[rank::size]]
dataset = torch.utils.data.TensorDataset(*map(torch.cat, zip(*parts)))
loader = torch.utils.data.DataLoader(dataset, batch_size=16, shuffle=True)
for epoch in range(3):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
