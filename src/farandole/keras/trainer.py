"""What has to be different in Keras's own compile and fit when several workers train together.

`init()` replaces a few methods of keras.Model by ones that do their work and then call them. For
models whose optimizer is not wrapped nothing changes but progress bars: rank 0 alone shows them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import weakref
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from farandole.elastic import generation
from farandole.engine import context
from farandole.engine.bucket_step import BEGIN_EPOCH, END, END_EPOCH
from farandole.engine.objects import allgather_object
from farandole.engine.process_sets import ProcessSet
from farandole.errors import UsageError
from farandole.keras.backends import backend_name
from farandole.keras.optimizer import Averaging, averaging_of, hand_over, is_wrapped
from farandole.world.environment import World

_installed = False
_models: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def init(
    comm: Any = None, process_sets: str | Sequence[ProcessSet | Sequence[int]] | None = None
) -> None:
    """Meet the other workers. A second call without shutdown() changes nothing.

    Args:
        comm: Horovod's: all ranks, or a communicator of mpi4py that has all. Nothing else is taken.
        process_sets: sets to make at once, the same on every worker; "dynamic" lets
            `add_process_set` make some later.

    Raises:
        UsageError: a ValueError: sets that cannot be, or are there twice.
    """
    context.init(comm, process_sets)
    install()
    if backend_name() == "jax":
        keep_to_own_cores(context.current().world)


def install() -> None:
    """Put our methods in the place of keras.Model's; once."""
    global _installed
    if _installed:
        return
    _installed = True
    generation.on_new_generation(_compile_anew)
    replacements = {"compile": _compile, "fit": _fit, "evaluate": _quiet, "predict": _quiet}
    if backend_name() == "jax":
        replacements["make_train_function"] = _make_train_function
    elif backend_name() == "tensorflow":
        from farandole.tensorflow.callback import install_clean_stop

        install_clean_stop()
    for name, replacement in replacements.items():
        owner = _owner(name)
        setattr(owner, name, replacement(vars(owner)[name]))


def remember(model: Any) -> None:
    """Count a model with a wrapped optimizer to those of `common_models`."""
    _models[next(_numbers)] = model


def _compile_anew() -> None:
    """Have models compile their steps for the workers that there are now."""
    for model in list(_models.values()):
        model.train_function = None


def common_models() -> list[Any]:
    """Return the models with wrapped optimizers that are there on all workers, by their age.

    That is what "global variables" means in Keras 3. A model that nobody uses any more may be
    there still on some workers only: Python collects garbage when it pleases.
    """
    alive = dict(_models)
    everyone = allgather_object(sorted(alive), name="keras.models")
    return [alive[number] for number in sorted(set(everyone[0]).intersection(*everyone[1:]))]


def _owner(name: str) -> type:
    """Return the class that defines a method of keras.Model.

    In the place of that one: Keras takes a `compile` of Model's own for a user's, and would not
    restore it from a file.
    """
    import keras

    found: type = next(kind for kind in keras.Model.__mro__ if name in vars(kind))
    return found


def _compile(plain: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def compile(self: Any, *arguments: Any, **named: Any) -> Any:
        # Programs for Horovod say so to Keras 2, and Keras 3 does not know it.
        named.pop("experimental_run_tf_function", None)
        given = signature.bind(self, *arguments, **named).arguments
        wrapped = is_wrapped(given.get("optimizer"))
        if wrapped and backend_name() == "tensorflow":
            if given.get("jit_compile", "auto") not in ("auto", False, None):
                raise UsageError(
                    "jit_compile=True does not work with DistributedOptimizer on TensorFlow: XLA "
                    "cannot call the exchange between workers. Leave jit_compile out."
                )
            named["jit_compile"] = False
            arguments = _without(signature, arguments, "jit_compile")
        result = plain(self, *arguments, **named)
        inner = getattr(self.optimizer, "inner_optimizer", None)
        if is_wrapped(inner):
            hand_over(inner, self.optimizer)
        if is_wrapped(self.optimizer):
            remember(self)
        return result

    return compile


def _without(
    signature: inspect.Signature, arguments: tuple[Any, ...], name: str
) -> tuple[Any, ...]:
    """Return positional arguments up to the named one, which will be given by name."""
    place = list(signature.parameters).index(name) - 1
    return arguments[:place]


def _fit(plain: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def fit(self: Any, *arguments: Any, **named: Any) -> Any:
        bound = signature.bind(self, *arguments, **named)
        _hush(bound)
        _follow(bound, self)
        if not is_wrapped(self.optimizer):
            return plain(*bound.args, **bound.kwargs)
        averaging = averaging_of(self.optimizer)
        if averaging.size > 1:
            marking = _marking_callback(averaging)
            bound.arguments["callbacks"] = _before(marking, bound.arguments.get("callbacks"), self)
        with averaging.unwrapping():
            return plain(*bound.args, **bound.kwargs)

    return fit


def _quiet(plain: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def quiet(self: Any, *arguments: Any, **named: Any) -> Any:
        bound = signature.bind(self, *arguments, **named)
        _hush(bound)
        return plain(*bound.args, **bound.kwargs)

    return quiet


def _hush(bound: inspect.BoundArguments) -> None:
    """Show progress on rank 0 only, unless the program has said what it wants."""
    if (
        context.is_initialized()
        and context.rank()
        and bound.arguments.get("verbose") in (None, "auto")
    ):
        bound.arguments["verbose"] = 0


def _follow(bound: inspect.BoundArguments, model: Any) -> None:
    """Let sharded data know fit's epochs, and do not let fit shuffle it again."""
    from farandole.keras.data import EpochFollower, sharded_part

    data = sharded_part(bound.arguments.get("x"))
    if data is None:
        return
    bound.arguments["shuffle"] = False
    # With steps_per_epoch an epoch of fit is not a pass over the data; passes are counted then.
    if bound.arguments.get("steps_per_epoch") is None:
        callbacks = bound.arguments.get("callbacks")
        bound.arguments["callbacks"] = _before(EpochFollower(data), callbacks, model)


def _before(callback: Any, callbacks: Any, model: Any) -> Any:
    """Return callbacks with one more at their front."""
    import keras

    if isinstance(callbacks, keras.callbacks.CallbackList):
        callback.set_model(model)
        callbacks.callbacks.insert(0, callback)
        return callbacks
    if callbacks is None:
        return [callback]
    return [callback, *(callbacks if isinstance(callbacks, list | tuple) else [callbacks])]


def _marking_callback(averaging: Averaging) -> Any:
    import keras

    class Marking(keras.callbacks.Callback):  # type: ignore[misc]
        """Says where this rank stands, first of all callbacks: none may wait for others before."""

        def __init__(self) -> None:
            super().__init__()
            self._epochs = self._batches = 0
            self._in_epoch = False

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            averaging.mark(BEGIN_EPOCH, epoch)
            # Not counted by on_train_batch_end: who has that keeps Keras from going on meanwhile.
            self._batches, self._in_epoch = averaging.batches, True

        def on_test_begin(self, logs: Any = None) -> None:
            self._end_epoch()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._end_epoch()
            self._epochs = epoch + 1

        def on_train_end(self, logs: Any = None) -> None:
            averaging.mark(END, self._epochs)

        def _end_epoch(self) -> None:
            if self._in_epoch:
                self._in_epoch = False
                averaging.mark(END_EPOCH, averaging.batches - self._batches)

    return Marking()


def _make_train_function(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def make_train_function(self: Any, force: bool = False) -> Any:
        from keras.src.backend.jax.trainer import JAXTrainer

        if not is_wrapped(self.optimizer):
            return plain(self, force)
        if self.train_function is None or force:
            from farandole.keras.backends import leaving, split_step

            averaging = averaging_of(self.optimizer)
            if averaging.idle or type(self).train_step is not JAXTrainer.train_step:
                plain(self, force)
            else:
                self.train_function = self._make_function(split_step(self, averaging))
            self.train_function = leaving(self, averaging, self.train_function)
        return None

    return make_train_function


def share_of(
    allowed: Collection[int], local_rank: int, local_size: int, threads: int
) -> frozenset[int] | None:
    """Return a worker's part of the cores that all workers of its host may use.

    None where they do not come out even, or would be fewer than the threads it was given: then
    somebody has bound it already, or has asked for more than there is.
    """
    each, rest = divmod(len(allowed), local_size)
    if local_size == 1 or rest or each < max(threads, 1):
        return None
    return frozenset(sorted(allowed)[local_rank * each : (local_rank + 1) * each])


def keep_to_own_cores(world: World) -> None:
    """Leave this process its part of the host's cores, where `farandole run` started it."""
    if world.source != "farandole" or not hasattr(os, "sched_setaffinity"):
        return
    told = os.environ.get("PJRT_NPROC", "")
    threads = int(told) if told.isdecimal() else 1
    own = share_of(os.sched_getaffinity(0), world.local_rank, world.local_size, threads)
    if own is None:
        return
    for thread in Path("/proc/self/task").iterdir():
        # A thread may end meanwhile; those to come follow the one that makes them.
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), own)
