"""What Keras costs on each of its backends: the rows of `bench --framework keras`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from farandole.bench.contestant import Contestant, Role, Starter
from farandole.bench.roster import FARANDOLE, IN_TURNS
from farandole.bench.rows import Claim, Group, Quantity, RowPlan, Settings

FREE = "limit, free"
BARRIER = "limit, barrier"

_TITLES = {
    "mlp": "MLP 784-2048-2048-10, batch 32",
    "cnn": "small CNN of 1.2 M parameters, batch 128",
}
_NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}
# The share of the speed of workers that do not communicate, and the time of one wrapped worker.
_SPEED = {
    "mlp": {"torch": 0.80, "tensorflow": 0.75, "jax": 0.50},
    "cnn": {"torch": 0.90, "tensorflow": 0.90, "jax": 0.90},
}
_OVERHEAD = {"torch": 1.03, "tensorflow": 1.03, "jax": 1.10}
# JAX computes while Python goes on. Waiting for each step would take that from the contestant who
# does not communicate, so its steps are timed in blocks, with one wait at the end of each.
_JAX_BLOCK = {"mlp": 10, "cnn": 4}
_TURN_STEPS = 8


def train(settings: Settings) -> list[Group]:
    """Return a row for each backend and network: data-parallel `fit` against the limit."""
    built = []
    for backend in settings.backends:
        for model in _models(settings):
            options = _options(settings, backend, model)
            contestants = (
                _farandole(backend, options, settings.num_ranks),
                _plain(FREE, backend, options, settings.num_ranks, barrier="free"),
                _plain(BARRIER, backend, options, settings.num_ranks, barrier="step"),
            )
            share = _SPEED[model][backend]
            claim = Claim(
                text=f"{100 * share:.0f} % of the limit's speed ({FREE})",
                quantity=Quantity.SPEED_RATIO,
                subject=FARANDOLE,
                against=FREE,
                to_reach=share,
            )
            built.append(
                _group(
                    f"train-keras-{backend}-{model}",
                    f"Keras on {_NAMES[backend]}, {_TITLES[model]}: one step of fit",
                    contestants,
                    FREE,
                    claim,
                )
            )
    return built


def overhead(settings: Settings) -> list[Group]:
    """Return a row for each backend and network: one wrapped worker over plain Keras."""
    built = []
    for backend in settings.backends:
        for model in _models(settings):
            factor = _OVERHEAD[backend]
            claim = Claim(
                text=f"{100 * (factor - 1):.0f} % slower than plain Keras at most",
                quantity=Quantity.TIME_RATIO,
                subject=IN_TURNS,
                to_reach=factor,
            )
            built.append(
                _group(
                    f"overhead-keras-{backend}-{model}",
                    f"Keras on {_NAMES[backend]}, {_TITLES[model]}: one worker through "
                    "DistributedOptimizer over plain Keras",
                    (_in_turns(backend, _options(settings, backend, model, times=4)),),
                    None,
                    claim,
                    series="ratio",
                )
            )
    return built


BUILDERS: dict[str, Callable[[Settings], list[Group]]] = {"train": train, "overhead": overhead}


def environment(backend: str) -> dict[str, str]:
    """Return what all contestants of a backend's rows find in their environment."""
    return {
        "KERAS_BACKEND": backend,
        # Not the user's keras.json, which may choose another precision or order of channels.
        "KERAS_HOME": "{scratch}",
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        # One thread computes. With two inter-op threads, both would.
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        # Not enough by itself: JAX's workers are pinned to a core, too.
        "PJRT_NPROC": "1",
    }


def _models(settings: Settings) -> list[str]:
    return [model for model in settings.models if model in _TITLES]


def _options(settings: Settings, backend: str, model: str, times: int = 1) -> dict[str, Any]:
    warmup, steps = settings.steps[model]
    block = _JAX_BLOCK[model] if backend == "jax" else 1
    blocks = max(2, settings.timed(times * steps) // block)
    return {
        "backend": backend,
        "model": model,
        "warmup": warmup,
        "steps": blocks * block,
        "block": block,
        "pin": backend == "jax",
    }


def _farandole(backend: str, options: dict[str, Any], num_ranks: int) -> Contestant:
    return Contestant(
        name=FARANDOLE,
        role=Role.SUBJECT,
        starter=Starter.FARANDOLE,
        worker="keras_hvd_train",
        num_ranks=num_ranks,
        options={**options, "module": "farandole.keras"},
        environment=environment(backend),
        synchronized=True,
    )


def _plain(
    name: str, backend: str, options: dict[str, Any], num_ranks: int, *, barrier: str
) -> Contestant:
    return Contestant(
        name=name,
        role=Role.REFERENCE,
        starter=Starter.DIRECT,
        worker="keras_plain_train",
        num_ranks=num_ranks,
        options={**options, "barrier": barrier},
        environment=environment(backend),
    )


def _in_turns(backend: str, options: dict[str, Any]) -> Contestant:
    # Long enough for a median, short enough for the machine to be the same in the turn after it.
    turn = max(_TURN_STEPS, options["block"])
    return Contestant(
        name=IN_TURNS,
        role=Role.SUBJECT,
        starter=Starter.FARANDOLE,
        worker="keras_overhead",
        num_ranks=1,
        options={**options, "turn": turn - turn % options["block"]},
        environment=environment(backend),
    )


def _group(
    key: str,
    title: str,
    contestants: tuple[Contestant, ...],
    baseline: str | None,
    claim: Claim,
    *,
    series: str = "step",
) -> Group:
    row = RowPlan(
        key=key,
        title=title,
        series=series,
        unit="ratio" if series == "ratio" else "s",
        contestants=tuple(contestant.name for contestant in contestants),
        baseline=baseline,
        claims=(claim,),
    )
    return Group(key=key, contestants=contestants, rows=(row,))
