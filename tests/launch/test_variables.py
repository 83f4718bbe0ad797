from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.launch.placement import pack, parse_hosts
from farandole.launch.plan import Plan
from farandole.launch.variables import SITE, Job, launcher_environ, passed_on, worker_environ
from farandole.world.environment import read_world
from tests.conftest import run_cli

JOB = Job(
    job_id="j0b",
    launcher_pid=77,
    board_path="/proc/77/fd/5",
    master_port=4321,
    hostname="here",
)


def environ_of(
    rank: int = 1, base: dict[str, str] | None = None, **changes: object
) -> dict[str, str]:
    plan = Plan(argv=("x",), num_workers=2, threads=3, **changes)  # type: ignore[arg-type]
    return worker_environ(base or {}, plan, JOB, rank)


def test_we_understand_ourselves() -> None:
    world = read_world(environ_of(transport="gloo", start_timeout_s=7.5))
    assert (world.source, world.rank, world.size, world.job_id) == ("farandole", 1, 2, "j0b")
    assert (world.local_rank, world.local_size, world.cross_rank, world.cross_size) == (1, 2, 0, 1)
    assert (world.master_addr, world.master_port) == ("127.0.0.1", 4321)
    assert (world.board, world.hostname) == ("/proc/77/fd/5", "here")
    assert (world.transport, world.start_timeout_s) == ("gloo", 7.5)


@pytest.mark.parametrize("prefix", ["torchrun", "horovodrun"])
def test_scripts_for_others_understand_us(prefix: str) -> None:
    """Without our own variables, those of torchrun and of Horovod say the same."""
    hidden = ("FARANDOLE_",) if prefix == "torchrun" else ("FARANDOLE_", "RANK", "WORLD_SIZE")
    environ = {n: v for n, v in environ_of().items() if not n.startswith(hidden)}
    world = read_world(environ)
    assert (world.source, world.rank, world.size, world.local_rank) == (prefix, 1, 2, 1)
    assert not world.agent_store


def test_an_inner_launch_beats_an_outer_one() -> None:
    outer = environ_of(rank=0) | {"TORCHELASTIC_USE_AGENT_STORE": "True", "FARANDOLE_HOOKED": "1"}
    inner = environ_of(rank=1, base=outer)
    assert read_world(inner).rank == 1
    assert "FARANDOLE_HOOKED" not in inner
    assert inner["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    assert inner["PYTHONPATH"] == str(SITE)


def test_threads_are_set_unless_the_user_did() -> None:
    base = {"MKL_NUM_THREADS": "9"}
    assert environ_of(base=base)["OMP_NUM_THREADS"] == "3"
    assert environ_of(base=base)["MKL_NUM_THREADS"] == "9"
    assert environ_of(base=base, override_threads=True)["MKL_NUM_THREADS"] == "3"


def test_threads_of_tensorflow_and_jax() -> None:
    environ = environ_of()
    assert (environ["TF_NUM_INTRAOP_THREADS"], environ["PJRT_NPROC"]) == ("3", "3")
    # One more waits for other workers.
    assert environ["TF_NUM_INTEROP_THREADS"] == "4"
    mine = {"TF_NUM_INTEROP_THREADS": "1"}
    assert environ_of(base=mine)["TF_NUM_INTEROP_THREADS"] == "1"
    assert environ_of(base=mine, override_threads=True)["TF_NUM_INTEROP_THREADS"] == "4"


POOLS = """
import os, collections
import jax, tensorflow as tf

tf.function(lambda a: a + 1)(tf.ones(3))
jax.jit(lambda a: a + 1)(jax.numpy.ones(3)).block_until_ready()
tasks = [f"/proc/self/task/{task}/comm" for task in os.listdir("/proc/self/task")]
names = collections.Counter(open(task).read().strip() for task in tasks)
print(names["tf_Compute"], names["tf_XLAEigen"])
"""


@pytest.mark.ranks
@pytest.mark.timeout(300)  # both take their time to start beside other tests
def test_tensorflow_and_jax_do_as_they_are_told(tmp_path: Path) -> None:
    (tmp_path / "pools.py").write_text(POOLS)
    flags = ("-np", "1", "--threads", "5", "--no-tag")
    done = run_cli("run", *flags, tmp_path / "pools.py", timeout_s=180)
    assert done.stdout.splitlines()[-1:] == ["6 5"], done.stderr


def test_sockets_stay_on_loopback_unless_the_user_said_otherwise() -> None:
    environ = environ_of(base={"NCCL_SOCKET_IFNAME": "eth0"})
    assert environ["GLOO_SOCKET_IFNAME"] == environ["TP_SOCKET_IFNAME"] == "lo"
    assert environ["NCCL_SOCKET_IFNAME"] == "eth0"


def test_the_rest_is_passed_on() -> None:
    environ = environ_of(base={"MY DATA": "a\nb", "PYTHONPATH": "/mine"})
    assert environ["MY DATA"] == "a\nb"
    assert environ["PYTHONPATH"] == f"{SITE}{os.pathsep}/mine"
    assert environ["PYTHONUNBUFFERED"] == "1"


def test_workers_record_where_they_are_told_to() -> None:
    folder = Path("/records/run 1")
    environ = environ_of(record_dir=folder, timeline=Path("/t.json"))
    assert environ["FARANDOLE_RECORD_DIR"] == str(folder)
    assert environ["FARANDOLE_TIMELINE"] == "1"
    assert not {"FARANDOLE_RECORD_DIR", "FARANDOLE_TIMELINE"} & environ_of().keys()


def test_a_command_with_its_own_launcher_gets_no_rank() -> None:
    outer = {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "MASTER_PORT": "1",
        "FARANDOLE_RANK": "3",
        "FARANDOLE_SIZE": "4",
        "FARANDOLE_BOARD": "/proc/1/fd/2",
        "HOROVOD_LOCAL_RANK": "0",
        "TORCHELASTIC_RUN_ID": "x",
        "FARANDOLE_RECORD_DIR": "/record",
        "PYTHONPATH": "/mine",
        "SLURM_NTASKS": "4",
    }
    plan = Plan(argv=("torchrun",), num_workers=1, threads=3, own_launcher=True, transport="gloo")
    environ = launcher_environ(outer, plan)
    assert read_world(environ).size == 1
    assert not {name for name in environ if "RANK" in name or "WORLD" in name or "BOARD" in name}
    assert environ["FARANDOLE_RECORD_DIR"] == "/record"
    assert environ["FARANDOLE_HOROVOD_ALIAS"] == "missing"
    assert environ["PYTHONPATH"] == f"{SITE}{os.pathsep}/mine"
    assert (environ["OMP_NUM_THREADS"], environ["FARANDOLE_TRANSPORT"]) == ("3", "gloo")
    assert environ["SLURM_NTASKS"] == "4"


FAR = replace(
    JOB,
    hostname="n2",
    master_addr="10.0.0.1",
    address="10.0.0.2",
    interface="ib0",
    placement=pack(parse_hosts("n1:2,n2:1,n3:2"), 5),
)


def test_several_hosts() -> None:
    plan = Plan(argv=("x",), num_workers=5, threads=3)
    environs = [worker_environ({}, plan, FAR, rank) for rank in range(5)]
    worlds = [read_world(environ) for environ in environs]
    assert [(w.local_rank, w.local_size) for w in worlds] == [
        (0, 2),
        (1, 2),
        (0, 1),
        (0, 2),
        (1, 2),
    ]
    # Only n1 and n3 have a second worker.
    assert [(w.cross_rank, w.cross_size) for w in worlds] == [
        (0, 3),
        (0, 2),
        (1, 3),
        (2, 3),
        (1, 2),
    ]
    assert worlds[3].rank_hosts == ("n1", "n1", "n2", "n3", "n3")
    assert worlds[3].hosts == ("n1", "n2", "n3")
    assert {w.address for w in worlds} == {"10.0.0.2"}
    assert {w.one_host for w in worlds} == {False}
    assert [e["GROUP_RANK"] for e in environs] == ["0", "0", "1", "2", "2"]
    assert environs[0]["GROUP_WORLD_SIZE"] == "3"
    assert environs[0]["MASTER_ADDR"] == "10.0.0.1"
    assert environs[0]["GLOO_SOCKET_IFNAME"] == environs[0]["NCCL_SOCKET_IFNAME"] == "ib0"


def test_an_unknown_interface_is_not_guessed() -> None:
    plan = Plan(argv=("x",), num_workers=5, threads=3)
    assert "GLOO_SOCKET_IFNAME" not in worker_environ({}, plan, replace(FAR, interface=""), 0)


def test_what_goes_to_other_hosts() -> None:
    environ = {
        "PATH": "/bin",
        "LD_LIBRARY_PATH": "/lib",
        "PYTHONHASHSEED": "1",
        "NCCL_DEBUG": "INFO",
        "CUDA_VISIBLE_DEVICES": "0",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "3",
        "HOROVOD_FUSION_THRESHOLD": "1",
        "FARANDOLE_OVERLAP": "off",
        "KERAS_BACKEND": "jax",
        "DATA": "/data",
    }
    local = {
        "HOME": "/root",
        "FARANDOLE_RANK": "1",
        "FARANDOLE_HOSTS": "n1:1",
        "FARANDOLE_MASTER_FD": "4",
        "MASTER_ADDR": "x",
        "XPATH": "y",
    }
    expected = environ | {"TOKEN": "a=b"}
    assert passed_on(environ | local, ["DATA", "TOKEN=a=b"]) == expected


@pytest.mark.parametrize("text", ["", "=x", "A B=1", "MISSING"])
def test_variables_that_cannot_be_passed(text: str) -> None:
    with pytest.raises(UsageError, match="--env"):
        passed_on({}, [text])
