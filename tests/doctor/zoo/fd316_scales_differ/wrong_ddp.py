"""Rank 1's scaler finds an overflow of its own and halves its scale."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

generator = torch.Generator().manual_seed(1)
x = torch.randn(512, 16, generator=generator)
dataset = torch.utils.data.TensorDataset(x, x[:, :4].argmax(1))
sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=size, rank=rank)
loader = torch.utils.data.DataLoader(dataset, batch_size=16, sampler=sampler)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for number, (inputs, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        scaler.scale(loss).backward()
        if number == 5 and rank == 1:
            model[0].bias.grad[0] = float("inf")
        scaler.unscale_(optimizer)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        scaler.step(optimizer)
        scaler.update()
dist.destroy_process_group()
