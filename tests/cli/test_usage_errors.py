"""Wrong flags and values of every command: exit code 2, one plain line, nothing on stdout."""

from __future__ import annotations

import re
import shlex
import sys
from collections import ChainMap
from pathlib import Path

import pytest

from farandole.cli.main import main
from farandole.study.import_table import import_table

# A command line, and what is said of it. STUDY is a study's folder, TABLE a table of step times,
# PY a command that there is; names in brackets are variables around the command line.
WRONG = r"""
dance | there is no command dance. Commands: demo, run, study, report, doctor, project, lab
studdy | there is no command studdy. Did you mean study?
--vresion | there is no flag --vresion.
env --nonsense | there is no flag --nonsense. See farandole env --help.
env more | there is no argument more. See farandole env --help.

demo --seeds 0 | --seeds 0: give a whole number from 1 up
demo --epochs two | --epochs two: give a whole number

run -np 0 x | -np 0: give a number of workers from 1 up, or auto.
run -np -1 x | -np -1: give a number
run -np two x | -np two: give a number
run -np | farandole: -np: expected one argument. See farandole run --help.
run python train.py | How many workers?
run -np 2 | No command was given
run -np 2 -- | No command was given
run -np 2 nowhere/train.py | nowhere/train.py: there is no such script
run -np 2 no-such-command | no-such-command: there is no such command
run -np 2 --transport pigeon x | choose a transport from auto, shm, gloo
run -np 2 --transport mpi -m 'a b' | FARANDOLE_TRANSPORT=mpi mpirun -np 2 python -m 'a b'
run -np 2 --launcher pigeon python | choose from local, ssh, slurm, ray
run -np 2 --launcher ray -H localhost:2 python | lets Ray choose the hosts
run -np 4 -H localhost:2 python | the hosts have 2 slots
run --thread 2 x | there is no flag --thread. Did you mean --threads?
run -np 1 --stall-warning soon x | --stall-warning soon: give a number of seconds
run -np 1 --stall-warning 9 --stall_shutdown 5 x | would end the job before --stall-warning 9
run -np 2 --sharded --max-restarts 2 true | --sharded: weights that workers share are lost
run -np 1 --timeline . true | that is a folder
run -np 1 --timeline a/b true | there is no folder
run -np 2 --min-np 3 PY | -np 2 is less than --min-np 3
run -np 2 --min-np 3 --max-np 2 PY | --min-np 3 is more than the run may have (--max-np 2)
run -np 2 --host-discovery-script TABLE PY | it is not executable. Make it so: chmod +x
run -np 2 --host-discovery-script 'PY -V' PY | printed 'Python
run -np 2 --host-discovery-script 'PY -c 1/0' PY | exited with code 1: ZeroDivisionError
run -np 2 --launcher ray --min-np 1 PY | --launcher ray reserves room for all workers together
run -np 2 --launcher ray --max-restarts 1 PY | out --max-restarts 1, and let Ray start the job again
run -np 2 -H a:1,b:1 --min-np 1 --launcher local PY | but a, b is another

study | No command was given
study -- | No command was given
study -np 0 -- x | -np 0
study -L lr=1 -- STUDY/study.json | the command has no {lr}
study --repeat=2 -- x | Did you mean --repeats?
study --scaling strong -np 2,3 -L batch=8 -- x {batch} | 6 or 12
study --resume nowhere | nowhere does not exist
study --resume . | is empty. Name the folder of a study
study --resume . -- python | needs nothing else
study --resume . --repeats 5 | leave out --repeats. To change it, use --out .
study --resume . -L lr=1 | leave out -L
study --resume . --no-epoch | leave out --no-epoch
study --resume STUDY | no plan to resume
study --out STUDY/tables -- python | is not empty
study --prepare "'" -- python | --prepare
study -np 4000 -- python | nothing about speed
study -np 1 --out out -- nosuch.py | nosuch.py: there is no such script in
study import | farandole: TABLE.csv is missing. See farandole study import --help.
study import no.csv | needs a folder
study import no.csv --out new | no.csv cannot be read
study import no.csv --out new --x | there is no flag --x

report | farandole: DIR is missing. See farandole report --help.
report .. | is not the folder of a study
report STUDY --figures gif | --figures gif is not known. Choose from png, svg, pdf, or none.
report STUDY --figures '' | --figures '' is not known
report STUDY --tables csv,xls | --tables xls is not known
report STUDY --price 0 | --price 0 is not a number above 0
report STUDY --price nan | --price nan is not a number above 0
report STUDY --target 0.98 | --target 0.98 is not METRIC=VALUE
report STUDY --target acc=high | --target acc=high is not METRIC=VALUE

project STUDY | Say how many workers to project to
project STUDY -np 0 | -np 0: give numbers from 1 up
project STUDY -np 8 --link fast | --link fast is no link
project STUDY -np 8 --link 25Gbit,3 | '3' is no latency
project STUDY -np 8 --price cheap | --price cheap is no price
project STUDY -np 8 --price -2 | --price -2 is no price
project STUDY -np 8 --budget 0 --price 2 | --budget 0 is not a number above 0
project STUDY -np 8 --budget 50 | --budget 50 needs a price
project STUDY -np 8 --deadline soon | --deadline soon: give a time above 0
project STUDY -np 8 --target 0.9 | --target 0.9 is not METRIC=VALUE
project STUDY -np 8 --target f1=0.9 | these runs recorded accuracy
project STUDY -np 8 --target accuracy=0.99 | accuracy=0.99 was never reached
project STUDY -np 8 --per-host 0 | --per-host 0: give a whole number from 1 up
project STUDY -np 8 --batch x | --batch x: give a whole number
project STUDY -np 8 --bucket-size 0 | --bucket-size 0 is not a number of MB above 0
project STUDY -np 8 --bucket-size 25 | --bucket-size needs to know when gradients
project STUDY -np 8 --fp16 | --fp16 needs to know when gradients are ready
project STUDY --fleet x | --fleet x: give a whole number
project STUDY -np 8 --prefer luck | --prefer luck: choose from time, money, balance
project STUDY --offer 'A 4' | it has no name before a colon
project STUDY --offer 'A: 32, 8 per host' | does not say what connects them
project STUDY --offer 'A: 4' --offer 'A: 8' | Two offers are called A
project STUDY -np 8 --only device=cpu | No curve of this study has device=cpu

lab --budget | farandole: --budget: expected one argument. See farandole lab --help.
lab --quick | Which lab? Name one of cifar10, mnist,
lab mnits | there is no lab 'mnits'
lab mnist --recipe magic | There is no recipe 'magic'. There are fixed, linear

backtest TABLE --fit-workers none | --fit-workers none: give a whole number from 1 up
backtest TABLE --fit-nodes 0 | --fit-nodes 0: give a whole number
backtest TABLE --link 25Gbit | --link 25Gbit is for fits without a network
backtest TABLE --fit-nodes 2 --link 25Gbit | Add --fit-nodes 1
backtest TABLE --fit-nodes 1 --link fast | --link fast is no link
backtest TABLE --gradients bert=1GB | needs --link, the network
backtest TABLE --fit-nodes 1 --link 25Gbit --gradients 1GB | --gradients 1GB: write MODEL=SIZE
backtest TABLE --fit-nodes 1 --link 25Gbit --gradients bert=large | bert large: give a size above 0
backtest TABLE --fit-nodes 1 --link 25Gbit --gradients a=1GB,a=2GB | the size for a twice
backtest TABLE --rows | --rows adds rows to the JSON

bench allreduce --launches 0 | --launches 0: give a whole number from 1 up
bench allreduce --launches two | --launches two: give a whole number
bench allreduce --peers gloo,nccl | --peers nccl: choose from gloo,
bench train --models vgg | --models vgg: choose from mlp, cnn, resnet18
bench train -np 1,2 | -np 1,2 does not fit `bench train`: give one number
bench overhead -np 2 | -np does not fit `bench overhead`. It is for allreduce, train, sharded, ranks
bench ranks -np 1,-2 | -np 1,-2: give numbers from 1 up
bench train --backend jax | --backend jax is for Keras. Add --framework keras
bench train --framework keras --backend mxnet | --backend mxnet: choose from
bench memory --framework keras | --framework keras does not fit `bench memory`
bench train --framework keras --peers ddp | --peers ddp does not fit
bench train --framework keras --models resnet18 | choose from mlp, cnn.
bench train --wide | --wide does not fit `bench train`. It is for live.
bench train --scenarios 3 | --scenarios does not fit `bench train`. It is for live.
bench live --quick | --quick does not fit `bench live`
bench live -np 4 | -np does not fit `bench live`
bench nothing | invalid choice: 'nothing'

[NOTHING] run --launcher slurm -np 2 -- PY | there is no sbatch on PATH
run --launcher slurm -np 9 -N 2 --ntasks-per-node 4 -- PY | You asked for 9 workers (-np 9), but
run --launcher slurm -- PY | How many workers?
run --launcher slurm -np 2 -H a:2 -- PY | SLURM chooses the nodes
run --launcher slurm -np 2 --setup no.sh -- PY | --setup no.sh
run --launcher slurm -np 2 --sbatch nodes=2 -- PY | use -N
run -np 2 --sbatch time=5 -- PY | Add --launcher slurm
run -np 2 -N 2 -- PY | Add --launcher slurm
[STEP] run -np 8 -- PY | You asked for 8 workers (-np 8), but SLURM gave this step 4 tasks
[STEP] run -np 4 --timeline t.json -- PY | --timeline is for the process that starts all
[STEP] run -np 4 --record folder -- PY | --record is for the process that starts all
[JOB] run -np 9 -- PY | You asked for 9 workers (-np 9), but SLURM gave job 7 8 CPUs
[JOB NOTHING] run -np 4 -- PY | there is no srun on PATH
[JOB ODD] run -np 4 -- PY | is not a SLURM node list
[JOB] run -np 3x1 -- PY | 3x1 needs 3 hosts
[STEP] run --min-np 2 -- PY | --min-np 2 is for the process that starts all workers, but srun
[STEP] run --max-restarts 2 -- PY | leave out the flag and submit the job with --requeue
study -np 2x4 -- PY | -np 2x4 needs 2 hosts, but this study has 1 host
[STEP] study -np 1 -- PY | srun has started this study 4 times
study --sbatch time=5 -- PY | is for --per-cell-jobs
study --resume old --setup file | use --out old with the whole command
[NOTHING] study --per-cell-jobs -np 1 -- PY | there is no sinfo on PATH
study --per-cell-jobs -H a:1 -- PY | lets SLURM choose the nodes

horovodrun python train.py | How many workers? Give -np 2
"""
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_NTASKS": "4",
}
STEP = {**JOB, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1"}
AROUND = {
    "JOB": JOB,
    "STEP": STEP,
    "NOTHING": {"PATH": "/nowhere"},
    "ODD": {"SLURM_JOB_NODELIST": "n[1-"},
}
ROWS = [line for line in WRONG.splitlines() if line]
STEPS = "cluster,model,nodes,workers,local_batch,step_time_s,sync_time_s\n" + "".join(
    f"c,net,{n},{n},32,{0.1 + 0.01 * n},0.01\n" for n in (1, 2, 4, 8)
)
STUDY = "workers,device,batch,step_s,accuracy\n" + "".join(
    f"{n},gpu,32,{0.3 + 0.1 * (n - 1) / n},0.9\n" for n in (1, 2, 4)
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder beside which there is a study and a table."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "steps.csv").write_text(STEPS)
    (folder / "table.csv").write_text(STUDY)
    import_table(folder / "table.csv", folder / "study")
    (folder / "study" / "tables").mkdir()
    (folder / "study" / "tables" / "x").touch()
    (folder / "here").mkdir()
    return folder


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.partition(" | ")[0])
def test_a_usage_error_is_one_line(
    row: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place / "here")
    command, _, said = row.partition(" | ")
    around, _, command = command.rpartition("] ")
    for name, value in ChainMap(*(AROUND[name] for name in reversed(around[1:].split()))).items():
        monkeypatch.setenv(name, value)
    named = {"STUDY": place / "study", "TABLE": place / "steps.csv", "PY": sys.executable}
    words = [
        re.sub(r"\b(STUDY|TABLE|PY)\b", lambda m: str(named[m[1]]), word)
        for word in shlex.split(command)
    ]
    assert main(words) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("farandole: ")
    assert said in found.err
    assert found.err.count("\n") == 1
    assert list((place / "here").iterdir()) == []
    assert not (place / "study" / "projection.json").exists()
