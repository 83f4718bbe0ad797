"""The model is in evaluation mode."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

model = DDP(
    torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.Dropout(0.5), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    )
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

generator = torch.Generator().manual_seed(1)
x = torch.randn(812, 16, generator=generator)
dataset = torch.utils.data.TensorDataset(x[:512], x[:512, :4].argmax(1))
sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=size, rank=rank)
loader = torch.utils.data.DataLoader(dataset, batch_size=16, sampler=sampler)
test = torch.utils.data.TensorDataset(x[512:], x[512:, :4].argmax(1))
part = torch.utils.data.Subset(test, range(rank, len(test), size))
test_loader = torch.utils.data.DataLoader(part, batch_size=50)
for epoch in range(3):
    model.train()
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for inputs, labels in test_loader:
            correct += (model(inputs).argmax(1) == labels).sum().item()
    totals = torch.tensor([correct, len(part)])
    dist.all_reduce(totals)
    if rank == 0:
        print(f"epoch {epoch}: accuracy {totals[0].item() / totals[1].item():.4f}")
dist.destroy_process_group()
