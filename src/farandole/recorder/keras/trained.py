"""What is trained in this worker: which models and optimizers, where, with how many parameters."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from farandole.recorder.cuda import StreamClock, peak_bytes
from farandole.recorder.recorder import Recorder
from farandole.recorder.step import Later


class Trained:
    """Follows owners of weights: models in fits, optimizers in loops of a program's own."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.weights = Weights()
        self.before_the_end: Callable[[], None] = lambda: None
        """Called before the last fingerprints are taken."""
        self._device: Device | None = None
        self._parameters: dict[int, int] = {}

    def device(
        self, recorder: Recorder, number: int, optimizer: Any, values: Callable[[], Sequence[Any]]
    ) -> Device | None:
        """Return where is trained; tell of an owner that makes its first step.

        Args:
            recorder: is told.
            number: of the owner, by `weights`.
            optimizer: that trains it.
            values: returns its weights.
        """
        if number not in self._parameters:
            found = values()
            if not found:
                return None
            if self._device is None:
                self._device = KINDS[self.backend](found[0])
                recorder.add_ending(self._ending)
            self._parameters[number] = sum(math.prod(tuple(value.shape)) for value in found)
            # Gradients may be averaged by a tape of Farandole's as well.
            ours = averaging_of(optimizer) is not None or recorder.knows("gradient_bytes_per_step")
            recorder.assume(framework="farandole.keras" if ours else "keras")
            recorder.setup(device=self._device.name, parameters=sum(self._parameters.values()))
        return self._device

    def _ending(self) -> dict[str, Any]:
        self.before_the_end()
        assert self._device is not None
        return {"weights": self.weights.fingerprint(), "peak_gpu_bytes": self._device.peak_bytes()}


def passes_of(optimizer: Any) -> int:
    """Return how many batches make one update."""
    averaging = averaging_of(optimizer)
    ours = 1 if averaging is None else int(averaging.passes)
    return ours * int(getattr(optimizer, "gradient_accumulation_steps", None) or 1)


class Device(Protocol):
    """Where one backend computes."""

    name: str

    def end(self, values: Sequence[Any]) -> Later | None:
        """Wait until these weights are there, or return what will know when they were."""

    def peak_bytes(self) -> int | None:
        """Return the most memory held on a GPU; None without one, or where it is not known."""


class Torch:
    """On a CPU calls return when they are done; on a GPU events of its stream tell."""

    def __init__(self, value: Any) -> None:
        self.name = str(value.device.type)
        self._stream = StreamClock() if self.name == "cuda" else None

    def end(self, values: Sequence[Any]) -> Later | None:
        """See Device."""
        return None if self._stream is None else self._stream.reached(self._stream.mark())

    def peak_bytes(self) -> int | None:
        """See Device."""
        return peak_bytes()


class TensorFlow:
    """On a CPU calls return when they are done; for a GPU they are waited for."""

    def __init__(self, value: Any) -> None:
        self.name = "cuda" if "GPU" in str(value.device).upper() else "cpu"

    def end(self, values: Sequence[Any]) -> Later | None:
        """See Device."""
        if self.name != "cpu":
            import tensorflow as tf

            tf.test.experimental.sync_devices()
        return None

    def peak_bytes(self) -> int | None:
        """See Device."""
        return None


class Jax:
    """Calls return at once, on a CPU too: what they give is waited for."""

    def __init__(self, value: Any) -> None:
        platform = next(iter(value.devices())).platform
        self.name = "cuda" if platform == "gpu" else str(platform)

    def end(self, values: Sequence[Any]) -> Later | None:
        """See Device."""
        import jax

        wait: Any = jax.block_until_ready
        # Keras keeps them in a list of its own kind, which JAX takes for something to pass over.
        wait(list(values))
        return None

    def peak_bytes(self) -> int | None:
        """See Device."""
        return None


KINDS: dict[str, Callable[[Any], Device]] = {"torch": Torch, "tensorflow": TensorFlow, "jax": Jax}


class Weights:
    """Follows models and optimizers; keeps none of them alive."""

    def __init__(self) -> None:
        self._owners: list[tuple[weakref.ref[Any], Callable[[Any], Sequence[Any]]]] = []
        self._digests: dict[int, bytes] = {}

    def follow(self, owner: Any, values: Callable[[Any], Sequence[Any]]) -> int:
        """Take note of a model or an optimizer that trains; return its number.

        Args:
            owner: of the weights.
            values: returns the owner's trainable weights, as tensors of the backend.
        """
        for number, (known, _) in enumerate(self._owners):
            if known() is owner:
                return number
        self._owners.append((weakref.ref(owner), values))
        return len(self._owners) - 1

    def take(self, number: int) -> None:
        """Take the fingerprint now: what happens to the weights later is not training."""
        known, values = self._owners[number]
        owner = known()
        digest = None if owner is None else _digest(values(owner))
        if digest is not None:
            self._digests[number] = digest

    def changed(self, number: int) -> None:
        """Take note that training goes on."""
        self._digests.pop(number, None)

    def fingerprint(self) -> str | None:
        """Return one fingerprint of all; None if one of them is not known."""
        for number in range(len(self._owners)):
            if number not in self._digests:
                self.take(number)
        if not self._owners or len(self._digests) < len(self._owners):
            return None
        whole = hashlib.blake2b(digest_size=16)
        for number in sorted(self._digests):
            whole.update(self._digests[number])
        return whole.hexdigest()


def model_values(model: Any) -> list[Any]:
    """Return a model's trainable weights, those left to each worker excepted."""
    # On JAX a fit keeps them to itself until its epoch ends.
    state = getattr(model, "_jax_state", None)
    if state and not model._jax_state_synced:
        values = list(state["trainable_variables"])
    else:
        values = [variable.value for variable in model.trainable_variables]
    return _shared(values, model.trainable_variables, model.optimizer)


def optimizer_values(optimizer: Any) -> list[Any]:
    """Return the weights that an optimizer trains, those left to each worker excepted."""
    variables = list(optimizer._trainable_variables)
    return _shared([variable.value for variable in variables], variables, optimizer)


def _shared(values: list[Any], variables: Sequence[Any], optimizer: Any) -> list[Any]:
    averaging = averaging_of(optimizer)
    if averaging is None:
        return values
    local = averaging.is_local(variables)
    return [value for value, own in zip(values, local, strict=True) if not own]


def averaging_of(optimizer: Any) -> Any:
    """Return how a wrapped optimizer averages; None for one that is not wrapped."""
    return getattr(optimizer, "_farandole", None)


def _digest(values: Sequence[Any]) -> bytes | None:
    import keras
    import numpy as np

    digest = hashlib.blake2b(digest_size=16)
    try:
        for value in values:
            array = np.ascontiguousarray(keras.ops.convert_to_numpy(value))
            plain: Any = array.reshape(-1).view(np.uint8)
            digest.update(plain)
    except (RuntimeError, TypeError, ValueError):
        return None  # given away to a computation, sharded, or of a type that NumPy does not know
    return digest.digest()
