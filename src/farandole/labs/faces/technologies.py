"""Which technologies carry training on several nodes, and which of them ran here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farandole.labs.faces.questions import TECHNOLOGIES
from farandole.labs.lab import Answered, Found
from farandole.report.table import Column, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    name: str
    does: str
    cpu: str
    gpu: str
    lab: str


_LAYERS = (
    _Layer(
        name="framework",
        does="forward, backward, update of one replica",
        cpu="PyTorch, TensorFlow, Keras",
        gpu="the same, built with CUDA",
        lab="TensorFlow",
    ),
    _Layer(
        name="kernels",
        does="the arithmetic of a layer, on the threads of one process",
        cpu="oneDNN, MKL, on OpenMP threads",
        gpu="cuDNN, cuBLAS",
        lab="not said",
    ),
    _Layer(
        name="API",
        does="who am I; average my gradients; begin with rank 0's weights",
        cpu="Horovod's",
        gpu="Horovod's",
        lab="Horovod",
    ),
    _Layer(
        name="engine",
        does="agrees on which gradients are ready, fuses them, reduces them beside backward",
        cpu="Horovod's coordinator, Farandole's engine",
        gpu="the same",
        lab="Horovod",
    ),
    _Layer(
        name="collectives",
        does="all-reduce: moves and adds",
        cpu="MPI, Gloo; shared memory in one host",
        gpu="NCCL",
        lab="MPI (MVAPICH2) on CPUs, NCCL on GPUs",
    ),
    _Layer(
        name="links",
        does="carry the bytes",
        cpu="memory; Ethernet, InfiniBand",
        gpu="NVLink, PCIe; InfiniBand",
        lab="not said",
    ),
    _Layer(
        name="launcher",
        does="starts one process per worker, tells it its rank and where to meet",
        cpu="mpirun, srun, horovodrun, farandole run",
        gpu="the same",
        lab="not said",
    ),
)


def answer_technologies(found: Found) -> Answered:
    """Answer by the layers, with what the lab had and what ran here."""
    machine: Mapping[str, Any] = next((info.machine for info in found.studies.values()), {})
    here = _here(machine)
    table = Table(
        name="technologies",
        title="From the framework down to the links",
        columns=(
            Column(key="layer", title="layer", text=True),
            Column(key="does", title="what it does", text=True),
            Column(key="cpu", title="on CPUs", text=True),
            Column(key="gpu", title="on GPUs", text=True),
            Column(key="lab", title="the lab had", text=True),
            Column(key="here", title="here", text=True),
        ),
        rows=tuple(
            (layer.name, layer.does, layer.cpu, layer.gpu, layer.lab, here.get(layer.name, ""))
            for layer in _LAYERS
        ),
        notes=("docs/technologies.md draws them; `farandole env` says which a machine has.",),
    )
    return Answered(
        question=TECHNOLOGIES,
        sentences=(
            "A gradient goes down a stack and comes back as the average of all workers': the "
            "framework computes it, Horovod's API hands it over, an engine puts it into a bucket, "
            "a collective library moves and adds, and a link carries the bytes.",
            "CPUs and GPUs differ below the engine only: MPI, Gloo or shared memory on one side, "
            "NCCL on the other.",
            *_here_words(here),
        ),
        tables=(table,),
    )


def _here(machine: Mapping[str, Any]) -> dict[str, str]:
    if not machine:
        return {}
    versions: Mapping[str, str | None] = machine.get("versions") or {}
    farandole = f"Farandole {versions.get('farandole') or ''}".strip()
    frameworks = [f"{name} {versions[name]}" for name in ("keras", "torch") if versions.get(name)]
    gpus = machine.get("gpus") or []
    return {
        "framework": " on ".join(frameworks) or "Keras on torch",
        "kernels": "cuDNN" if gpus else "oneDNN",
        "API": farandole,
        "engine": farandole,
        "collectives": "NCCL" if gpus else "shared memory",
        "links": f"{len(gpus)} GPUs of one host" if gpus else "the memory of one host",
        "launcher": "farandole run",
    }


def _here_words(here: Mapping[str, str]) -> list[str]:
    if not here:
        return []
    return [
        f"Here it is {here['framework']}, {here['API']} and {here['collectives']} over "
        f"{here['links']}."
    ]
