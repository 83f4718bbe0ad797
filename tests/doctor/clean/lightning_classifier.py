"""In the style of Lightning's examples: a LightningModule, a Trainer with ddp, two loaders."""

import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class LitClassifier(L.LightningModule):
    def __init__(self, hidden=64, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(32, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 4)
        )

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("valid_loss", F.cross_entropy(logits, y), sync_dist=True)
        self.log("valid_acc", (logits.argmax(1) == y).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main(folder):
    L.seed_everything(7, workers=True)
    x = torch.randn(1200, 32)
    data = TensorDataset(x, x[:, :4].argmax(1))
    train, valid = torch.utils.data.random_split(data, [1000, 200])
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=3,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        LitClassifier(),
        DataLoader(train, batch_size=16, shuffle=True),
        DataLoader(valid, batch_size=16),
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
