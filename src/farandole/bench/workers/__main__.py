"""Run one task of a benchmark: `python workers '{"task": "torch_tasks.allreduce", ...}'`.

The benchmark starts this folder by its path. It imports its modules as the package `workers`, not
`farandole.bench.workers`, so that the processes of the limit never import farandole.
"""

import importlib
import sys
from pathlib import Path

sys.path[0:1] = []
sys.path.append(str(Path(__file__).resolve().parents[1]))
importlib.import_module("workers.measure").main()
