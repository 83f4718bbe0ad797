"""Scripts for jobs: without torch where training is not what is tested."""

from __future__ import annotations

MEET = '''
"""Meet the others, and say who is where."""
import os
from farandole.world import connect, read_world

world = read_world(os.environ)
meeting = connect(world)
names = [name.decode() for name in meeting.exchange(world.hostname.encode())]
meeting.exchange(b"")
print(f"rank {world.rank} of {world.size} from {world.source}: {' '.join(names)}", flush=True)
'''

FAIL = '''
"""Rank 1 fails once all are there."""
import os
import sys
import time
from farandole.world import connect, read_world

world = read_world(os.environ)
connect(world).exchange(b"")
print("together", flush=True)
if world.rank == 1:
    sys.exit(3)
time.sleep(600)
'''

WAIT = '''
"""Stay until somebody ends it."""
import time
print("here", flush=True)
time.sleep(600)
'''

FIGURES = '''
"""Print a figure, as a script does that Farandole cannot look into."""
import os
print(f"{os.environ['FARANDOLE_HOSTNAME']} img/sec: {100 * int(os.environ['FARANDOLE_SIZE'])}.0")
'''

HELD = '''
"""Print a figure; two workers are held up until there is a file named go."""
import os
import time
from pathlib import Path

workers = int(os.environ["FARANDOLE_SIZE"])
if workers == 2 and not Path("go").exists():
    print("held", flush=True)
    time.sleep(600)
print(f"img/sec: {100 * workers}.0")
'''

TRAIN = '''
"""Train until a clean stop; every rank writes how far it came, and its weights."""
import sys
from pathlib import Path
import torch
import farandole.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
steps = 0
try:
    while True:
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        steps += 1
        if steps == 20 and hvd.rank() == 0:
            print("training", flush=True)
except SystemExit:
    total = float(sum(p.double().sum() for p in model.parameters()))
    Path(sys.argv[1], f"rank-{hvd.rank()}.txt").write_text(f"{steps} {total!r}")
    raise
'''
