"""A fingerprint of all parameters after the last step: equal on all ranks that trained together."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

CHANGED = (
    "The weights were not compared between the ranks: something wrote to them after the last step."
)


@dataclass(slots=True)
class _Seen:
    number: int
    probes: list[Any]
    versions: list[int] = field(default_factory=list)


class Weights:
    """Follows optimizers; keeps none of them alive, so that their memory is freed as ever."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._alive: dict[int, Any] = {}
        self._digests: dict[int, bytes] = {}
        self._count = 0
        self.changed = False

    def updated(self, optimizer: Any) -> bool:
        """Take note of an update; return whether this optimizer was seen before."""
        seen = self._seen.get(id(optimizer))
        known = seen is not None
        if seen is None:
            seen = self._meet(optimizer)
        seen.versions = _versions(seen)
        return known

    def _meet(self, optimizer: Any) -> _Seen:
        import weakref

        # Whoever writes to the parameters later (a checkpoint restored, on one rank only) writes to
        # all: it is enough to look at two.
        found = parameters_of(optimizer)
        probes = [weakref.ref(parameter) for parameter in (*found[:1], *found[1:][-1:])]
        seen = self._seen[id(optimizer)] = _Seen(self._count, probes)
        self._alive[id(optimizer)] = weakref.ref(optimizer)
        self._count += 1
        return seen

    def dropped(self, optimizer: Any) -> None:
        """Take the fingerprint of an optimizer that is about to go."""
        seen = self._seen.pop(id(optimizer), None)
        self._alive.pop(id(optimizer), None)
        if seen is not None:
            self._take(optimizer, seen)

    def optimizers(self) -> list[Any]:
        """Return those that were seen and are still there, in the order of their first updates."""
        found = (alive() for alive in self._alive.values())
        return [optimizer for optimizer in found if optimizer is not None]

    def fingerprint(self) -> str | None:
        """Return one fingerprint of all; None if there is nothing to be compared."""
        for key, seen in list(self._seen.items()):
            optimizer = self._alive[key]()
            if optimizer is not None:
                self._take(optimizer, seen)
        # Optimizers go with the interpreter, too; that is too late for anything.
        self._seen.clear()
        if self.changed or not self._digests:
            return None
        whole = hashlib.blake2b(digest_size=16)
        for number in sorted(self._digests):
            whole.update(self._digests[number])
        return whole.hexdigest()

    def _take(self, optimizer: Any, seen: _Seen) -> None:
        if _versions(seen) != seen.versions:
            self.changed = True
            return
        digest = _digest(parameters_of(optimizer))
        if digest is not None:
            self._digests[seen.number] = digest


def parameters_of(optimizer: Any) -> list[Any]:
    """Return an optimizer's parameters, each once."""
    found = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    return list(found.values())


def _versions(seen: _Seen) -> list[int]:
    parameters = [probe() for probe in seen.probes]
    return [-1 if parameter is None else parameter._version for parameter in parameters]


def _digest(parameters: list[Any]) -> bytes | None:
    import torch

    digest = hashlib.blake2b(digest_size=16)
    try:
        for parameter in parameters:
            flat = parameter.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy())
    except (RuntimeError, TypeError, NotImplementedError):
        return None  # sharded over the ranks, or without memory: there is nothing to compare
    return digest.digest()
