"""Rank 0 has a larger part, and larger batches."""

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

generator = torch.Generator().manual_seed(1)
x = torch.randn(512, 16, generator=generator)
dataset = torch.utils.data.TensorDataset(x, x[:, :4].argmax(1))
cut = 384 if size > 1 else 512
mine = range(cut) if rank == 0 else range(cut, 512)
part = torch.utils.data.Subset(dataset, mine)
loader = torch.utils.data.DataLoader(part, batch_size=len(part) // 16, shuffle=True)
for epoch in range(3):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
