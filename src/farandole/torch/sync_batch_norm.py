"""Batch normalisation over the batches of all workers together."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from farandole.engine import context
from farandole.engine.arguments import Sum, reduction_of
from farandole.engine.engine import Engine
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.errors import UsageError
from farandole.torch.operations import allreduce_operation


class SyncBatchNorm(_BatchNorm):
    """Batch norm as one worker would do it that sees the batches of all.

    Takes the arguments of torch's batch norms, and input of 2 to 5 dimensions; workers' batches
    may differ in size. In training there is one small exchange on the way forward and one on the
    way back, so that every worker must take both ways equally often. In eval mode, and on one
    worker, it is torch's batch norm.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        process_set: ProcessSet = global_process_set,
        **torchs: Any,
    ) -> None:
        """Begin as torch's batch norms do.

        Args:
            num_features: channels.
            eps: is added to the variance.
            momentum: how far running statistics follow a batch; None for their plain mean.
            affine: whether there are a weight and a bias to train.
            track_running_stats: whether there are running statistics.
            process_set: the workers whose batches count together.
            torchs: `device` and `dtype`.
        """
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **torchs)
        self.process_set = process_set

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalise a batch.

        Raises:
            UsageError: a ValueError: all workers together have one value per channel.
        """
        self._check_input_dim(input)
        if not self.training or context.size() == 1:
            return super().forward(input)
        engine = context.engine_of(self.process_set)
        if engine.size == 1:
            return super().forward(input)
        found: tuple[torch.Tensor, ...] = _Normalise.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, self.eps, _name_of(self), engine
        )
        mean, variance, total, output = found
        if self.track_running_stats and self.running_mean is not None:
            self._follow(mean, variance, total)
        return output

    @classmethod
    def convert_sync_batchnorm(cls, module: torch.nn.Module) -> torch.nn.Module:
        """Return the module with each of torch's batch norms replaced; parameters stay the same.

        Args:
            module: a model, changed in place, or a batch norm.

        Example:
            model = hvd.SyncBatchNorm.convert_sync_batchnorm(model)
        """
        return _converted(cls, module, {})

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if not 2 <= input.dim() <= 5:
            raise UsageError(
                f"SyncBatchNorm got input of {input.dim()} dimensions. It takes 2 to 5: samples, "
                "channels, and up to three more."
            )
        if input.shape[1] != self.num_features:
            raise UsageError(
                f"SyncBatchNorm of {self.num_features} channels got input of shape "
                f"{tuple(input.shape)}, which has {input.shape[1]}. Its second dimension must be "
                f"{self.num_features}."
            )

    @torch.no_grad()
    def _follow(self, mean: torch.Tensor, variance: torch.Tensor, total: torch.Tensor) -> None:
        """Move the running statistics towards those of this batch."""
        assert self.running_mean is not None
        assert self.running_var is not None
        part = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if part is None:
                part = 1.0 / float(self.num_batches_tracked)
        if part is None:
            part = 0.0
        unbiased = variance * (total / (total - 1.0))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), part)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), part)


class _Normalise(torch.autograd.Function):
    """The way forward and the way back, with an exchange each."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        name: str,
        engine: Engine,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return mean, variance and number of values over all workers, and the output."""
        x = _wide(input)
        centre = x.mean(_axes(x)) if x.numel() else x.new_zeros(x.shape[1])
        # Taking it away first loses no digits where it is large beside the deviation.
        output = x - _spread(centre, x)
        mean, variance, total = _moments(output, centre, name, engine)
        invstd = torch.rsqrt(variance + eps)
        scale = invstd if weight is None else invstd * weight.to(x.dtype)
        shift = (centre - mean) * scale
        if bias is not None:
            shift += bias.to(x.dtype)
        output.mul_(_spread(scale, x)).add_(_spread(shift, x))
        ctx.save_for_backward(input, weight, mean, invstd, total)
        ctx.name, ctx.engine = name, engine
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.mark_non_differentiable(mean, variance, total)
        return mean, variance, total, output.to(input.dtype)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, _mean: Any, _variance: Any, _total: Any, output_gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of input, weight and bias."""
        input, weight, mean, invstd, total = ctx.saved_tensors
        gradient = _wide(output_gradient)
        x = _wide(input) - _spread(mean, input)
        axes = _axes(input)
        own = torch.stack([gradient.sum(axes), (gradient * x).sum(axes)])
        input_gradient = weight_gradient = bias_gradient = None
        if ctx.needs_input_grad[0]:
            means = _add_up(own.clone(), f"{ctx.name}.backward", ctx.engine) / total
            scale = invstd if weight is None else invstd * weight.to(invstd.dtype)
            slope = means[1] * invstd.square()
            x.mul_(_spread(slope, x)).add_(_spread(means[0], x))
            input_gradient = torch.sub(gradient, x).mul_(_spread(scale, x)).to(input.dtype)
        if weight is not None and ctx.needs_input_grad[1]:
            weight_gradient = (own[1] * invstd).to(weight.dtype)
        if ctx.bias_dtype is not None and ctx.needs_input_grad[2]:
            bias_gradient = own[0].to(ctx.bias_dtype)
        return input_gradient, weight_gradient, bias_gradient, None, None, None


def _moments(
    centred: torch.Tensor, centre: torch.Tensor, name: str, engine: Engine
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return mean, variance and number of values of each channel, over all workers.

    Args:
        centred: this worker's values without `centre`, which is their mean but for rounding.
        centre: a value for each channel.
        name: of the layer.
        engine: of the workers.
    """
    channels = centred.shape[1]
    count = centred.numel() // channels
    # A row for each worker, of its mean, sum of squares around it, and count: such sums lose no
    # digits when they are put together, and adding zeros to a row changes nothing.
    rows = centred.new_zeros((engine.size, 2 * channels + 1))
    if count:
        # Not torch.var_mean, which takes 2 to 10 times as long on a CPU.
        off = centred.mean(_axes(centred))
        around = centred.square().sum(_axes(centred)) - count * off.square()
        row = rows[engine.rank]
        row[:channels], row[channels:-1], row[-1] = centre + off, around.clamp_(min=0.0), count
    rows = _add_up(rows, f"{name}.forward", engine)
    means, around, counts = rows[:, :channels], rows[:, channels:-1], rows[:, -1:]
    total = counts.sum()
    # Not on a GPU, which would have to be waited for.
    if not total.is_cuda and total <= 1:
        raise UsageError(
            "Expected more than 1 value per channel when training: the batches of all "
            f"{engine.size} workers have {int(total)} together. Use larger batches."
        )
    mean = (counts * means).sum(0) / total
    apart = (counts * (means - mean).square()).sum(0)
    return mean, (around.sum(0) + apart) / total, total


def _add_up(values: torch.Tensor, name: str, engine: Engine) -> torch.Tensor:
    """Add up over all workers, in place."""
    how = reduction_of(None, Sum, 1.0, 1.0)
    context.current().handles.run(
        "allreduce", name, allreduce_operation(values, values, how), "buffers", engine
    )
    return values


def _wide(values: torch.Tensor) -> torch.Tensor:
    """Return values in which sums keep enough digits."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _axes(x: torch.Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _spread(channels: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return one value per channel in a shape that fits the input's."""
    return channels.view(1, -1, *(1 for _ in range(x.dim() - 2)))


class _Numbers:
    """Numbers of layers, in the order in which they first exchange anything.

    That order is the same on all workers, also where one of them has made further models.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = weakref.ref(engine)
        self._of: weakref.WeakKeyDictionary[SyncBatchNorm, int] = weakref.WeakKeyDictionary()
        self._given = 0

    def of(self, layer: SyncBatchNorm) -> int:
        """Return a layer's number. Those of layers that are gone are not given again."""
        if layer not in self._of:
            self._of[layer] = self._given
            self._given += 1
        return self._of[layer]


_numbers: _Numbers | None = None


def _name_of(layer: SyncBatchNorm) -> str:
    global _numbers
    engine = context.current().engine
    if _numbers is None or _numbers.engine() is not engine:
        _numbers = _Numbers(engine)
    return f"sync_batch_norm.{_numbers.of(layer)}"


def _converted(
    kind: type[SyncBatchNorm],
    module: torch.nn.Module,
    made: dict[torch.nn.Module, torch.nn.Module],
) -> torch.nn.Module:
    """Replace batch norms; one that is used in several places stays one."""
    if module in made:
        return made[module]
    made[module] = module
    if isinstance(module, _BatchNorm) and not isinstance(module, kind):
        made[module] = _from(kind, module)
    # named_children() would name a module that has two places only once.
    for name, child in list(module._modules.items()):
        if child is not None and (new := _converted(kind, child, made)) is not child:
            setattr(module, name, new)
    return made[module]


def _from(kind: type[SyncBatchNorm], old: _BatchNorm) -> SyncBatchNorm:
    if isinstance(old, LazyModuleMixin):
        raise UsageError(
            f"A {type(old).__name__} does not know its channels before its first batch. Run one "
            "through the model, then convert it."
        )
    new = kind(old.num_features, old.eps, old.momentum, old.affine, old.track_running_stats)
    new.weight, new.bias = old.weight, old.bias
    new.running_mean, new.running_var = old.running_mean, old.running_var
    new.num_batches_tracked = old.num_batches_tracked
    new.train(old.training)
    return new
