"""The schedule is made for the steps of one worker."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

generator = torch.Generator().manual_seed(1)
x = torch.randn(512, 16, generator=generator)
dataset = torch.utils.data.TensorDataset(x, x[:, :4].argmax(1))
sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=size, rank=rank)
loader = torch.utils.data.DataLoader(dataset, batch_size=16, sampler=sampler)
epochs = 3
total = epochs * (len(dataset) // 16)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
dist.destroy_process_group()
