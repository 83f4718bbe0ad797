"""DistributedDataParallel's communication, read from DDP's own timers.

DDP can stamp, in every pass: when its first bucket went, when backward had computed everything,
when the last bucket had arrived. Reading them leaves its arithmetic alone. A communication hook
would not: DDP divides while it copies gradients into buckets, a hook divides afterwards, in another
pass over all of them (and with other bits unless the ranks are 2, 4, 8, ...).

On a GPU, DDP's timers wait for the device when they are read. They are read in every tenth step
there, at the beginning of the next forward, and count for that next step.
"""

from __future__ import annotations

import functools
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from farandole.recorder import collectives
from farandole.recorder.ending import refuse_if_ended
from farandole.recorder.noise import NOT_MEASURED, SPARSE, NoiseWriter, Schedule, squared_norm
from farandole.recorder.recorder import Recorder, current, wrap

_GPU_SAMPLE_RATE = 10
_NEVER = 1 << 30
_NOT_TIMED = "Communication was not timed: DDP's timers cannot be read."


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Gradients of one backward on their way; monotonic seconds."""

    began_s: float
    ready_s: float
    done_s: float

    @property
    def exposed_s(self) -> float:
        """What the end of backward waited for."""
        return self.done_s - self.ready_s


def read_pass(stats: Mapping[str, int], *, offset_ns: int, waited_s: float = 0.0) -> Pass | None:
    """Make a pass of DDP's logging data; None when they have no complete one.

    Args:
        stats: integers by name; times of the day in nanoseconds.
        offset_ns: time of the day less monotonic time.
        waited_s: what the process group waited at the end of backward before DDP took its time.
    """
    began, ready, done = (
        stats.get(f"backward_{name}", -1)
        for name in ("comm_time_start", "compute_time_end", "comm_time_end")
    )
    if min(began, ready, done) <= 0 or done < began:
        return None
    ready = min(max(ready - round(waited_s * 1e9), began), done)
    seconds = ((nanoseconds - offset_ns) / 1e9 for nanoseconds in (began, ready, done))
    return Pass(**dict(zip(("began_s", "ready_s", "done_s"), seconds, strict=True)))


def read_device_pass(stats: Mapping[str, int], *, offset_ns: int) -> Pass | None:
    """Make a pass of a GPU's durations, placed where the host sent the first bucket."""
    began = stats.get("backward_comm_time_start", -1)
    duration = stats.get("backward_comm_time", 0)
    overlap = stats.get("backward_compute_comm_overlap_time", 0)
    if began <= 0 or duration <= 0:
        return None
    began_s = (began - offset_ns) / 1e9
    done_s = began_s + duration / 1e9
    return Pass(
        began_s=began_s, ready_s=min(began_s + max(overlap, 0) / 1e9, done_s), done_s=done_s
    )


class _Watch:
    """What is known of one DDP module."""

    def __init__(self, ddp: Any, recorder: Recorder) -> None:
        self._recorder = recorder
        self._last_done = -1
        self._waited_s = 0.0
        self.noise = DdpNoise(ddp, recorder)
        """How far the workers' gradients scatter."""
        self.gradient_share: float | None = 1.0
        """How much of each gradient DDP itself sends; None: a hook does, and is counted there."""
        stats = ddp.logger._get_ddp_logging_data().ints_map
        self.nbytes = stats.get("total_parameter_size_bytes", 0)
        self.bucket_bytes = stats.get("bucket_cap_bytes")
        self._flags_nbytes = 0
        if ddp.find_unused_parameters and not ddp.static_graph:
            # Which parameters took part: an int32 for each.
            self._flags_nbytes = 4 * stats.get("num_parameter_tensors", 0)
        self._on_cpu = ddp.device_type == "cpu"
        # DETAIL prints the figures whenever they are taken; how often is for the user to say.
        detail = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL"
        self.asks = self._on_cpu and not detail
        """Whether the timers are read when we like, and not only when DDP does."""
        self.unread = False
        """Whether a pass may have ended that was not read yet."""
        if not detail:
            ddp._set_ddp_runtime_logging_sample_rate(1 if self._on_cpu else _GPU_SAMPLE_RATE)

    def before_forward(self, ddp: Any) -> None:
        """Read what the last backward left, and keep DDP from reading it once more."""
        if self.asks:
            if self.unread:
                # Several passes that send make one step: accumulation without no_sync().
                self.read(ddp)
            ddp._set_ddp_runtime_logging_sample_rate(_NEVER)

    def forward_began(self, ddp: Any, *, sends: bool) -> None:
        """Let DDP take its times in this pass, whose backward sends gradients or does not."""
        if self.asks:
            ddp._set_ddp_runtime_logging_sample_rate(1)
            self.unread |= sends
        else:
            # DDP has read its timers by now, if this was a step to read them in.
            self.read(ddp)
            if sends:
                self.sent()

    def read(self, ddp: Any) -> None:
        """Tell the recorder of a backward that has ended since the last call."""
        self.unread = False
        if self.asks:
            ddp.logger.set_runtime_stats_and_log()
        stats = ddp.logger._get_ddp_logging_data().ints_map
        done = stats.get("backward_comm_time_end", -1)
        if done <= 0 or done == self._last_done:
            return
        self._last_done = done
        if self.asks:
            self.sent()
        offset_ns = time.time_ns() - time.monotonic_ns()
        if self._on_cpu:
            waited_s = getattr(ddp.process_group, "waited_s", 0.0)
            since_s, self._waited_s = waited_s - self._waited_s, waited_s
            found = read_pass(stats, offset_ns=offset_ns, waited_s=since_s)
        else:
            found = read_device_pass(stats, offset_ns=offset_ns)
        # A clock of the day that was set meanwhile makes nonsense of one pass.
        if found is not None and abs(time.monotonic() - found.done_s) < 3600:
            self._recorder.gradients(
                ready_s=found.ready_s,
                done_s=found.done_s,
                began_s=found.began_s,
                exposed_s=found.exposed_s,
            )

    def sent(self) -> None:
        """Count the bytes of one pass."""
        if self.gradient_share is not None:
            self._recorder.sent("gradients", round(self.nbytes * self.gradient_share))
        if self._flags_nbytes:
            self._recorder.sent("control", self._flags_nbytes)


def install(torch: Any) -> None:
    """Watch every DistributedDataParallel that is made from now on, and torch.distributed's calls.

    Call it in a worker that is recorded, once torch has been imported, and before whatever ends a
    step after an update: a step's gradients are read then.
    """
    if not torch.distributed.is_available():
        return
    collectives.install(torch)
    from torch.nn.parallel import DistributedDataParallel

    _Installer(torch, DistributedDataParallel).install()


class _Installer:
    """Puts itself around DDP's methods, and keeps what is known of each module."""

    def __init__(self, torch: Any, kind: Any) -> None:
        self._torch, self._kind = torch, kind
        self._is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        # Beside the modules, not in them: a module may be pickled.
        self._watches: weakref.WeakKeyDictionary[Any, _Watch] = weakref.WeakKeyDictionary()
        self._hooked: weakref.WeakKeyDictionary[Any, float | None] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        self._around("__init__", after=self._made)
        self._around("_pre_forward", before=self._before_forward, after=self._forward_began)
        self._around("_sync_buffers", after=self._synced_buffers)
        self._wrap_hooks()
        from torch.optim.optimizer import register_optimizer_step_post_hook

        # After the update, since Lightning runs backward in the closure of step().
        register_optimizer_step_post_hook(self._after_update)

    def _around(
        self,
        name: str,
        *,
        before: Callable[[Any], None] | None = None,
        after: Callable[[Any], None] | None = None,
    ) -> None:
        if not hasattr(self._kind, name):
            return  # a torch that does it in another way is left alone
        is_compiling = self._is_compiling

        @wrap(self._kind, name)
        def method(original: Any, ddp: Any, *args: Any, **kwargs: Any) -> Any:
            # Constant to the tracer, which then sees the original alone.
            if is_compiling():
                return original(ddp, *args, **kwargs)
            if before is not None:
                before(ddp)
            result = original(ddp, *args, **kwargs)
            if after is not None:
                after(ddp)
            return result

    def _wrap_hooks(self) -> None:
        @wrap(self._kind, "register_comm_hook")
        def register(original: Any, ddp: Any, state: object, hook: Any) -> Any:
            self._share(ddp, None)
            collectives.hooks_send_gradients()
            return original(ddp, state, self._counting(hook) if callable(hook) else hook)

        @wrap(self._kind, "_register_builtin_comm_hook")
        def register_builtin(original: Any, ddp: Any, kind: Any) -> Any:
            self._share(ddp, 0.5 if "FP16" in str(kind) else 1.0)
            return original(ddp, kind)

    def _counting(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Return a user's hook whose sends count as gradients."""
        is_compiling = self._is_compiling

        def counted(state: Any, bucket: Any) -> Any:
            if is_compiling():
                return hook(state, bucket)
            with collectives.sending("gradients"):
                return hook(state, bucket)

        # DDP looks at a hook's name and annotations; a callable object has its own of neither.
        functools.update_wrapper(counted, hook)
        return counted

    def _share(self, ddp: Any, share: float | None) -> None:
        self._hooked[ddp] = share
        if ddp in self._watches:
            self._watches[ddp].gradient_share = share
            self._watches[ddp].noise.own_hook = share is None

    def _made(self, ddp: Any) -> None:
        recorder = current()
        if recorder is None:
            return
        ignored = getattr(ddp, "parameters_to_ignore", ())
        states = ddp.module.named_parameters(), ddp.module.named_buffers()
        for kind, named in zip(("parameters", "buffers"), states, strict=True):
            tensors = [tensor for name, tensor in named if name not in ignored]
            recorder.sent(kind, _nbytes(tensors))
        recorder.setup(framework="ddp")
        with self._watching(ddp):
            watch = _Watch(ddp, recorder)
            watch.gradient_share = self._hooked.get(ddp, 1.0)
            watch.noise.own_hook = watch.gradient_share is None
            self._watches[ddp] = watch
            # A GAN has two.
            total = sum(watch.nbytes for watch in self._watches.values())
            recorder.setup(gradient_bytes_per_step=total, bucket_bytes=watch.bucket_bytes)

    def _before_forward(self, ddp: Any) -> None:
        # A forward of DDP's exchanges buffers: after the end nobody would answer.
        refuse_if_ended()
        with self._watching(ddp) as watch:
            if watch is not None:
                watch.before_forward(ddp)

    def _forward_began(self, ddp: Any) -> None:
        with self._watching(ddp) as watch:
            if watch is not None:
                sends = self._torch.is_grad_enabled() and ddp.require_backward_grad_sync
                watch.forward_began(ddp, sends=sends)
                if sends:
                    watch.noise.forward_began()

    def _after_update(self, *_: Any) -> None:
        if not self._watches:
            return
        # An optimizer that steps inside of backward finds the timers locked.
        if self._is_compiling() or self._torch._C._current_graph_task_id() != -1:
            return
        for ddp in list(self._watches):
            with self._watching(ddp) as watch:
                if watch is not None:
                    watch.noise.updated()
                    if watch.asks:
                        watch.read(ddp)

    @contextmanager
    def _watching(self, ddp: Any) -> Iterator[_Watch | None]:
        """Give what watches a module; what fails there ends the watching, not the training."""
        try:
            yield self._watches.get(ddp)
        except Exception as error:
            self._watches.pop(ddp, None)
            recorder = current()
            if recorder is not None:
                recorder.note(f"{_NOT_TIMED} ({type(error).__name__}: {error})")

    def _synced_buffers(self, ddp: Any) -> None:
        recorder = current()
        if recorder is not None:
            recorder.sent("buffers", _nbytes(ddp.modules_buffers))


def _nbytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


OWN_HOOK = f"{NOT_MEASURED}: a communication hook of the script's own combines the gradients."
SEVERAL = f"{NOT_MEASURED}: gradients are averaged several times in a step."
# DDP's own: its first bucket is small, unless a script sets a size for all.
_BUCKET_BYTES, _FIRST_BYTES = 25 << 20, 1 << 20


class DdpNoise:
    """Watches one DDP module."""

    def __init__(self, ddp: Any, recorder: Recorder) -> None:
        import torch

        self._recorder = recorder
        engine: Any = torch.autograd.Variable._execution_engine
        self._when_backward_ends: Callable[[Callable[[], None]], None] = engine.queue_callback
        ignored = getattr(ddp, "parameters_to_ignore", ())
        self._parameters = [
            parameter
            for name, parameter in ddp.module.named_parameters()
            if parameter.requires_grad and name not in ignored
        ]
        self._some_may_lack = bool(ddp.find_unused_parameters)
        rank, size = ddp.process_group.rank(), ddp.process_group.size()
        self._mine = share_of(self._parameters, rank, size)
        stats = ddp.logger._get_ddp_logging_data().ints_map
        self._buckets, self._bytes = buckets_of(self._parameters, stats.get("bucket_cap_bytes", -1))
        # A group of some workers has another mean than that of the others.
        self._stopped = size == 1 or size != recorder.size
        self._telling, self._schedule = NoiseWriter(), Schedule()
        self._hooks: list[Any] = []
        self._before: dict[int, Any] = {}
        self._found: tuple[list[Any], list[Any]] | None = None
        self._passes = 0
        self._queued = False
        self._told = -1
        self._spent_s = 0.0
        self.own_hook = False
        """Whether a hook of the script's own combines the gradients."""

    def forward_began(self) -> None:
        """Watch the backward of a forward that has just begun, if its step is sampled."""
        step = self._recorder.steps
        sampled = self._schedule.samples(step + 1) and step != self._told
        if self._stopped or not sampled:
            self._release()
            return
        if self.own_hook:
            self._recorder.note(OWN_HOOK)
            self._stopped = True
            return
        self._before.clear()
        self._queued = False
        if not self._hooks:
            with self._guarded():
                self._hooks = [
                    parameter.register_post_accumulate_grad_hook(self._came)
                    for parameter in self._parameters
                ]

    def updated(self) -> None:
        """Take note of an update; tell of the gradients that went into it, if they were watched."""
        self._schedule.ended(time.monotonic())
        self._telling.settle(self._recorder)
        found, passes = self._found, self._passes
        if not self._hooks or not passes:
            return
        self._release()
        self._told = self._recorder.steps
        if passes > 1:
            self._recorder.note(SEVERAL)
            self._stopped = True
        elif found is not None:
            head = {"update": self._told + 1, "step": self._told, "bytes": self._bytes}
            self._telling.tell(self._recorder, head, *found)
            self._schedule.spent(self._spent_s)
        self._spent_s = 0.0

    def _came(self, parameter: Any) -> None:
        """Square a gradient before DDP takes it over."""
        with self._guarded():
            self._before[id(parameter)] = self._squared(parameter.grad)
            if not self._queued:
                self._queued = True
                # DDP's own callback is put there by its last gradient. The one that this one puts
                # there comes after it.
                again = self._when_backward_ends
                again(lambda: again(self._backward_ended))

    def _backward_ended(self) -> None:
        """Square my share of the results: all workers have the same."""
        with self._guarded():
            self._queued = False
            if not self._some_may_lack and len(self._before) < len(self._parameters):
                return  # the backward of a checkpoint inside of it
            self._passes += 1
            after = {id(parameter): self._squared(parameter.grad) for parameter in self._mine}
            self._found = self._by_bucket(self._before), self._by_bucket(after)

    def _by_bucket(self, squares: Mapping[int, Any]) -> list[Any]:
        totals: list[Any] = [0.0] * len(self._bytes)
        for parameter, square in squares.items():
            totals[self._buckets[parameter]] += square
        return totals

    def _squared(self, gradient: Any) -> Any:
        if gradient is None:
            return 0.0
        if gradient.is_sparse:
            self._recorder.note(SPARSE)
            return 0.0
        return squared(gradient)

    def _release(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._before.clear()
        self._passes = 0

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Count the time; what fails here ends the sampling, not the training."""
        began_s = time.monotonic()
        try:
            yield
        except Exception as error:
            self._stopped, self._found = True, None
            self._recorder.note(f"{NOT_MEASURED}: {type(error).__name__}: {error}")
        self._spent_s += time.monotonic() - began_s


def buckets_of(parameters: Sequence[Any], most_bytes: int) -> tuple[dict[int, int], list[int]]:
    """Return the bucket of each parameter, by its id, and the bytes of each bucket.

    Filled from the last parameter on, as DDP does before it knows better. Later DDP goes by when
    gradients come; here the same ones stay together, so that their figures can be averaged.

    Args:
        parameters: in the module's order.
        most_bytes: how many DDP puts into a bucket; its default where that is not above 0.
    """
    usual = most_bytes <= 0 or most_bytes == _BUCKET_BYTES
    most_bytes = _BUCKET_BYTES if usual else most_bytes
    places: dict[int, int] = {}
    sizes: list[int] = []
    for parameter in reversed(parameters):
        full = _FIRST_BYTES if usual and len(sizes) == 1 else most_bytes
        if not sizes or sizes[-1] >= full:
            sizes.append(0)
        places[id(parameter)] = len(sizes) - 1
        sizes[-1] += parameter.nbytes
    return places, sizes


def share_of(parameters: Sequence[Any], rank: int, size: int) -> list[Any]:
    """Return those of the parameters that are this rank's, of about as many elements as others'."""
    total = sum(parameter.numel() for parameter in parameters)
    mine, reached = [], 0
    for parameter in parameters:
        # By its middle, so that a large one goes where most of it lies.
        middle = reached + parameter.numel() / 2
        reached += parameter.numel()
        if min(int(middle * size / total), size - 1) == rank:
            mine.append(parameter)
    return mine


def squared(gradient: Any) -> Any:
    """Return a dense gradient's squared norm: a float, or a tensor on its device."""
    import torch

    plain = gradient.detach()
    if plain.dim() == 4 and plain.is_contiguous(memory_format=torch.channels_last):
        plain = plain.permute(0, 2, 3, 1)
    flat = plain.reshape(-1)
    if flat.device.type != "cpu":
        return squared_norm(flat, "")
    wide = flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
    return squared_norm(wide.numpy(), "float32")
