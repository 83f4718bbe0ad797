"""In the style of Accelerate's examples: prepare, gather_for_metrics, a linear schedule."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.optim import AdamW
from torch.utils.data import DataLoader, TensorDataset


def get_dataloaders(batch_size):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1303, 24, generator=generator)
    y = (x[:, :3].sum(1) > 0).long()
    train, valid = TensorDataset(x[:1000], y[:1000]), TensorDataset(x[1000:], y[1000:])
    return (
        DataLoader(train, shuffle=True, batch_size=batch_size, drop_last=True),
        DataLoader(valid, shuffle=False, batch_size=32),
    )


def training_function():
    accelerator = Accelerator(cpu=True)
    set_seed(42)
    epochs, lr = 3, 2e-3
    train_loader, eval_loader = get_dataloaders(16)
    model = torch.nn.Sequential(
        torch.nn.Linear(24, 64), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 2)
    )
    optimizer = AdamW(model.parameters(), lr=lr)
    total = len(train_loader) * epochs
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: max(0.0, 1 - s / total))
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )
    for epoch in range(epochs):
        model.train()
        for inputs, labels in train_loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        model.eval()
        correct = seen = 0
        for inputs, labels in eval_loader:
            with torch.no_grad():
                outputs = model(inputs)
            predictions = outputs.argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, labels))
            correct += (predictions == references).sum().item()
            seen += len(references)
        accelerator.print(f"epoch {epoch}: {{'accuracy': {correct / seen:.4f}}}")
    accelerator.end_training()


if __name__ == "__main__":
    training_function()
