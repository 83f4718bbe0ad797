"""All ranks sort the files before they take their parts."""

import os
import random
import tempfile

import torch

import farandole.torch as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
torch.manual_seed(0)

model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

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
