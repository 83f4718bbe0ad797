"""Draw docs/figures/technologies.svg: python docs/figures/technologies.py."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

_WIDTH, _LEFT, _RIGHT = 1000, 128, 844
_MIDDLE = 560
"""Between what serves CPUs and what serves GPUs."""
_BOX, _GAP = 62, 30
_INK, _PALE, _LINE = "#1b2733", "#5b6b7a", "#8c9aa8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One box: a name, what it does, and how it is marked."""

    name: str
    does: str
    lab: bool = False
    """Whether the faces lab used it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One row of the figure; what serves both kinds of device spans it."""

    name: str
    fill: str
    both: tuple[Part, ...] = ()
    cpu: tuple[Part, ...] = ()
    gpu: tuple[Part, ...] = ()


LAYERS = (
    Layer(
        name="framework",
        fill="#e8f0fa",
        both=(
            Part(name="PyTorch", does="forward, backward, update"),
            Part(name="TensorFlow", does="forward, backward, update", lab=True),
            Part(name="Keras 3", does="on torch, TensorFlow or JAX"),
        ),
    ),
    Layer(
        name="kernels",
        fill="#eef3f7",
        cpu=(Part(name="oneDNN, MKL", does="on OpenMP threads of one process"),),
        gpu=(Part(name="cuDNN, cuBLAS", does="on one GPU"),),
    ),
    Layer(
        name="API",
        fill="#e3f4ec",
        both=(
            Part(
                name="Horovod's API: init, size, rank, DistributedOptimizer, broadcast",
                does="in the lab by Horovod, here by farandole.torch, .keras, .tensorflow",
                lab=True,
            ),
        ),
    ),
    Layer(
        name="engine",
        fill="#d6eee2",
        both=(
            Part(
                name="Farandole's engine",
                does="agrees on names, fills gradient buckets, reduces them beside backward",
            ),
        ),
    ),
    Layer(
        name="collectives",
        fill="#fdf1dc",
        cpu=(
            Part(name="shared memory", does="one host"),
            Part(name="Gloo", does="several hosts"),
            Part(name="MPI", does="MVAPICH2, ...", lab=True),
        ),
        gpu=(Part(name="NCCL", does="GPU to GPU, also across hosts", lab=True),),
    ),
    Layer(
        name="links",
        fill="#f4ece6",
        cpu=(
            Part(name="memory bus", does="one host"),
            Part(name="Ethernet", does="TCP"),
            Part(name="InfiniBand", does="verbs, RDMA"),
        ),
        gpu=(
            Part(name="NVLink, PCIe", does="one host"),
            Part(name="InfiniBand", does="GPUDirect RDMA"),
        ),
    ),
)
LAUNCHERS = ("farandole run", "torchrun", "mpirun", "srun", "Ray")


def draw() -> str:
    """Return the figure as SVG."""
    top = 92
    height = top + len(LAYERS) * (_BOX + _GAP) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="system-ui, Segoe UI, Roboto, DejaVu Sans, Arial, sans-serif" '
        'role="img" aria-label="Which technologies carry training on several workers">',
        f'<rect width="{_WIDTH}" height="{height}" rx="10" fill="#ffffff"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{_LINE}"/></marker>'
        "</defs>",
        _text((_LEFT + _RIGHT) / 2, 34, "your script: train.py, one process per worker", bold=True),
        _text((_LEFT + _MIDDLE) / 2, 66, "workers on CPUs", bold=True, fill=_PALE),
        _text((_MIDDLE + _RIGHT) / 2, 66, "workers on GPUs", bold=True, fill=_PALE),
        f'<line x1="{_MIDDLE}" y1="54" x2="{_MIDDLE}" y2="{height - 56}" stroke="{_LINE}" '
        'stroke-width="1" stroke-dasharray="2 5"/>',
    ]
    for place, layer in enumerate(LAYERS):
        y = top + place * (_BOX + _GAP)
        parts.append(_text(14, y + _BOX / 2 + 5, layer.name, anchor="start", fill=_PALE))
        for members, left, right in (
            (layer.both, _LEFT, _RIGHT),
            (layer.cpu, _LEFT, _MIDDLE),
            (layer.gpu, _MIDDLE, _RIGHT),
        ):
            parts += _row(members, left, right, y, layer.fill)
        if place:
            parts += [_arrow(x, y - _GAP + 3, y - 4) for x in _ways(layer)]
    parts += _launchers(top, height - 40 - _GAP)
    parts.append(
        _text(
            _LEFT,
            height - 16,
            "● used by the faces lab  ·  arrows: the way of a gradient",
            anchor="start",
            fill=_PALE,
            size=13,
        )
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ways(layer: Layer) -> list[float]:
    """Return where arrows enter a layer: each part of one kind of device has its own."""
    return [
        left + (place + 0.5) * (right - left) / max(1, len(members))
        for members, left, right in ((layer.cpu, _LEFT, _MIDDLE), (layer.gpu, _MIDDLE, _RIGHT))
        for place in range(max(1, len(members)))
    ]


def _row(members: tuple[Part, ...], left: float, right: float, y: float, fill: str) -> list[str]:
    drawn: list[str] = []
    if not members:
        return drawn
    width = (right - left) / len(members)
    for place, part in enumerate(members):
        x = left + place * width + 6
        drawn += [
            f'<rect x="{x:g}" y="{y}" width="{width - 12:g}" height="{_BOX}" rx="8" '
            f'fill="{fill}" stroke="{_LINE}"/>',
            _text(
                x + width / 2 - 6,
                y + 26,
                f"{part.name}{' ●' if part.lab else ''}",
                bold=True,
                size=14,
            ),
            _text(x + width / 2 - 6, y + 46, part.does, fill=_PALE, size=12.5),
        ]
    return drawn


def _launchers(top: float, bottom: float) -> list[str]:
    """Return the bar at the side: what starts the processes stands beside all layers."""
    x, width = _RIGHT + 14, _WIDTH - _RIGHT - 28
    centre = x + width / 2
    return [
        f'<rect x="{x}" y="{top}" width="{width}" height="{bottom - top}" rx="8" fill="#f1eef8" '
        f'stroke="{_LINE}"/>',
        _text(centre, top + 30, "launchers", bold=True),
        *(
            _text(centre, top + 66 + 26 * place, name, size=14)
            for place, name in enumerate(LAUNCHERS)
        ),
        *(
            _text(centre, top + 200 + 19 * place, words, fill=_PALE, size=12.5)
            for place, words in enumerate(
                ("start a process", "per worker, tell", "rank and address")
            )
        ),
    ]


def _arrow(x: float, begin: float, end: float) -> str:
    return (
        f'<line x1="{x:g}" y1="{begin:g}" x2="{x:g}" y2="{end:g}" stroke="{_LINE}" '
        'stroke-width="1.6" marker-end="url(#tip)"/>'
    )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "middle",
    bold: bool = False,
    fill: str = _INK,
    size: float = 15,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size:g}"{weight} '
        f'fill="{fill}">{escape(words)}</text>'
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw(), encoding="utf-8")
