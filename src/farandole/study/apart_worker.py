"""One of the copies of a script that a calibration starts at once: a launch of one worker.

Its arguments are the script's command. The copies are workers of one launch; what each of them
starts is the only worker of a launch of its own, and sends nothing to anybody.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from farandole.launch.call import CALL_FD, RESULT_FD
from farandole.launch.plan import count_gpus
from farandole.recorder.settings import APART, PARAMS, RECORD_DIR, STOP
from farandole.study import folder

_CELL_DIR = "FARANDOLE_CELL_DIR"
_DEVICES = "CUDA_VISIBLE_DEVICES"


def copy_environ(environ: Mapping[str, str], copy: int, copies: int) -> dict[str, str]:
    """Return a copy's environment: files of its own, the values of one worker, one GPU.

    Args:
        environ: of the launch of all copies.
        copy: which this is.
        copies: how many there are.
    """
    cell_dir, place = environ[_CELL_DIR], Path(environ[RECORD_DIR])
    own_dir = str(Path(cell_dir, str(copy)))
    found = {name: text.replace(cell_dir, own_dir) for name, text in environ.items()}
    found.pop(STOP, None)
    params = json.loads(environ[PARAMS])
    if "global_batch" in params:
        params["global_batch"] //= copies
    params |= {"workers": 1, "cell_dir": own_dir}
    order = {"copy": copy, "copies": copies, "control": str(place / "control")}
    if count_gpus(environ):
        # Each takes itself for the first worker of its host, and would take the first GPU.
        devices = environ.get(_DEVICES, ",".join(map(str, range(copies)))).split(",")
        found[_DEVICES] = devices[copy % len(devices)]
    return found | {
        PARAMS: json.dumps(params),
        RECORD_DIR: str(folder.copy_folder(place, copy)),
        APART: json.dumps(order),
    }


def main(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a copy to its end; return its exit code."""
    from farandole.launch.launcher import launch
    from farandole.launch.plan import make_plan
    from farandole.world.cores import read_cores

    copy, copies = int(environ["FARANDOLE_RANK"]), int(environ["FARANDOLE_SIZE"])
    mine = copy_environ(environ, copy, copies)
    for path in (mine[_CELL_DIR], mine[RECORD_DIR]):
        Path(path).mkdir(parents=True, exist_ok=True)
    if Path.cwd() == Path(environ[_CELL_DIR]):
        os.chdir(mine[_CELL_DIR])
    parts = [part.replace(environ[_CELL_DIR], mine[_CELL_DIR]) for part in command]
    # A function comes by descriptors, which are this process's to hand down.
    fds = {name: int(environ[name]) for name in (CALL_FD, RESULT_FD) if name in environ}
    ended = launch(
        make_plan(command=parts, np=1, tag=False, environ=mine, cores=read_cores()),
        environ=mine,
        show=_show,
        worker_fds=lambda _: fds,
    )
    return ended.verdict.exit_code


def _show(stream: str, line: str) -> None:
    target = sys.stderr if stream == "stderr" else sys.stdout
    target.write(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
