"""DistributedOptimizer: any torch optimizer, with gradients averaged over the workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from farandole.elastic import generation
from farandole.engine import context
from farandole.engine.arguments import Adasum, Average, check_op, gradient_reduction, reduction_of
from farandole.engine.bucket_step import OverlapTrial
from farandole.engine.engine import Engine
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.errors import UsageError
from farandole.recorder.ending import StopLaunch, ended
from farandole.recorder.recorder import current
from farandole.torch.collectives import compress
from farandole.torch.compression import Compression, SendOptions, compressor_of, groups_of
from farandole.torch.operations import allreduce_operation, group
from farandole.torch.reducer import GradientReducer
from farandole.torch.sharded import Sharding, refusal, say
from farandole.transport.reduction import Reduction

_STEP_AFTER_SYNCHRONIZE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after "
    "optimizer.synchronize(). This can cause training slowdown. You may want to consider using "
    "optimizer.skip_synchronize() context if you use optimizer.synchronize() in your code."
)


class _Distributed(torch.optim.Optimizer):
    """The methods that are laid over an optimizer's own class."""

    _hvd: _State
    _parameter_names: dict[torch.nn.Parameter, str]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Average the gradients, then step."""
        hvd = self._hvd
        if hvd.unbound:
            self._bind_to_set()
        if hvd.deltas is not None:
            return self._step_by_deltas(hvd.deltas, closure)
        if hvd.sharding is not None:
            return self._step_sharded(closure)
        if closure is not None:
            return self._step_by_closure(closure)
        if hvd.synchronize_on_step:
            if hvd.synchronized and not hvd.warned:
                hvd.warned = True
                warnings.warn(_STEP_AFTER_SYNCHRONIZE, stacklevel=2)
            self.synchronize()
        hvd.synchronized = False
        return self._step_alone()

    def synchronize(self) -> None:
        """Finish averaging: from here on `p.grad` is the same on every rank."""
        if self._hvd.sharding is not None:
            self._hvd.sharding.leave_for("the script calls optimizer.synchronize()")
        self._synchronize()

    def _synchronize(self) -> None:
        hvd = self._hvd
        if hvd.unbound:
            self._bind_to_set()
        if ended():
            # The script caught the first one, and went on.
            if hvd.reducer is not None:
                hvd.reducer.forget()
            raise StopLaunch
        if hvd.reducer is not None:
            self._check_context()
            if hvd.sharding is not None:
                hvd.sharding.check_whole()
            hvd.reducer.synchronize()
        hvd.synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Let `step()` take the gradients as they are, after a `synchronize()` of your own."""
        if self._hvd.deltas is not None:
            raise AssertionError(
                "With op=hvd.Adasum there is nothing to skip: gradients stay each worker's own, "
                "and step() combines what they have changed."
            )
        self._hvd.synchronize_on_step = False
        try:
            yield
        finally:
            self._hvd.synchronize_on_step = True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients."""
        reducer = self._hvd.reducer
        if reducer is not None and reducer.under_way:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(). Gradients on their way to the other "
                "workers cannot be taken back; call one of these first."
            )
        super(self.__class__, self).zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters; their gradients are averaged, too."""
        super(self.__class__, self).add_param_group(param_group)
        hvd, number = self._hvd, len(self.param_groups) - 1
        names = _names_of_group(number, self.param_groups[-1]["params"], hvd.how.given_names)
        self._parameter_names.update(names)
        if hvd.reducer is not None:
            hvd.reducer.add(list(names.values()), list(names))

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change how many backward passes are summed before a step."""
        _check_passes(passes)
        self._hvd.how.passes = passes
        if self._hvd.reducer is not None:
            self._hvd.reducer.set_passes(passes)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load, and forget gradients that belong to the state before."""
        if self._hvd.reducer is not None:
            self._hvd.reducer.forget()
        self._hvd.synchronized = False
        super(self.__class__, self).load_state_dict(state_dict)
        if self._hvd.sharding is not None:
            self._hvd.sharding.loaded = True

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, also where each rank keeps a part of it."""
        sharding, own = self._hvd.sharding, self.state
        if sharding is not None:
            sharding.check_whole()
            assert self._hvd.reducer is not None
            self.state = sharding.whole_state(self._hvd.reducer.parameters)
        try:
            state: dict[str, Any] = super(self.__class__, self).state_dict()
        finally:
            self.state = own
        return state

    def _step_sharded(self, closure: Callable[[], Any] | None) -> Any:
        """Let each rank update its part of the weights, as soon as its gradients are averaged."""
        hvd = self._hvd
        sharding, reducer, loss = hvd.sharding, hvd.reducer, None
        assert sharding is not None
        assert reducer is not None
        sharding.check_whole()
        if not hvd.synchronize_on_step:
            raise UsageError(
                "sharded=True: step() averages while it updates, so that skip_synchronize() has "
                "nothing to skip. Call optimizer.synchronize() before it, or leave it out."
            )
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._optimizer_step_pre_hooks:
            sharding.leave_for("a hook before the step is to see averaged gradients")
        sharding.updated = False
        self._synchronize()
        hvd.synchronized = False
        if hvd.sharding is None or reducer.layout is None:
            self._step_alone()
            return loss
        if not sharding.updated:
            # The averages are in p.grad.
            self._clip()
            hvd.sharding.update_averaged()
        self._count_step()
        _call_hooks(self)
        return loss

    def _step_by_closure(self, closure: Callable[[], Any]) -> Any:
        """The closure computes gradients inside of step(): average them there."""

        def averaged() -> Any:
            loss = closure()
            self.synchronize()
            self._clip()
            return loss

        self._hvd.synchronized = False
        return self._step_alone(averaged)

    def _step_by_deltas(self, deltas: Deltas, closure: Callable[[], Any] | None) -> Any:
        """Step on this worker's own gradients; combine what that has changed."""
        if ended():
            raise StopLaunch
        self._check_context()
        parameters = [p for group in self.param_groups for p in group["params"]]
        with deltas.combining(parameters):
            return self._step_alone(*(() if closure is None else (closure,)))

    def _check_context(self) -> None:
        if self._hvd.context is not context.current():
            raise UsageError(
                "This optimizer was wrapped before shutdown() and init(), among workers that "
                "have parted since. Make the optimizer anew and call DistributedOptimizer "
                "again."
            )

    def _clip(self) -> None:
        if self._hvd.max_grad_norm is not None:
            parameters = [p for group in self.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(parameters, self._hvd.max_grad_norm)

    def _enter_generation(self) -> None:
        """Go on with other workers, in an elastic run; what was on its way is given up."""
        hvd = self._hvd
        for parameter in (p for each in self.param_groups for p in each["params"]):
            if parameter.grad is not None:
                # It lies in memory that is shared with those of before.
                parameter.grad = None if hvd.under_way else parameter.grad.clone()
        if hvd.reducer is not None:
            hvd.reducer.close()
        if hvd.how.process_set.included() is None:
            hvd.reducer, hvd.deltas, hvd.unbound = None, None, True
        else:
            hvd.bind(self)

    def _bind_to_set(self) -> None:
        """Go on in a process set that was made again in this generation."""
        process_set = self._hvd.how.process_set
        if process_set.included() is None:
            raise UsageError(
                f"The process set of ranks {process_set.ranks}, in which this optimizer averages "
                "gradients, ended with its generation of workers, as ranks are dealt anew. Make it "
                "again in a function that you give to state.register_reset_callbacks: "
                "hvd.add_process_set(process_set), with HOROVOD_DYNAMIC_PROCESS_SETS=1."
            )
        self._hvd.bind(self)

    def _step_alone(self, *arguments: Any) -> Any:
        self._count_step()
        if not arguments:
            self._clip()
        return super(self.__class__, self).step(*arguments)

    def _count_step(self) -> None:
        hvd = self._hvd
        hvd.steps += 1
        hvd.context.note_step(hvd.steps)
        hvd.context.count_step()
        hvd.context.stop_if_asked()
        # What torch's schedulers look at to tell whether step() came before theirs.
        self._opt_called = True


# To torch's schedulers: this step() counts itself, there is no need to wrap it. To its optimizers:
# the step() below it runs the user's hooks, and they shall not run twice.
for _mark in ("_wrapped_by_lr_sched", "hooked"):
    setattr(_Distributed.step, _mark, True)


@torch.optim.Optimizer.profile_hook_step
def _call_hooks(optimizer: torch.optim.Optimizer) -> None:
    """Call what torch calls before and after a step."""
    del optimizer


@dataclass(slots=True, kw_only=True)
class _How:
    """What a wrapped optimizer was asked to do, among whatever workers there are."""

    reduction: Reduction | None
    """Of gradients; None for Adasum, which combines what steps have changed."""
    passes: int
    sending: SendOptions
    given_names: dict[torch.nn.Parameter, str]
    process_set: ProcessSet
    sharded: bool | None
    """Whether workers share weights; None leaves it to the launcher."""
    max_grad_norm: float | None


class _State:
    """What a wrapped optimizer knows beyond its own state."""

    def __init__(self, how: _How) -> None:
        self.how = how
        self.context = context.current()
        self.max_grad_norm = how.max_grad_norm
        self.reducer: GradientReducer | None = None
        self.deltas: Deltas | None = None
        self.unbound = False
        """Whether its process set ended with a generation."""
        self.synchronize_on_step = True
        self.synchronized = False
        self.warned = False
        self.steps = 0

    @property
    def sharding(self) -> Sharding | None:
        """What the weights are shared by, as long as they are."""
        return None if self.reducer is None else self.reducer.sharding

    @property
    def under_way(self) -> bool:
        """Whether gradients have come in since the last step."""
        return self.reducer is not None and self.reducer.under_way

    def bind(self, optimizer: Any) -> None:
        """Combine gradients among the workers that there are now."""
        how, now = self.how, context.current()
        self.context, self.reducer, self.deltas = now, None, None
        self.synchronized = self.unbound = False
        engine = None if how.process_set.included() is False else context.engine_of(how.process_set)
        if engine is None or engine.size == 1:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        names = [optimizer._parameter_names[parameter] for parameter in parameters]
        sharding = self._share_weights(optimizer, engine)
        if how.reduction is None:
            self.deltas = Deltas(engine, names, how.sending.compressor)
            return
        self.reducer = GradientReducer(
            engine,
            names,
            parameters,
            how.reduction,
            how.passes,
            # A sharded update begins when all gradients are there.
            OverlapTrial(
                now.world.overlap if sharding is None else "off", spare_cores=now.spare_cores
            ),
            sending=replace(how.sending, sharded=sharding is not None),
            sharding=sharding,
        )

    def _share_weights(self, optimizer: Any, engine: Engine) -> Sharding | None:
        """Return what weights are shared by, if that was asked for and can be."""
        how = self.how
        if not (self.context.world.sharded if how.sharded is None else how.sharded):
            return None
        adasum = how.reduction is None
        reason = "op=hvd.Adasum combines what updates have changed" if adasum else ""
        reason = reason or refusal(engine, optimizer, compressed=how.sending.compressor is not None)
        if not reason:
            return Sharding(optimizer, how.max_grad_norm)
        how.sharded = False
        if engine.rank == 0:
            say(reason)
        return None


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    sharded: bool | None = None,
    max_grad_norm: float | None = None,
) -> Any:
    """Wrap an optimizer so that gradients are combined over all workers before each step.

    Args:
        optimizer: any torch optimizer; it is changed in place.
        named_parameters: names that tie the workers' parameters together; by default their order
            in the optimizer does.
        compression: the precision in which gradients travel: hvd.Compression.none, fp16, bf16, or
            a class of your own, whose gradients then travel one by one.
        backward_passes_per_step: backward passes whose gradients are summed before a step.
        op: Average (default), Sum, Min, Max, Product; Adasum combines what each worker's own
            step has changed.
        gradient_predivide_factor: divides gradients before they are added; the sum is divided by
            the number of workers over this.
        num_groups: deprecated; use `groups`.
        groups: gradients that are reduced together: how many groups of neighbours, or the
            parameters of each.
        sparse_as_dense: send sparse gradients as dense ones; they are sparse again afterwards.
        process_set: the workers that train together; a worker that is not one of them trains
            alone.
        sharded: whether each worker updates a part of the weights, which a host then has once, and
            keeps the optimizer's state of that part alone; by default FARANDOLE_SHARDED=1 says so.
            What cannot be sharded goes the ordinary way, and says so.
        max_grad_norm: clip the averaged gradients to this norm over all parameters, before each
            update.

    Returns:
        The optimizer, now of a class derived from its own, with `synchronize()`,
        `skip_synchronize()` and `set_backward_passes_per_step()`.

    Raises:
        UsageError: a ValueError: names that are not unique or do not cover the parameters, an
            optimizer that is wrapped already.

    Example:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    """
    if hasattr(optimizer, "_hvd"):
        raise UsageError("This optimizer is a DistributedOptimizer already; wrap it only once.")
    compressor, how = compressor_of(compression), None
    if check_op(None, op) != Adasum or gradient_predivide_factor != 1.0:
        how = gradient_reduction(op, gradient_predivide_factor)
    _check_passes(backward_passes_per_step)
    if max_grad_norm is not None and not max_grad_norm > 0:
        raise UsageError(f"max_grad_norm={max_grad_norm}: it must be more than 0.")
    if num_groups:
        warnings.warn("num_groups is deprecated: use groups=.", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    given = _given_names(parameters, named_parameters)
    by_parameter: dict[torch.nn.Parameter, str] = {}
    for number, settings in enumerate(optimizer.param_groups):
        by_parameter |= _names_of_group(number, settings["params"], given)
    sending = SendOptions(
        compressor=compressor,
        as_dense=sparse_as_dense,
        groups=groups_of(parameters, groups),
    )
    state = _State(
        _How(
            reduction=how,
            passes=backward_passes_per_step,
            sending=sending,
            given_names=given,
            process_set=process_set,
            sharded=sharded,
            max_grad_norm=max_grad_norm,
        )
    )
    wrapped: Any = optimizer
    wrapped._parameter_names = by_parameter
    # What can be shared depends on the class that the optimizer has before.
    state.bind(wrapped)
    kind = type(optimizer)
    own = {
        name: value for name, value in vars(_Distributed).items() if name not in _CLASS_FURNITURE
    }
    # The very object, and not a copy: schedulers that were made before hold on to it.
    wrapped.__class__ = type(kind.__name__, (kind,), own)
    # They also put a counting wrapper of the old step() on it.
    wrapped.__dict__.pop("step", None)
    wrapped._hvd = state
    generation.on_new_generation(wrapped._enter_generation)
    return wrapped


_CLASS_FURNITURE = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"}
)


def _check_passes(passes: int) -> None:
    if passes <= 0:
        raise UsageError(f"backward_passes_per_step={passes}: it must be at least 1.")


def _names_of_group(
    number: int, parameters: list[torch.nn.Parameter], given: dict[torch.nn.Parameter, str]
) -> dict[torch.nn.Parameter, str]:
    """Return the names of a group's parameters: those given, else by their place."""
    return {
        parameter: given.get(parameter, f"allreduce.noname.{number}.{place}")
        for place, parameter in enumerate(parameters)
    }


def _given_names(
    parameters: list[torch.nn.Parameter],
    named: Iterable[tuple[str, torch.nn.Parameter]] | None,
) -> dict[torch.nn.Parameter, str]:
    """Return the names that the user gave; they must be unique and cover all parameters."""
    if named is None:
        return {}
    pairs = list(named)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise UsageError(
            "named_parameters should be pairs of a name and a parameter, such as "
            "model.named_parameters() gives."
        )
    known: dict[str, torch.nn.Parameter] = {}
    for name, parameter in pairs:
        if name in known:
            raise UsageError(f"The name {name!r} stands twice in named_parameters.")
        known[name] = parameter
    by_parameter = {parameter: name for name, parameter in known.items()}
    unnamed = [place for place, parameter in enumerate(parameters) if parameter not in by_parameter]
    if unnamed:
        raise UsageError(
            f"named_parameters leaves out {len(unnamed)} parameter(s) of the optimizer (the first "
            f"is number {unnamed[0]}, of shape {list(parameters[unnamed[0]].shape)}). Give "
            "model.named_parameters() of the whole model."
        )
    return by_parameter


class Deltas:
    """Combines the changes of one optimizer's parameters."""

    def __init__(self, engine: Engine, names: Sequence[str], compressor: Any) -> None:
        """Begin; all ranks do so in the same order.

        Args:
            engine: combines.
            names: of the parameters; the same on every rank.
            compressor: a class with `compress` and `decompress`, or None.
        """
        self._engine, self._compressor = engine, compressor
        self._name = engine.unique_name("adasum", "\n".join(names))

    @contextmanager
    def combining(self, parameters: Sequence[torch.nn.Parameter]) -> Iterator[None]:
        """Combine what happens to parameters in this context; without an error only."""
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        before = [parameter.detach().clone() for parameter in trained]
        yield
        with torch.no_grad():
            changes = [
                (parameter - start).contiguous()
                for parameter, start in zip(trained, before, strict=True)
            ]
            for parameter, start, change in zip(
                trained, before, self._combined(changes), strict=True
            ):
                parameter.copy_(start + change)

    def _combined(self, changes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if not changes:
            return []
        pairs = [compress(change, self._compressor) for change in changes]
        how = reduction_of(None, Adasum)
        # Each tensor by itself, because layers differ in direction; agreed on as one.
        operation = group(
            "grouped_allreduce", [allreduce_operation(sent, sent, how) for sent, _ in pairs]
        )
        recorder = current()
        if recorder is not None:
            recorder.sent("gradients", sum(sent.nbytes for sent, _ in pairs))
        self._engine.run(self._name, operation)
        return [undo(sent) for sent, undo in pairs]
