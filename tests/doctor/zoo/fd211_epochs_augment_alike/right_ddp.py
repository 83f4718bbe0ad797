"""Seeds come from torch, which has one for each process and epoch."""

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        noise = numpy.random.normal(0, 0.1, 16).astype("float32")
        return x[index] + torch.from_numpy(noise), x[index, :4].argmax()


def seed(worker_id):
    numpy.random.seed(torch.initial_seed() % 2**32)


generator = torch.Generator().manual_seed(1)
x = torch.randn(512, 16, generator=generator)
dataset = Noisy()
sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=size, rank=rank)
loader = torch.utils.data.DataLoader(
    dataset, batch_size=16, sampler=sampler, num_workers=2, worker_init_fn=seed
)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
