"""Plain DDP on the digits: farandole study -- python examples/train_ddp.py '{batch}'"""

import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits

dist.init_process_group("gloo")
torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = torch.utils.data.TensorDataset(images.float() / 16, labels)
sampler = torch.utils.data.DistributedSampler(data)
batch = int(sys.argv[1]) if len(sys.argv) > 1 else 32
loader = torch.utils.data.DataLoader(data, batch_size=batch, sampler=sampler)

net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)

for epoch in range(5):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: loss {loss:.3f}; workers: {dist.get_world_size()}")
dist.destroy_process_group()
