"""Elastic training with TensorFlow: Horovod's names, Horovod's meaning."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from farandole.elastic import generation
from farandole.elastic.state import ObjectState, run_fn
from farandole.engine.context import rank
from farandole.engine.objects import broadcast_object
from farandole.errors import UsageError
from farandole.tensorflow.callback import unwrapping
from farandole.tensorflow.functions import broadcast_variables

__all__ = ["ObjectState", "TensorFlowKerasState", "TensorFlowState", "run"]


class TensorFlowState(ObjectState):
    """Variables, and other things by name."""

    def __init__(
        self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any
    ) -> None:
        """Begin, and save what there is.

        Args:
            variables: What is trained, and the optimizer's variables.
            session: TensorFlow 1's; leave it out.
            kwargs: Anything else: copied at every commit.
        """
        if variables is None or session is not None:
            raise UsageError(
                "TensorFlowState needs the variables, as TensorFlow 2 keeps no list of them and "
                "has no sessions: TensorFlowState([*model.variables, *optimizer.variables])."
            )
        self.variables = list(variables)
        self._saved_values: list[Any] = []
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)
        self._save_values()

    def save(self) -> None:
        """Copy everything."""
        self._save_values()
        super().save()

    def restore(self) -> None:
        """Go back to what was saved last."""
        for variable, value in zip(self.variables, self._saved_values, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Give every rank what rank 0 has, and save that."""
        if self.variables:
            broadcast_variables(self.variables, 0)
        super().sync()
        self._save_values()

    def contents(self) -> Any:
        """Return what was saved last."""
        return {"values": self._saved_values, "objects": super().contents()}

    def load_contents(self, contents: Any) -> None:
        """Take over what another process has saved."""
        super().load_contents(contents["objects"])
        for variable, value in zip(self.variables, contents["values"], strict=True):
            variable.assign(value)
        self._save_values()

    def _save_values(self) -> None:
        self._saved_values = [variable.numpy().copy() for variable in self.variables]


def TensorFlowKerasState(  # noqa: N802 (Horovod's name)
    model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
) -> Any:
    """Return a KerasState: a model, its optimizer, and other things by name.

    Args:
        model: A compiled model.
        optimizer: What trains it; by default the one that it was compiled with.
        backend: TensorFlow 1's; without effect.
        kwargs: Anything else: copied at every commit.
    """
    from farandole.keras.elastic import KerasState

    del backend
    return KerasState(model, optimizer, **kwargs)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Let a training function survive lost workers, and go on when hosts come or go.

    Its first argument is a state. It is called anew in every generation of workers, and goes on
    from where the state says. Under a launcher without elastic flags it is called once.
    """

    @functools.wraps(func)
    def unwrapped(state: Any, *args: Any, **kwargs: Any) -> Any:
        with unwrapping():
            return func(state, *args, **kwargs)

    return run_fn(unwrapped, generation.next_generation)
