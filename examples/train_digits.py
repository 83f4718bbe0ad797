"""Train on the digits with any number of workers: farandole run -np 2 examples/train_digits.py"""

import torch
from sklearn.datasets import load_digits

import farandole.torch as hvd

hvd.init()
torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = torch.utils.data.TensorDataset(images.float() / 16, labels)
sampler = torch.utils.data.DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
loader = torch.utils.data.DataLoader(data, batch_size=32, sampler=sampler)

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)

for epoch in range(5):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    average = hvd.allreduce(loss.detach(), name="loss")
    if hvd.rank() == 0:
        print(f"epoch {epoch}: loss {average:.3f}; workers: {hvd.size()}")
