"""A model, its optimizer and whatever else training goes on from, copied at every commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from farandole.elastic.state import ObjectState, check_names, copied
from farandole.engine.context import rank
from farandole.engine.objects import allgather_object, broadcast_object
from farandole.errors import UsageError
from farandole.torch.elastic.sampler import ElasticSampler
from farandole.torch.functions import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateDictHandler",
    "StateHandler",
    "TorchState",
    "allgather_object",
    "get_handler_registry",
    "set_handler_registry",
]


class TorchState(ObjectState):
    """A model, an optimizer, and other things by name.

    Modules, optimizers, samplers and what else has a `state_dict`, such as learning-rate schedules,
    are saved and restored in place; anything else is copied, and becomes an attribute of the state.

    While gradients are added up for a step (`backward_passes_per_step`), `commit` does nothing: the
    last whole step is what training goes back to.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        """Begin, and save what there is.

        Args:
            model: What is trained.
            optimizer: Trains it, wrapped in DistributedOptimizer or not.
            kwargs: Anything else, also further models and optimizers.
        """
        entries = {"model": model, "optimizer": optimizer, **kwargs}
        self._handlers: dict[str, StateHandler] = {}
        for name, value in list(entries.items()):
            kind = next((kind for type, kind in _registry if isinstance(value, type)), None)
            if kind is not None:
                self._handlers[name] = kind(value)
                object.__setattr__(self, name, entries.pop(name))
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **entries)

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def commit(self) -> None:
        """Save, then look for changed hosts (see State.commit); not in the middle of a step."""
        if not any(handler.in_step for handler in self._handlers.values()):
            super().commit()

    def check_host_updates(self) -> None:
        """Look for changed hosts (see State); not in the middle of a step."""
        if not any(handler.in_step for handler in self._handlers.values()):
            super().check_host_updates()

    def save(self) -> None:
        """Copy everything."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Go back to what was saved last."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Give every rank what rank 0 has, and save that."""
        # Nothing is saved before all is there: a worker may be lost on the way.
        for handler in self._handlers.values():
            handler.receive()
        super().sync()
        for handler in self._handlers.values():
            handler.save()

    def contents(self) -> Any:
        """Return what was saved last."""
        handled = {name: handler.contents() for name, handler in self._handlers.items()}
        return {"handled": handled, "objects": super().contents()}

    def load_contents(self, contents: Any) -> None:
        """Take over what another process has saved."""
        check_names(contents["handled"], self._handlers)
        super().load_contents(contents["objects"])
        for name, handler in self._handlers.items():
            handler.load_contents(contents["handled"][name])

    def reset(self) -> None:
        """Let samplers deal anew what is left of the epoch."""
        for handler in self._handlers.values():
            handler.reset()


class StateHandler:
    """Saves, restores and synchronises one entry of a TorchState, in place."""

    in_step: bool = False
    """Whether the entry has part of a step in it, which cannot be saved."""

    _saved: Any = None

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Copy the value's state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to what was saved last."""
        raise NotImplementedError

    def receive(self) -> None:
        """Have the state of rank 0, and save nothing; handlers of scripts may have `sync` only."""
        self.sync()

    def sync(self) -> None:
        """Have the state of rank 0, and save it."""
        if type(self).receive is StateHandler.receive:
            raise NotImplementedError
        self.receive()
        self.save()

    def reset(self) -> None:
        """Get ready for other workers."""

    def contents(self) -> Any:
        """Return what was saved last, as plain data."""
        if self._saved is None:
            raise UsageError(
                f"{type(self).__name__} cannot keep a state beyond its process: it has no "
                "contents() and load_contents(contents)."
            )
        return self._saved

    def load_contents(self, contents: Any) -> None:
        """Take over what another process has saved."""
        self._saved = contents
        self.restore()

    def set_value(self, value: Any) -> None:
        """Handle another value in place of this one, and save it."""
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    """Handles a module: its parameters and buffers."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.save()

    def save(self) -> None:
        """Copy the parameters and buffers."""
        self._saved = _copy_into(self._saved, self.value.state_dict())

    def restore(self) -> None:
        """Go back to what was saved last."""
        self.value.load_state_dict(self._saved)

    def receive(self) -> None:
        """Have the parameters and buffers of rank 0."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(StateHandler):
    """Handles an optimizer: its state and the options of its groups."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.save()

    @property
    def in_step(self) -> bool:  # type: ignore[override]
        """Whether gradients have come in that the optimizer has not made a step with."""
        distributed = getattr(self.value, "_hvd", None)
        return distributed is not None and distributed.under_way

    def save(self) -> None:
        """Copy the state."""
        self._saved = _copy_into(self._saved, self.value.state_dict())

    def restore(self) -> None:
        """Go back to what was saved last; a part of a step is given up."""
        if self.in_step:
            for parameter in self._parameters():
                parameter.grad = None
        # The optimizer goes on with the very tensors that it is given.
        self.value.load_state_dict(_copy_into(None, self._saved))

    def receive(self) -> None:
        """Have the state of rank 0."""
        parameters = self._parameters()
        gradients = [parameter.grad for parameter in parameters]
        broadcast_optimizer_state(self.value, root_rank=0)
        # It leaves zeros where nothing was: the others of this generation have none there.
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for group in self.value.param_groups for p in group["params"]]


@runtime_checkable
class _HasStateDict(Protocol):
    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...


class StateDictHandler(StateHandler):
    """Handles what has a `state_dict`: schedules of learning rates, GradScaler and the like."""

    def __init__(self, value: _HasStateDict) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        """Copy the state."""
        self._saved = copied(type(self.value).__name__, self.value.state_dict())

    def restore(self) -> None:
        """Go back to what was saved last."""
        self.value.load_state_dict(copied(type(self.value).__name__, self._saved))

    def receive(self) -> None:
        """Have the state of rank 0."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))


class SamplerStateHandler(StateDictHandler):
    """Handles an ElasticSampler: where the epoch stands."""

    def reset(self) -> None:
        """Deal what is left of the epoch to the workers that there are now."""
        self.value.reset()


_registry: list[tuple[type, type[Any]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (_HasStateDict, StateDictHandler),
]


def get_handler_registry() -> list[tuple[type, type[Any]]]:
    """Return which types of entries are handled by which handlers, the first that fits."""
    return _registry


def set_handler_registry(registry: Sequence[tuple[type, type[Any]]]) -> None:
    """Have states that are made from here on handle types of entries otherwise."""
    global _registry
    _registry = list(registry)


def _copy_into(memory: Any, value: Any) -> Any:
    """Return a copy of nested containers and tensors, in the memory of the copy before."""
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    made = _pair_up(memory, value, pairs)
    if pairs:
        with torch.no_grad():
            torch._foreach_copy_([copy for copy, _ in pairs], [source for _, source in pairs])
    return made


def _pair_up(memory: Any, value: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if type(memory) is torch.Tensor and (
            memory.shape,
            memory.dtype,
            memory.device,
            memory.stride(),
        ) == (value.shape, value.dtype, value.device, value.stride()):
            pairs.append((memory, value))
            return memory
        return value.clone()
    if isinstance(value, dict):
        before = memory if isinstance(memory, dict) else {}
        made = type(value)()
        made.update((key, _pair_up(before.get(key), each, pairs)) for key, each in value.items())
        if hasattr(value, "_metadata"):  # the versions of a module's parts
            vars(made)["_metadata"] = value._metadata
        return made
    if type(value) in (list, tuple):
        known = memory if type(memory) is type(value) and len(memory) == len(value) else None
        return type(value)(
            _pair_up(known[place] if known else None, each, pairs)
            for place, each in enumerate(value)
        )
    return copied("state_dict", value)
