"""A fingerprint of what Keras trained: equal on all ranks that trained together."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any


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
