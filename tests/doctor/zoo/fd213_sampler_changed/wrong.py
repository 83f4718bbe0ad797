"""The sampler divides between ranks, and Lightning divides once more."""

import os

import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(16, 4)

    def training_step(self, batch, _):
        inputs, labels = batch
        return torch.nn.functional.cross_entropy(self.net(inputs), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class Balanced(torch.utils.data.Sampler):
    """Draws from all classes alike, and divides between ranks."""

    def __init__(self, labels, rank, size):
        self.by_class = [torch.nonzero(labels == one).flatten() for one in range(4)]
        self.rank, self.size = rank, size

    def __len__(self):
        return 512 // self.size

    def __iter__(self):
        for number in range(self.rank, 512, self.size):
            mine = self.by_class[number % 4]
            yield int(mine[number // 4 % len(mine)])


generator = torch.Generator().manual_seed(1)
x = torch.randn(512, 16, generator=generator)
labels = x[:, :4].argmax(1)
L.seed_everything(0)
trainer = L.Trainer(
    accelerator="cpu",
    strategy="ddp",
    devices=int(os.environ.get("WORLD_SIZE", "1")),
    max_epochs=3,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
sampler = Balanced(labels, trainer.global_rank, trainer.world_size)
dataset = torch.utils.data.TensorDataset(x, labels)
loader = torch.utils.data.DataLoader(dataset, batch_size=16, sampler=sampler)
trainer.fit(Net(), loader)
