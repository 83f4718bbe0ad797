"""In the style of Hugging Face's Trainer: accumulation, warm-up, clipping, a gathered evaluation."""

import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Sentences(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(0, 100, (count, 24), generator=generator)
        self.labels = (self.ids[:, 0] > self.ids[:, 1]).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(100, 32)
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, 2)

    def forward(self, input_ids, labels=None):
        logits = self.head(self.encoder(self.embed(input_ids))[:, 0])
        loss = None
        if labels is not None:
            loss = torch.nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def nested_gather(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return torch.cat(parts)


def evaluate(model, loader):
    model.eval()
    losses, predictions, labels = [], [], []
    for batch in loader:
        with torch.no_grad():
            out = model(**batch)
        losses.append(nested_gather(out["loss"].repeat(len(batch["labels"]))))
        predictions.append(nested_gather(out["logits"].argmax(-1)))
        labels.append(nested_gather(batch["labels"]))
    hits = torch.cat(predictions) == torch.cat(labels)
    return {
        "eval_loss": torch.cat(losses).mean().item(),
        "eval_accuracy": hits.float().mean().item(),
    }


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(42)
    train_set, eval_set = Sentences(960, 0), Sentences(192, 1)
    sampler = DistributedSampler(train_set, seed=42)
    train = DataLoader(train_set, batch_size=8, sampler=sampler, drop_last=True)
    evals = DataLoader(eval_set, batch_size=16, sampler=DistributedSampler(eval_set, shuffle=False))
    model = DistributedDataParallel(Classifier())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
    accumulate, epochs = 2, 3
    total = epochs * (len(train) // accumulate)
    warmup = max(1, total // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: s / warmup if s < warmup else max(0.0, (total - s) / (total - warmup)),
    )
    running, step = torch.tensor(0.0), 0
    for epoch in range(epochs):
        model.train()
        sampler.set_epoch(epoch)
        for index, batch in enumerate(train):
            last = (index + 1) % accumulate == 0
            model.require_backward_grad_sync = last
            loss = model(**batch)["loss"] / accumulate
            loss.backward()
            running += loss.detach()
            if not last:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % 20 == 0:
                mean = nested_gather(running.view(1)).mean().item() / 20
                running -= running
                if dist.get_rank() == 0:
                    print({"loss": round(mean, 4), "epoch": round(epoch + index / len(train), 2)})
        metrics = evaluate(model, evals)
        assert not math.isnan(metrics["eval_loss"])
        if dist.get_rank() == 0:
            print(metrics)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
