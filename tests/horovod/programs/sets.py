"""Train two models at once, on even and on odd ranks, written as people write for Horovod."""

import os

import horovod.torch as hvd
import torch


def main():
    num_workers = int(os.environ["HOROVOD_SIZE"])
    even_set = hvd.ProcessSet(range(0, num_workers, 2))
    odd_set = hvd.ProcessSet(range(1, num_workers, 2))
    hvd.init(process_sets=[even_set, odd_set])
    mine = even_set if even_set.included() else odd_set
    assert mine.size() == len(mine.ranks)
    assert mine.ranks[mine.rank()] == hvd.rank()

    # Ranks of the other set are elsewhere meanwhile.
    total = hvd.allreduce(torch.tensor([float(hvd.rank())]), op=hvd.Sum, process_set=mine)
    assert total.item() == sum(mine.ranks)

    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 1)
    first = mine.ranks[0]
    for parameter in model.parameters():
        parameter.data = hvd.broadcast(parameter.data, first, process_set=mine)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        named_parameters=model.named_parameters(),
        process_set=mine,
    )
    for step in range(5 if mine is even_set else 9):
        optimizer.zero_grad()
        x = torch.full((2, 4), float(hvd.rank() + step))
        model(x).sum().backward()
        optimizer.step()
    weights = hvd.allgather(model.weight.detach(), process_set=mine)
    assert all(torch.equal(weights[0], other) for other in weights[1:])
    hvd.barrier()
    everyone = hvd.allgather(model.weight.detach())
    assert everyone.shape[0] == hvd.size()
    if hvd.rank() == 0:
        print(f"{len(mine.ranks)} even ranks and {hvd.size() - len(mine.ranks)} odd ones agree")
    return [hvd.rank(), mine.process_set_id]


if __name__ == "__main__":
    main()
