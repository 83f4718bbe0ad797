"""Which samples each worker trains on: loaders and samplers, indices and contents of every pass.

A sample is known by its index, as the sampler drew it, and by a hash of its content, which holds
where every rank has a data set of its own. Both are of the first passes only, and of so many
samples (MOST, HASHED). Where the random numbers of augmentation stand is told by whoever fetches: a
loader process writes it to a file of its own, which its worker reads and removes.
"""

from __future__ import annotations

import json
import os
import random
import sys
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from farandole.recorder.batches import arrays_of, count_samples
from farandole.recorder.detail import call_site, detail, is_users
from farandole.recorder.recorder import RECORD_DIR, Recorder, current, when_opened, wrap

MOST = {"doctor": 20_000, "watch": 2_000}
"""Indices of a pass that are kept."""
HASHED = {"doctor": 8_192, "watch": 256}
"""Samples of a pass whose contents are hashed."""
PASSES = 4
"""Passes of a loader that are told of with their samples."""
WIDTH = 12
"""Hexadecimal digits of a content's hash."""
_MOST_WORDS = 256
_MOST_BAD = 20
_MOST_LOADERS = 20
"""Loaders that are described; some scripts make one for each epoch."""
_MOST_PASSES = 8
"""Passes of a loader that are told of at all; some scripts begin one for each batch."""
_EARLY = 50
"""Steps after which passes under way are told of as they are, in case the launch is killed."""


class Pass:
    """One pass over a loader, as far as it went."""

    def __init__(self, loader: int, number: int, iterator: int = 0) -> None:
        self.loader, self.number, self.iterator = loader, number, iterator
        self.drawn: deque[list[int]] = deque()
        self.indices: list[int] = []
        self.contents: list[str] = []
        self.labels: list[str] = []
        self.sizes: list[int] = []
        self.samples = 0
        self.updates = 0
        """Updates before which a batch was fetched with gradients enabled."""
        self.begin: int | None = None
        """The step in which its first batch was fetched."""
        self.whole = False
        self.discrete = False
        self.pending = 0
        """Backward passes behind its end that no update used."""
        self.training: bool | None = None
        """Where somebody knows it; else it is training if updates were made."""


def row_hashes(arrays: Sequence[Any], samples: int) -> tuple[list[str], list[str]]:
    """Return of each sample a hash of its content, and a short one of its label.

    Large samples are looked at in places. Zeros at a row's end change nothing, so that texts of one
    batch may be padded to another length than those of another.
    """
    import numpy as np

    total = np.zeros(samples, np.uint64)
    labels = np.zeros(samples, np.uint64)
    nbytes = 0
    for array in arrays:
        if not len(array.shape) or array.shape[0] != samples:
            continue
        words = _words(array)
        if words is None:
            continue
        nbytes += words.shape[1] * 8
        weights = _weights(words.shape[1])
        mixed = (words * weights).sum(axis=1, dtype=np.uint64)
        total = total * np.uint64(0x9E3779B97F4A7C15) + mixed
        if words.shape[1] == 1:
            labels = labels * np.uint64(31) + mixed
    if nbytes < 16:  # labels alone make strangers look alike
        return [], []
    total ^= total >> np.uint64(29)
    total *= np.uint64(0xBF58476D1CE4E5B9)
    mask = (1 << 4 * WIDTH) - 1
    contents = [f"{(one >> 8) & mask:0{WIDTH}x}" for one in total.tolist()]
    return contents, [f"{(one * 0x9E3779B97F4A7C15 >> 40) & 255:02x}" for one in labels.tolist()]


def _words(array: Any) -> Any:
    """Return rows of 64-bit words; None for what has no memory here."""
    import numpy as np

    try:
        plain = array.detach() if hasattr(array, "detach") else array
        plain = np.ascontiguousarray(plain.numpy() if hasattr(plain, "numpy") else plain)
        rows = plain.reshape(len(plain), -1).view(np.uint8)
    except (RuntimeError, TypeError, ValueError):
        return None
    rest = -rows.shape[1] % 8
    if rest:
        rows = np.pad(rows, ((0, 0), (0, rest)))
    words = np.ascontiguousarray(rows).view(np.uint64)
    if words.shape[1] > _MOST_WORDS:
        words = words[:, np.linspace(0, words.shape[1] - 1, _MOST_WORDS).astype(np.int64)]
    return words


_kept_weights: Any = None


def _weights(count: int) -> Any:
    global _kept_weights
    if _kept_weights is None:
        import numpy as np

        # Its own generator: the script's random numbers stay as they are.
        numbers = np.random.Generator(np.random.PCG64(1)).integers(
            1, 1 << 63, max(_MOST_WORDS, 8), dtype=np.uint64
        )
        _kept_weights = numbers * np.uint64(2) + np.uint64(1)
    return _kept_weights[:count]


def not_finite(arrays: Sequence[Any]) -> int:
    """Count the values of a batch that are NaN or +inf; masks of attention have -inf."""
    import numpy as np

    count = 0
    for array in arrays:
        try:
            plain = array.detach() if hasattr(array, "detach") else array
            plain = np.asarray(plain.numpy() if hasattr(plain, "numpy") else plain)
            if plain.dtype.kind == "f":
                count += int(np.count_nonzero(np.isnan(plain) | np.isposinf(plain)))
        except (RuntimeError, TypeError, ValueError):
            continue
    return count


class SampleLog:
    """What this worker trains and evaluates on."""

    def __init__(self) -> None:
        self._level = detail() or "doctor"
        self._recorder: Recorder | None = None
        self._loaders: dict[int, dict[str, Any]] = {}
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._made: weakref.WeakKeyDictionary[Any, tuple[str, bool]] = weakref.WeakKeyDictionary()
        self._own: list[tuple[int, tuple[str, ...], Any]] = []
        """Of loaders that the script made itself: data set, classes of samplers, the sampler."""
        self._bases: dict[int, tuple[int, Callable[[], Any]]] = {}
        self._base_count = 0
        self._counts: dict[int, int] = {}
        self._told_loaders: set[int] = set()
        self._open: list[Pass] = []
        self._ended: list[Pass] = []
        self._streams: dict[str, Pass] = {}
        self._since: list[Pass] = []
        """Passes that gave a batch since the last update."""
        self._steps = 0
        self._epochs = 0
        self._bad = 0
        self._early = False
        self.keras_tests = False
        """Whether Keras evaluates or predicts: it fetches with gradients enabled all the same."""
        self.fetches = 0
        """Batches that DataLoaders gave."""
        self.iterators = 0

    # Loaders

    def made(self, loader: Any, by_script: bool) -> None:
        """Take note of a loader and of where it is made."""
        self._made[loader] = call_site(sys._getframe(2)), by_script
        chain = _chain(loader)
        if by_script and chain and len(self._own) < _MOST_LOADERS:
            names = tuple(type(one).__name__ for one in chain)
            self._own.append((id(loader.dataset), names, weakref.ref(chain[-1])))

    def begins(self, loader: Any) -> int:
        """Return the number of a loader that a pass begins over."""
        number = self._numbers.get(loader)
        if number is None:
            try:
                fields = self._describe(loader)
            except Exception:
                fields = {}
            number = self._numbers[loader] = self._number_for(fields)
            if number < _MOST_LOADERS:
                self._loaders.setdefault(number, fields)
        return number

    def _number_for(self, fields: dict[str, Any]) -> int:
        """Return a new number, or that of a loader like this one which is no more."""
        told = [one for one in self._loaders if one < _MOST_LOADERS]
        alive = set(self._numbers.values())
        alike = ("where", "dataset", "dataset_size", "batch_size", "batches", "samplers")
        for number in told:
            known = self._loaders[number]
            if number not in alive and all(known.get(a) == fields.get(a) for a in alike):
                return number
        return len(told)

    def _describe(self, loader: Any) -> dict[str, Any]:
        where, by_script = self._made.get(loader, ("", True))
        dataset, chain = loader.dataset, _chain(loader)
        base, places = _base(dataset)
        number = self._base_number(base)
        shard = next((one for one in (*chain, dataset) if _shard(one) is not None), None)
        replicas, rank = _shard(shard) or (None, None)
        asked = () if by_script else self._replaced(dataset, chain)
        foreign = [one for one in chain if is_users(_file_of(type(one)))]
        own = foreign[-1] if foreign else None
        return {
            "where": where,
            "dataset": type(dataset).__name__,
            "dataset_size": _length(dataset),
            "base": number,
            "base_size": _length(base),
            "subset": None if places is None else places[: MOST["doctor"]],
            "batch_size": getattr(loader, "batch_size", None)
            or next((int(one.batch_size) for one in chain if hasattr(one, "batch_size")), None),
            "workers": int(getattr(loader, "num_workers", 0)),
            "iterable": any(kind.__name__ == "IterableDataset" for kind in type(dataset).__mro__),
            "samplers": [type(one).__name__ for one in chain],
            "replicas": replicas,
            "sampler_rank": rank,
            "sampler_seed": getattr(shard, "seed", None) if shard is not None else None,
            "shuffle": any(
                type(one).__name__ == "RandomSampler" or getattr(one, "shuffle", False) is True
                for one in chain
            ),
            "replacement": any(
                getattr(one, "replacement", False) is True
                or (hasattr(one, "weights") and getattr(one, "replacement", True))
                for one in chain
            ),
            "drop_last": bool(getattr(loader, "drop_last", False))
            or any(getattr(one, "drop_last", False) is True for one in chain),
            "batches": _length(loader),
            "asked": list(asked),
            "dividers": [type(one).__name__ for one in chain if (_shard(one) or (1, 0))[0] > 1],
            "own": type(own).__name__ if own is not None else "",
            "own_length": _length(own) if own is not None else None,
        }

    def _base_number(self, base: Any) -> int | None:
        known = self._bases.get(id(base))
        if known is not None and known[1]() is base:
            return known[0]
        if len(self._bases) == _MOST_LOADERS:
            return None
        try:
            reference: Callable[[], Any] = weakref.ref(base)
        except TypeError:  # a list
            reference = lambda: base  # noqa: E731
        number = self._base_count
        self._base_count += 1
        self._bases[id(base)] = number, reference
        return number

    def _replaced(self, dataset: Any, chain: Sequence[Any]) -> tuple[str, ...]:
        """Return the script's own kind of sampler for this data, if the used loader lacks it."""
        for known, names, sampler in self._own:
            if known != id(dataset):
                continue
            ordinary = ("RandomSampler", "SequentialSampler", "BatchSampler", "DistributedSampler")
            if names[-1] in ordinary or sampler() is None:
                continue
            inside = {type(one).__name__ for one in chain}
            if names[-1] not in inside and all(one is not sampler() for one in chain):
                return names
        return ()

    # Passes

    def began(self, iterator: Any, loader: Any) -> None:
        """Take note of an iterator that has just been made."""
        fields = iterator.__dict__
        fields["_farandole_loader"] = self.begins(loader)

    def drew(self, iterator: Any, index: Any) -> None:
        """Take note of the indices of the next batch."""
        one = self._pass_of(iterator)
        wanted = one.number < PASSES and len(one.indices) < MOST[self._level]
        one.drawn.append(_integers(index) if wanted else [])

    def fetched(self, iterator: Any, batch: Any, recorder: Recorder | None, grad: bool) -> None:
        """Take note of a batch."""
        self._credit()
        self._settle()
        self.fetches += 1
        one = self._pass_of(iterator)
        steps = 0 if recorder is None else recorder.steps
        one.begin = steps if one.begin is None else one.begin
        if grad and not self.keras_tests:
            # A look at a first batch is no training.
            self._since = [each for each in self._since if each.loader != one.loader]
            self._since.append(one)
        if one not in self._open:
            # One that was left before its end.
            self._ended += [
                each
                for each in self._open
                if each.loader == one.loader and each.number < one.number
            ]
            self._open.append(one)
        drawn = one.drawn.popleft() if one.drawn else []
        arrays = arrays_of(batch)
        samples = len(drawn) or count_samples(batch, arrays, None) or 0
        one.indices += drawn[: MOST[self._level] - len(one.indices)]
        self._keep(one, arrays, samples)
        if steps >= _EARLY and not self._early:
            self._early = True
            for each in self._open:
                self._tell(each)

    def _keep(self, one: Pass, arrays: Sequence[Any], samples: int) -> None:
        one.samples += samples
        if len(one.sizes) < MOST[self._level]:
            one.sizes.append(samples)
        if one.number >= PASSES or len(one.contents) >= HASHED[self._level] or not samples:
            return
        shapes = [int(array.shape[0]) for array in arrays if len(array.shape)]
        if samples not in shapes and shapes:
            samples = max(set(shapes), key=shapes.count)
        contents, labels = row_hashes(arrays, samples)
        one.discrete = one.discrete or (bool(arrays) and "int" in str(arrays[0].dtype))
        one.contents += contents
        one.labels += labels
        bad = not_finite(arrays)
        if bad and self._bad < _MOST_BAD and self._recorder is not None:
            self._bad += 1
            where = self._loaders.get(one.loader, {}).get("where", "")
            self._recorder.tell(
                "bad_batch",
                step=self._recorder.steps,
                values=bad,
                where=where,
                batch=len(one.sizes) - 1,
                loader=one.loader,
            )

    def ended(self, iterator: Any) -> None:
        """Take note of a pass that came to its end."""
        one: Pass | None = iterator.__dict__.pop("_farandole_samples", None)
        if one is not None and one.begin is not None:
            one.whole = True
            self._ended.append(one)

    def _pass_of(self, iterator: Any) -> Pass:
        fields = iterator.__dict__
        key = fields.get("_sampler_iter")
        one: Pass | None = fields.get("_farandole_samples")
        if one is None or (key is not None and fields.get("_farandole_key") is not key):
            number = fields.get("_farandole_loader", -1)
            if number < 0:
                # Loader processes are given their first batches before their iterator is made.
                one = Pass(-1, 0)
            else:
                one = self._new(number)
            one.iterator = fields.get("_farandole_iterator", 0)
            fields["_farandole_samples"], fields["_farandole_key"] = one, key
        elif one.loader < 0 and fields.get("_farandole_loader", -1) >= 0:
            known = self._new(fields["_farandole_loader"])
            one.loader, one.number = known.loader, known.number
        return one

    def _new(self, loader: int) -> Pass:
        count = self._counts[loader] = self._counts.get(loader, -1) + 1
        return Pass(loader, count)

    # What has no DataLoader

    @property
    def wants_calls(self) -> bool:
        """Whether calls of the model are all there is to see."""
        return not self.fetches

    def called(self, arguments: Any, *, training: bool) -> None:
        """Take note of a call of the model."""
        if self.fetches or self._recorder is None:
            return
        arrays = arrays_of(arguments)
        samples = next((int(one.shape[0]) for one in arrays if len(one.shape)), 0)
        self._keep(self._stream("calls" if training else "evaluation"), arrays, samples)

    def keras_fetched(self, arrays: Sequence[Any]) -> tuple[list[str], list[str], int, int]:
        """Return hashes of a batch, its size, and how many of its values are not finite."""
        samples = next((int(one.shape[0]) for one in arrays if len(one.shape)), 0)
        return (*row_hashes(arrays, samples), samples, not_finite(arrays))

    def keras_has(self, found: tuple[list[str], list[str], int, int], *, training: bool) -> None:
        """Take note of a batch that Keras trained or evaluated on."""
        recorder = self._recorder
        if recorder is None:
            return
        if training and recorder.epochs != self._epochs and "fit" in self._streams:
            self._epochs = recorder.epochs
            one = self._streams.pop("fit")
            one.whole = True
            self._open.remove(one)
            self._tell(one)
        one = self._stream("fit" if training else "validation")
        contents, labels, samples, bad = found
        one.samples += samples
        if len(one.sizes) < MOST[self._level]:
            one.sizes.append(samples)
        if one.number < PASSES and len(one.contents) < HASHED[self._level]:
            one.contents += contents
            one.labels += labels
        if bad and self._bad < _MOST_BAD:
            self._bad += 1
            recorder.tell("bad_batch", step=recorder.steps, values=bad, batch=len(one.sizes) - 1)

    def _stream(self, name: str) -> Pass:
        one = self._streams.get(name)
        if one is None:
            number = {"calls": 1001, "evaluation": 1002, "fit": 1003, "validation": 1004}[name]
            self._loaders.setdefault(number, {"kind_of": name})
            one = self._streams[name] = self._new(number)
            one.training = name in ("calls", "fit")
            assert self._recorder is not None
            one.begin = self._recorder.steps
            self._open.append(one)
        return one

    # Telling

    def opened(self, recorder: Recorder) -> None:
        """Tell from now on."""
        self._recorder = recorder
        recorder.inputs = self
        recorder.add_ending(self._finish)

    def _credit(self) -> None:
        """Take note of an update, if there was one: what gave its batches is training."""
        steps = 0 if self._recorder is None else self._recorder.steps
        if steps > self._steps:
            self._steps = steps
            for one in self._since:
                one.updates += 1
            self._since.clear()

    def _settle(self) -> None:
        """Tell of passes that ended: whether they were training is known by now."""
        ended, self._ended = self._ended, []
        for one in ended:
            if one in self._open:
                self._open.remove(one)
            if one in self._since:
                self._since.remove(one)
            one.pending = pending()
            self._tell(one)

    def _finish(self) -> dict[str, Any]:
        self._credit()
        self._settle()
        for one in self._open:
            self._tell(one)
        return {}

    def _tell(self, one: Pass) -> None:
        recorder = self._recorder
        told = one.number < _MOST_PASSES and one.loader not in range(_MOST_LOADERS, 1000)
        if recorder is None or not one.samples or not told:
            for _ in self._notes(one):
                pass
            return
        if one.loader not in self._told_loaders:
            self._told_loaders.add(one.loader)
            fields = self._loaders.get(one.loader, {})
            recorder.tell("loader", number=one.loader, **fields)
        begin = one.begin or 0
        training = one.updates > 0 if one.training is None else one.training
        steps = recorder.steps - begin
        recorder.tell(
            "pass",
            loader=one.loader,
            number=one.number,
            training=training,
            whole=one.whole,
            begin=begin,
            steps=steps,
            samples=one.samples,
            pending=one.pending,
            discrete=one.discrete,
            sizes=_lengths(one.sizes),
            indices=one.indices,
            contents="".join(one.contents),
            labels="".join(one.labels),
        )
        for fields in self._notes(one):
            recorder.tell("random", loader=one.loader, number=one.number, **fields)

    def _notes(self, one: Pass) -> Iterator[dict[str, Any]]:
        return _read_notes(one.iterator) if self._level == "doctor" else iter(())


def _lengths(sizes: Sequence[int]) -> list[list[int]]:
    """Return runs of equal batch sizes as (size, count)."""
    runs: list[list[int]] = []
    for one in sizes:
        if runs and runs[-1][0] == one:
            runs[-1][1] += 1
        else:
            runs.append([one, 1])
    return runs[:200]


def _integers(index: Any) -> list[int]:
    if index is None:
        return []
    if isinstance(index, list | tuple):
        return [one for part in index for one in _integers(part)]
    if hasattr(index, "tolist"):
        return _integers(index.tolist())
    return [index] if isinstance(index, int) else [zlib.crc32(str(index).encode())]


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # a length that a program computes may fail in any way
        return None


def _chain(loader: Any) -> list[Any]:
    """Return a loader's batch sampler and samplers, outermost first."""
    found: list[Any] = []
    rest = [getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)]
    while rest and len(found) < 8:
        one = rest.pop(0)
        if one is None or any(one is each for each in found):
            continue
        if type(one).__name__ == "_InfiniteConstantSampler":
            continue
        found.append(one)
        names = ("batch_sampler", "sampler", "_sampler", "base_sampler")
        rest += [getattr(one, name, None) for name in names]
        inner = getattr(one, "dataset", None)
        if type(inner).__name__ == "_DatasetSamplerWrapper":
            rest.append(getattr(inner, "_sampler", None))
    # The script's own kind stands last.
    ordinary = [one for one in found if type(one).__module__.startswith("torch.")]
    return [*ordinary, *(one for one in found if not any(one is each for each in ordinary))]


def _file_of(kind: type) -> str:
    return str(getattr(sys.modules.get(kind.__module__), "__file__", None) or "<unknown>")


def _shard(one: Any) -> tuple[int, int] | None:
    """Return number of parts and this part, of what divides data between workers."""
    for parts, mine in (("num_replicas", "rank"), ("num_processes", "process_index")):
        count, number = getattr(one, parts, None), getattr(one, mine, None)
        if isinstance(count, int) and isinstance(number, int):
            return count, number
    return None


def _base(dataset: Any) -> tuple[Any, list[int] | None]:
    """Return what a torch Subset is a part of, and the places of its samples there."""
    places: list[int] | None = None
    while type(dataset).__name__ == "Subset" and hasattr(dataset, "indices"):
        mine = _integers(list(dataset.indices))
        places = mine if places is None else [mine[at] for at in places if at < len(mine)]
        dataset = dataset.dataset
    return dataset, places


pending: Callable[[], int] = lambda: 0  # noqa: E731
"""How many backward passes wait for an update (recorder/schedules.py)."""
_log: SampleLog | None = None


def _the_log() -> SampleLog:
    global _log
    if _log is None:
        _log = SampleLog()
        when_opened(_log.opened)
    return _log


# Random numbers of augmentation

_current_iterator = 0
"""Inherited by loader processes."""


def _note_path(parent: int, iterator: int, own: int) -> Path:
    return Path(os.environ.get(RECORD_DIR, ".")) / f"loader-{parent}-{iterator}-{own}.note"


def _read_notes(iterator: int) -> Iterator[dict[str, Any]]:
    folder = Path(os.environ.get(RECORD_DIR, "."))
    for file in sorted(folder.glob(f"loader-{os.getpid()}-{iterator}-*.note")):
        try:
            found = [json.loads(line) for line in file.read_text().splitlines()]
            file.unlink()
        except (OSError, ValueError):
            continue
        yield from found


def random_states(dataset: Any) -> dict[str, str]:
    """Return hashes of all generators that a data set may draw from."""
    found = {"python": _short(random.getstate())}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, place, *_ = numpy.random.get_state(legacy=True)
        found["numpy"] = _short((keys.tobytes(), place))
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = _short(torch.get_rng_state().numpy().tobytes())
    for name, one in _generators(dataset, 0):
        if hasattr(one, "bit_generator"):
            found[name] = _short(repr(one.bit_generator.state))
        elif hasattr(one, "getstate"):
            found[name] = _short(one.getstate())
        elif torch is not None and isinstance(one, torch.Generator):
            found[name] = _short(one.get_state().numpy().tobytes())
        elif hasattr(one, "get_state"):
            found[name] = _short(repr(one.get_state()))
    return found


def _generators(owner: Any, depth: int) -> Iterator[tuple[str, Any]]:
    try:
        fields: Mapping[str, Any] = vars(owner)
    except TypeError:
        return
    for name, value in list(fields.items())[:50]:
        kind = f"{type(value).__module__}.{type(value).__name__}"
        if kind in (
            *("random.Random", "numpy.random._generator.Generator", "torch.Generator"),
            *("numpy.random.mtrand.RandomState", "torch._C.Generator"),
        ):
            yield name, value
        elif depth < 2 and name in ("dataset", "transform", "transforms", "augment", "base"):
            yield from ((f"{name}.{inner}", one) for inner, one in _generators(value, depth + 1))


def _short(state: Any) -> str:
    return f"{zlib.crc32(state if isinstance(state, bytes) else repr(state).encode()):08x}"


def _note_random(fetcher: Any, fetch: Callable[[], Any], worker: int) -> Any:
    """Fetch, and note where random numbers stood before and which were drawn."""
    before = random_states(fetcher.dataset)
    result = fetch()
    after = random_states(fetcher.dataset)
    used = sorted(name for name, state in before.items() if after.get(name) != state)
    fields = {"worker": worker, "states": before, "used": used}
    parent = os.getpid() if worker < 0 else os.getppid()
    try:
        with _note_path(parent, _current_iterator, os.getpid()).open("a") as file:
            file.write(json.dumps(fields) + "\n")
    except OSError:
        pass  # the record's folder is gone: nobody will read it
    return result


def install_torch(torch: Any) -> None:
    """Follow all DataLoaders of torch."""
    log = _the_log()
    dataloader = sys.modules["torch.utils.data.dataloader"]
    everything = detail() == "doctor"

    @wrap(torch.utils.data.DataLoader, "__init__")
    def init(original: Callable[..., None], loader: Any, *args: Any, **kwargs: Any) -> None:
        original(loader, *args, **kwargs)
        caller = sys._getframe(2)
        while caller is not None and caller.f_code.co_name in ("init", "method", "__init__"):
            caller = caller.f_back  # type: ignore[assignment]
        log.made(loader, caller is None or is_users(caller.f_code.co_filename))

    iterators: Any = dataloader._BaseDataLoaderIter

    @wrap(iterators, "__init__")
    def begin(original: Callable[..., None], iterator: Any, loader: Any) -> None:
        global _current_iterator
        log.iterators += 1
        _current_iterator = iterator.__dict__["_farandole_iterator"] = log.iterators
        original(iterator, loader)
        log.began(iterator, loader)

    @wrap(iterators, "_next_index")
    def draw(original: Callable[..., Any], iterator: Any) -> Any:
        index = original(iterator)
        log.drew(iterator, index)
        return index

    @wrap(iterators, "__next__")
    def fetch(original: Callable[..., Any], iterator: Any) -> Any:
        try:
            batch = original(iterator)
        except StopIteration:
            log.ended(iterator)
            raise
        grad = torch.is_grad_enabled()
        # Where nothing is trained yet, nothing is opened.
        log.fetched(iterator, batch, current() if grad else log._recorder, grad)
        return batch

    if not everything:
        return
    info = torch.utils.data.get_worker_info
    module = sys.modules["torch.utils.data._utils.fetch"]
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):

        @wrap(getattr(module, name), "fetch")
        def fetch_samples(original: Callable[..., Any], fetcher: Any, index: Any) -> Any:
            if "_farandole_fetched" in fetcher.__dict__:
                return original(fetcher, index)
            fetcher.__dict__["_farandole_fetched"] = True
            who = info()
            number = -1 if who is None else int(who.id)
            return _note_random(fetcher, lambda: original(fetcher, index), number)


def install_keras(keras: Any) -> None:
    """Follow what Keras is asked to fit; the batches come by recorder/keras_data.py."""
    log = _the_log()

    def follow(name: str, tests: bool) -> None:
        @wrap(keras.callbacks.CallbackList, name)
        def method(original: Callable[..., Any], callbacks: Any, *args: Any, **kwargs: Any) -> Any:
            log.keras_tests = tests
            return original(callbacks, *args, **kwargs)

    for what in ("test", "predict"):
        follow(f"on_{what}_begin", True)
        follow(f"on_{what}_end", False)
    follow("on_epoch_begin", False)

    @wrap(keras.callbacks.CallbackList, "on_train_begin")
    def train_begin(original: Callable[..., Any], callbacks: Any, *args: Any) -> Any:
        recorder = current()
        if recorder is not None:
            asked = callbacks.params or {}
            recorder.tell(
                "fit",
                epochs=asked.get("epochs"),
                steps=asked.get("steps"),
                where=call_site(),
            )
        return original(callbacks, *args)
