"""FD2xx: which samples does each worker train on?

The ids: FD201 every rank the same samples, FD202 every rank goes over the whole data, FD203 the
same order in every epoch, FD204 samples are left out, FD205 samples come twice, FD206 unequal
parts, FD207 parts of another order, FD208 training and validation overlap, FD209 values that are
not finite, FD210 loader processes augment alike, FD211 epochs augment alike, FD212 a sampler for
another world, FD213 the script's sampler was replaced, FD214 epochs did not get shorter, FD215
splits differ between ranks; advice: FD216 a small data set.

Ranks are compared by indices where these mean the same samples on all of them, else by hashes of
contents. What repeats within one rank sets the level: data may hold the same sample twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from farandole.doctor.check import NotChecked, Seen, check, several
from farandole.doctor.facts import (
    CONTENT_WIDTH,
    BadBatch,
    Fit,
    Job,
    Loader,
    Pass,
    Random,
    Rank,
    say_ranks,
)
from farandole.format import brief, listed, percent, plural

_ALIKE = 0.9
"""Share of places from which two sequences are the same."""
_FEWEST = 16
"""Samples of a rank below which nothing is said."""
_TORCH = ("torch", "ddp", "accelerate", "lightning")
_KERAS = (*_TORCH, "keras")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What one rank trained or evaluated on: passes over loaders of one place in the script."""

    rank: int
    loader: Loader
    passes: tuple[Pass, ...]

    def base_indices(self, one: Pass) -> tuple[int, ...]:
        """Return indices in the data set that a Subset is a part of."""
        subset = self.loader.subset
        if subset is None:
            return one.indices
        return tuple(subset[at] for at in one.indices if at < len(subset))

    def contents(self, one: Pass) -> list[str]:
        """Return the hashes of the first samples of a pass; of calls, until they come again."""
        found = cut(one.contents, CONTENT_WIDTH)
        return first_round(found) if self.loader.kind_of == "calls" else found

    @property
    def first(self) -> Pass:
        """The first pass."""
        return self.passes[0]


_WINDOW = 16


def first_round(found: Sequence[str]) -> list[str]:
    """Return samples until most of what follows was there before: a pass that nobody marks.

    Nothing, if that is but a batch or two, as in a benchmark.
    """
    seen: set[str] = set()
    old: list[bool] = []
    for one in found:
        old.append(one in seen)
        seen.add(one)
    for at in range(1, len(found) - _WINDOW):
        if old[at] and sum(old[at : at + _WINDOW]) >= 0.75 * _WINDOW:
            return list(found[:at]) if at >= 4 * _WINDOW else []
    return list(found)


def cut(text: str, width: int) -> list[str]:
    """Return parts of equal width."""
    return [text[at : at + width] for at in range(0, len(text), width)]


def feeds(rank: Rank, *, training: bool) -> list[Feed]:
    """Return what a rank trained on, or evaluated on; the most samples first."""
    loaders = {one.number: one for one in rank.facts(Loader)}
    last = {(one.loader, one.number): one for one in rank.facts(Pass)}
    places: dict[tuple[str, str, str], list[Pass]] = {}
    for one in last.values():
        loader = loaders.get(one.loader)
        if loader is not None and one.training == training:
            key = (loader.kind_of, loader.where, loader.dataset)
            places.setdefault(key, []).append(one)
    found = [
        Feed(
            rank=rank.rank,
            loader=loaders[min(one.loader for one in passes)],
            passes=tuple(sorted(passes, key=lambda one: (one.begin, one.number))),
        )
        for passes in places.values()
    ]
    return sorted(found, key=lambda one: -sum(each.samples for each in one.passes))


def trained(job: Job) -> dict[int, Feed]:
    """Return each rank's training data.

    Raises:
        NotChecked: fewer than two ranks have told of any.
    """
    several(job)
    found = {rank.rank: each[0] for rank in job.training if (each := feeds(rank, training=True))}
    if len(found) < 2:
        raise NotChecked("the samples of training were not seen on two ranks")
    return found


def repeats(items: Sequence[object]) -> float:
    """Return the share of items that were there before."""
    return 1 - len(set(items)) / len(items) if items else 0.0


def alike(first: Sequence[object], second: Sequence[object]) -> float:
    """Return the share of places at which two sequences have the same."""
    count = min(len(first), len(second))
    if not count:
        return 0.0
    return sum(a == b for a, b in zip(first, second, strict=False)) / count


def same_data(found: dict[int, Feed]) -> bool | None:
    """Say whether an index means the same sample on all ranks; None if no two ranks had the same.

    Augmentation changes contents; labels stay.
    """
    by_rank = []
    for feed in found.values():
        mine: dict[int, tuple[str, str]] = {}
        for one in feed.passes:
            rows = zip(feed.base_indices(one), feed.contents(one), cut(one.labels, 2), strict=False)
            for index, content, label in rows:
                mine.setdefault(index, (content, label))
        by_rank.append(mine)
    contents = labels = shared = 0
    kinds: Counter[str] = Counter()
    for first, second in combinations(by_rank, 2):
        for index in first.keys() & second.keys():
            shared += 1
            contents += first[index][0] == second[index][0]
            labels += first[index][1] == second[index][1]
            kinds[first[index][1]] += 1
    if shared < 8:
        return None
    told_apart = len(kinds) > 1 and max(kinds.values()) < 0.95 * shared
    return max(contents, labels if told_apart else 0) >= _ALIKE * shared


def by_index(found: dict[int, Feed]) -> bool:
    """Say whether ranks are to be compared by indices."""
    sizes = {feed.loader.base_size for feed in found.values()}
    known = all(feed.first.indices for feed in found.values())
    return known and len(sizes) == 1 and same_data(found) is not False


def keys_of(feed: Feed, one: Pass, *, indices: bool) -> list[object]:
    """Return what tells samples of a pass from each other."""
    return list(feed.base_indices(one)) if indices else list(feed.contents(one))


def first_keys(found: dict[int, Feed], *, indices: bool) -> dict[int, list[object]]:
    """Return the samples of each rank's first pass."""
    return {rank: keys_of(feed, feed.first, indices=indices) for rank, feed in found.items()}


def same_samples(found: dict[int, Feed]) -> bool:
    """Say whether all ranks trained on the same samples in the same order."""
    indices = by_index(found) and same_data(found) is True
    rows = list(first_keys(found, indices=indices).values())
    if min(map(len, rows)) < _FEWEST:
        return False
    if not indices and max(map(repeats, rows)) > 0.5:
        return False  # a synthetic batch that is used again and again
    return all(alike(first, second) >= _ALIKE for first, second in combinations(rows, 2))


@check(
    "FD201",
    severity="error",
    title="Every rank trains on the same samples",
    meaning="Your {workers:worker} all compute the gradient of the same samples. Averaging equal "
    "gradients changes nothing: {workers:worker} do the work of one. An epoch takes as long as "
    "with one, or sees 1/{workers} of the data.",
    fix={
        "torch": "sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())\n"
        "loader = DataLoader(dataset, batch_size=32, sampler=sampler)",
        "ddp": "sampler = DistributedSampler(dataset)\n"
        "loader = DataLoader(dataset, batch_size=32, sampler=sampler)",
        "accelerate": "loader = accelerator.prepare(loader)",
        "lightning": "Trainer(use_distributed_sampler=True)   # the default",
        "keras": "x, y = x[hvd.rank()::hvd.size()], y[hvd.rank()::hvd.size()]",
        "tensorflow": "dataset = dataset.shard(hvd.size(), hvd.rank())   # before shuffle",
    },
    needs="indices or contents of the samples that at least two ranks trained on",
    covers=_KERAS,
    explains=("FD202", "FD207"),
    cheap=True,
)
def every_rank_the_same(job: Job) -> Iterator[Seen]:
    """Compare the first passes sample by sample."""
    several(job)
    try:
        found = trained(job)
    except NotChecked:
        yield from _the_same_hashes(job)
        return
    rows = first_keys(found, indices=by_index(found))
    if min(map(len, rows.values())) < _FEWEST:
        raise NotChecked(f"fewer than {_FEWEST} samples of each rank were seen")
    if same_samples(found):
        count = min(map(len, rows.values()))
        yield Seen(
            text=f"All ranks trained on the same {count} samples, in the same order.",
            values={
                rank: f"{plural(feed.first.samples, 'sample')} in the first epoch, "
                f"sampler {feed.loader.samplers[-1] if feed.loader.samplers else 'none'}"
                for rank, feed in found.items()
            },
            where=next(iter(found.values())).loader.where,
            severity="note" if all(map(_made_up, found.values())) else None,
        )
    elif not by_index(found) and all(repeats(row) > 0.5 for row in rows.values()):
        raise NotChecked("the same samples come again and again, as in a benchmark")


def _made_up(feed: Feed) -> bool:
    """Say whether samples look like random numbers that a toy program draws for each step.

    Processes of PyTorch that set no seed draw the same ones.
    """
    kept = feed.contents(feed.first)
    return feed.loader.kind_of == "calls" and not feed.first.discrete and not repeats(kept)


def _the_same_hashes(job: Job) -> Iterator[Seen]:
    """Compare the hashes of first samples that every launch records."""
    hashes = {rank.rank: rank.sample_hashes for rank in job.training if rank.sample_hashes}
    if len(hashes) < 2:
        raise NotChecked("the samples of training were not seen on two ranks")
    rows = list(hashes.values())
    if max(map(repeats, rows)) > 0.5:
        raise NotChecked("the same samples come again and again, as in a benchmark")
    if min(map(len, rows)) >= _FEWEST and all(
        alike(a, b) >= _ALIKE for a, b in combinations(rows, 2)
    ):
        yield Seen(
            text=f"All ranks trained on the same first {min(map(len, rows))} samples.",
            values={rank: f"first sample {row[0][:8]}" for rank, row in hashes.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How much the parts of ranks have in common."""

    share: float
    """Of the smaller part, for the two ranks with the most in common."""
    count: int
    natural: float
    """Share of repeats within a rank."""
    whole: bool
    expected: float
    """Samples in common, if each rank drew from all data by itself."""


def overlap(found: dict[int, Feed], *, indices: bool) -> Overlap:
    """Compare the samples of the ranks' first passes.

    Raises:
        NotChecked: too few samples were seen.
    """
    rows = first_keys(found, indices=indices)
    if min(map(len, rows.values())) < _FEWEST:
        raise NotChecked(f"fewer than {_FEWEST} samples of each rank were seen")
    share = count = 0.0
    for first, second in combinations(rows.values(), 2):
        common = len(set(first) & set(second))
        if common / min(len(set(first)), len(set(second))) > share:
            share = common / min(len(set(first)), len(set(second)))
            count = common
    sizes = sorted(len(row) for row in rows.values())
    total = max(feed.loader.base_size or 0 for feed in found.values())
    return Overlap(
        share=share,
        count=int(count),
        natural=max(map(repeats, rows.values())),
        whole=all(feed.first.whole for feed in found.values()),
        expected=sizes[0] * sizes[1] / total if total else 0.0,
    )


@check(
    "FD202",
    severity="warning",
    title="Every rank goes over the whole data",
    meaning="The data are not divided: each of your {workers:worker} draws from all of them in an "
    "order of its own. What is called an epoch trains on every sample {workers} times, and takes "
    "as long as with one worker.",
    fix={
        "torch": "sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())\n"
        "loader = DataLoader(dataset, batch_size=32, sampler=sampler)",
        "ddp": "sampler = DistributedSampler(dataset)\n"
        "loader = DataLoader(dataset, batch_size=32, sampler=sampler)",
        "accelerate": "loader = accelerator.prepare(loader)",
        "lightning": "Trainer(use_distributed_sampler=True)   # the default",
        "keras": "x, y = x[hvd.rank()::hvd.size()], y[hvd.rank()::hvd.size()]",
        "tensorflow": "dataset = dataset.shard(hvd.size(), hvd.rank())   # before shuffle",
    },
    needs="indices or contents of the samples that at least two ranks trained on",
    covers=_KERAS,
)
def whole_data_everywhere(job: Job) -> Iterator[Seen]:
    """Look for samples that two ranks trained on in their first epochs."""
    found = trained(job)
    if any(feed.loader.replacement for feed in found.values()):
        raise NotChecked("samples are drawn with replacement")
    indices = by_index(found)
    seen = overlap(found, indices=indices)
    if same_samples(found):
        return
    divided = all((feed.loader.replicas or 1) > 1 for feed in found.values())
    # Each rank repeats samples as often as it shares them with others: it draws with replacement.
    if seen.count <= job.workers or seen.share < max(3 * seen.natural, 0.01):
        if indices and not divided and 0 < seen.expected < 5 and not seen.whole:
            raise NotChecked("too few samples were seen to tell whether ranks share any")
        return
    if _parts_of_another_order(found, seen, indices=indices):
        return
    yield Seen(
        text=f"{percent(seen.share)} of the samples that a rank trained on in its first epoch, as "
        "far as it was seen, another rank had too.",
        values={
            rank: f"{plural(feed.first.samples, 'sample')} of "
            f"{brief(feed.loader.dataset_size) if feed.loader.dataset_size else 'unknown many'}"
            for rank, feed in found.items()
        },
        where=next(iter(found.values())).loader.where,
        severity=None if job.framework in _TORCH or _same_work(job) is False else "note",
    )


def _same_work(job: Job) -> bool | None:
    """Say whether Keras was asked for less work per worker, compared with one worker alone.

    Programs that shuffle on every rank may divide epochs or steps by the workers.
    """
    if job.alone is None:
        return None
    work = []
    for launch in (job, job.alone):
        total = 0.0
        for rank in launch.training:
            feed = next(iter(feeds(rank, training=True)), None)
            fits = rank.facts(Fit)
            if feed is None or not fits or not feed.first.sizes:
                return None
            fit = fits[-1]
            if not fit.epochs or not fit.steps:
                return None
            total += fit.epochs * fit.steps * feed.first.sizes[0][0]
        work.append(total)
    return work[0] < 1.5 * work[1] if work[1] else None


def _parts_of_another_order(found: dict[int, Feed], seen: Overlap, *, indices: bool) -> bool:
    """Say whether ranks divide the data, but each an order of its own."""
    divided = all((feed.loader.replicas or 1) > 1 for feed in found.values())
    if not indices and divided:
        return True
    return not indices and seen.whole and seen.share < _ALIKE


@check(
    "FD203",
    severity="warning",
    title="Every epoch has the same order",
    meaning="The order of the samples was shuffled once, and is the same in every epoch. Training "
    "usually converges worse, and every rank sees the same part of the data for good.",
    fix={
        "torch": "for epoch in range(epochs):\n    sampler.set_epoch(epoch)\n    for batch in "
        "loader: ...",
        "keras": "dataset.shuffle(10_000, reshuffle_each_iteration=True)",
    },
    needs="the order of indices in two epochs",
    covers=_TORCH,
)
def same_order(job: Job) -> Iterator[Seen]:
    """Compare the indices of one epoch with those of the next."""
    several(job)
    compared = 0
    for rank in job.training:
        for feed in feeds(rank, training=True)[:1]:
            for before, after in pairwise(feed.passes):
                count = min(len(before.indices), len(after.indices))
                if count < _FEWEST:
                    continue
                compared += 1
                first, second = before.indices[:count], after.indices[:count]
                if first == second and feed.loader.shuffle and not _ascending(first):
                    yield Seen(
                        text=f"The first {count} samples of epoch {after.number + 1} came in the "
                        f"order of epoch {before.number + 1}, which is shuffled.",
                        values={rank.rank: f"samples {listed([str(i) for i in first[:4]])}, ..."},
                        step=after.begin,
                        where=feed.loader.where,
                    )
                    return
    if not compared:
        raise NotChecked("no two epochs with their indices were seen; try --epochs 2")


def _ascending(items: Sequence[int]) -> bool:
    return sum(a <= b for a, b in pairwise(items)) >= 0.95 * (len(items) - 1)


@check(
    "FD204",
    severity="warning",
    title="Samples are left out",
    meaning="A part of the data is never trained on by any of your {workers:worker}: parts that do "
    "not add up to the whole, or last batches that are dropped.",
    fix={
        "torch": "sampler = DistributedSampler(dataset, drop_last=False)   # pads instead\n"
        "loader = DataLoader(dataset, batch_size=32, sampler=sampler, drop_last=False)",
    },
    needs="all indices of a whole epoch of every rank",
    covers=_TORCH,
)
def left_out(job: Job) -> Iterator[Seen]:
    """Compare what all ranks together had in whole epochs with the size of the data set."""
    found = trained(job)
    if not by_index(found) or len(found) < job.workers:
        raise NotChecked("the indices of all ranks in the same data were not seen")
    whole = {
        rank: [one for one in feed.passes if one.whole and len(one.indices) == one.samples]
        for rank, feed in found.items()
    }
    if not all(whole.values()):
        raise NotChecked("no whole epoch of every rank was seen")
    if any(feed.loader.replacement or _draws_a_part(feed) for feed in found.values()):
        raise NotChecked("the script's sampler chooses which samples are trained on")
    loaders = [feed.loader for feed in found.values()]
    subsets = {loader.subset for loader in loaders}
    if len(subsets) == 1:
        total = max(loader.dataset_size or 0 for loader in loaders)
    else:
        # Each rank has a Subset of its own: together with the validation they are the whole.
        held = [f.loader for r in job.ranks for f in feeds(r, training=False)]
        aside = {at for one in held if one.base == loaders[0].base for at in one.subset or ()}
        total = (loaders[0].base_size or 0) - len(aside)
    if not total:
        raise NotChecked("the data set has no length")
    first = set().union(*(found[r].base_indices(each[0]) for r, each in whole.items()))
    ever = set().union(*(found[r].base_indices(one) for r, each in whole.items() for one in each))
    epochs = min(map(len, whole.values()))
    missing, never = 1 - len(first) / total, 1 - len(ever) / total
    if missing > 0.1 or (never > 0.02 and epochs > 1) or never > 0.05:
        yield Seen(
            text=f"{total - len(first)} of {total} samples ({percent(missing)}) were not trained "
            f"on in the first epoch, {total - len(ever)} in none of {plural(epochs, 'epoch')}.",
            values={
                rank: f"{plural(found[rank].first.samples, 'sample')}"
                f"{', drop_last' if found[rank].loader.drop_last else ''}"
                for rank in found
            },
            where=loaders[0].where,
        )


_ALL_SAMPLES = ("RandomSampler", "SequentialSampler", "BatchSampler", "DistributedSampler")


def _draws_a_part(feed: Feed) -> bool:
    """Say whether a sampler may leave samples out on purpose: only known ones do not."""
    return any(
        name not in _ALL_SAMPLES and "Shard" not in name and "Seedable" not in name
        for name in feed.loader.samplers
    )


@check(
    "FD205",
    severity="warning",
    title="Samples come twice in an epoch",
    meaning="The same samples are trained on several times per epoch: every loader process reads "
    "the whole stream, or padding fills much of it. The epoch is longer than the data, and some "
    "samples count more.",
    fix={
        "torch": "def __iter__(self):   # of the IterableDataset\n"
        "    info = torch.utils.data.get_worker_info()\n"
        "    parts, mine = info.num_workers * size, info.id * size + rank\n"
        "    yield from itertools.islice(self.samples, mine, None, parts)",
    },
    needs="indices or contents of the samples of one epoch",
    covers=_KERAS,
)
def come_twice(job: Job) -> Iterator[Seen]:
    """Look for repeats within a rank's epoch, and for padding."""
    found = trained(job)
    looked = False
    for rank, feed in found.items():
        loader, one = feed.loader, feed.first
        if loader.replacement or loader.kind_of == "calls":
            continue
        keys: list[object] = list(one.indices) or list(feed.contents(one))
        if len(keys) < _FEWEST:
            continue
        looked = True
        share = repeats(keys)
        if one.indices or loader.kind_of != "loader":
            continue
        distinct = len(set(keys))
        if share > 0.3 and distinct > 8 and loader.iterable:
            processes = f" by {loader.workers} loader processes" if loader.workers > 1 else ""
            yield Seen(
                text=f"{percent(share)} of the samples in an epoch were there before: the stream "
                f"was read more than once{processes}.",
                values={rank: f"{len(keys)} samples, {distinct} of them distinct"},
                where=loader.where,
                severity="error" if loader.workers > 1 else None,
            )
            return
    if by_index(found) and all(feed.first.whole for feed in found.values()):
        rows = first_keys(found, indices=True)
        everything = [key for row in rows.values() for key in row]
        padding = repeats(everything)
        divided = all((feed.loader.replicas or 1) > 1 for feed in found.values())
        looked = True
        if (
            divided
            and 0.05 < padding < 0.45
            and not any(feed.loader.replacement for feed in found.values())
        ):
            yield Seen(
                text=f"{percent(padding)} of the samples of an epoch are repeats that fill up the "
                "parts.",
                values={rank: plural(len(row), "sample") for rank, row in rows.items()},
                where=next(iter(found.values())).loader.where,
            )
    if not looked:
        raise NotChecked("neither indices nor contents of an epoch were seen")


def usual_batch(one: Pass) -> int | None:
    """Return the size that most batches of a pass have; None where sizes vary."""
    counts: Counter[int] = Counter()
    for size, count in one.sizes:
        counts[size] += count
    if not counts:
        return None
    size, count = counts.most_common(1)[0]
    return size if count >= 0.6 * counts.total() else None


@check(
    "FD206",
    severity="warning",
    title="Ranks have unequal parts",
    meaning="Gradients of your {workers:worker} are averaged with equal weight, while some have "
    "fewer samples: those samples count more. Ranks with less wait, run out of data first, or "
    "train on some samples more often.",
    fix={
        "torch": "sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())",
        "ddp": "sampler = DistributedSampler(dataset)   # equal parts, padded",
        "keras": "model.fit(hvd.shard((x, y), batch_size=32))   # equal parts",
    },
    needs="samples of a whole epoch of at least two ranks, or of their batches",
    covers=_KERAS,
)
def unequal_parts(job: Job) -> Iterator[Seen]:
    """Compare samples per epoch, and per batch."""
    found = trained(job)
    usual = {rank: size for rank, feed in found.items() if (size := usual_batch(feed.first))}
    counts = {rank: feed.first.samples for rank, feed in found.items() if feed.first.whole}
    if len(set(usual.values())) > 1 and min(usual.values()) < 0.95 * max(usual.values()):
        yield Seen(
            text=f"The ranks' batches have {min(usual.values())} to {max(usual.values())} samples.",
            values={rank: f"batches of {size}" for rank, size in usual.items()},
            where=next(iter(found.values())).loader.where,
        )
        return
    if len(counts) < 2:
        if len(usual) < 2:
            raise NotChecked("no whole epoch of two ranks was seen")
        return
    least, most = min(counts.values()), max(counts.values())
    if most - least > max(0.03 * most, job.workers):
        yield Seen(
            text=f"In the first epoch the ranks had {least} to {most} samples.",
            values={rank: plural(count, "sample") for rank, count in counts.items()},
            where=next(iter(found.values())).loader.where,
        )


@check(
    "FD207",
    severity="error",
    title="Each rank divides another order",
    meaning="The ranks divide the data, but each sees them in another order: an unsorted list of "
    "files, or one that every rank shuffles for itself. Parts overlap, and other samples belong to "
    "nobody.",
    fix={
        "torch": "files = sorted(glob.glob(pattern))   # the same on every rank and host\n"
        "random.Random(0).shuffle(files)          # with a seed, before files[rank::size]",
    },
    needs="contents of the samples that at least two ranks trained on",
    covers=_KERAS,
)
def parts_of_another_order(job: Job) -> Iterator[Seen]:
    """Find ranks that divide by index, or have only parts, and share samples by content."""
    found = trained(job)
    if same_samples(found):
        return
    if any(feed.loader.replacement for feed in found.values()):
        raise NotChecked("samples are drawn with replacement")
    if not all(feed.first.contents for feed in found.values()):
        raise NotChecked("the contents of samples were not seen")
    rows = first_keys(found, indices=True)
    known = all(rows.values())
    divided = known and all((feed.loader.replicas or 1) > 1 for feed in found.values())
    if by_index(found) and not (divided and same_data(found) is None):
        return
    seen = overlap(found, indices=False)
    if seen.count <= job.workers or seen.share < max(3 * seen.natural, 0.05):
        return
    if divided or _parts_of_another_order(found, seen, indices=False):
        yield Seen(
            text=f"The ranks divide the data, and {percent(seen.share)} of a rank's samples are "
            "another rank's too.",
            values={
                rank: f"{plural(len(set(row)), 'sample')}, the first is {row[0]}"
                for rank, row in first_keys(found, indices=False).items()
            },
            where=next(iter(found.values())).loader.where,
        )


@check(
    "FD208",
    severity="error",
    title="Training and validation overlap",
    meaning="Samples of the validation are trained on as well, by some rank. Its accuracy says "
    "nothing about new data.",
    fix={
        "torch": "generator = torch.Generator().manual_seed(0)   # the same split on every rank\n"
        "train, valid = random_split(dataset, [0.9, 0.1], generator=generator)\n"
        "sampler = DistributedSampler(train)   # split first, then divide",
        "keras": "# split once, with a seed, before dividing between ranks",
    },
    needs="indices or contents of samples of training and of validation",
    covers=_KERAS,
)
def validation_overlaps(job: Job) -> Iterator[Seen]:
    """Look for samples of any rank's validation among those of any rank's training."""
    several(job)
    training = [feed for rank in job.training for feed in feeds(rank, training=True)]
    evaluated = [feed for rank in job.ranks for feed in feeds(rank, training=False)]
    if not training:
        raise NotChecked("the samples of training were not seen")
    # A look at the training data themselves is no validation.
    own = {(f.loader.dataset, f.loader.base, f.loader.dataset_size, _parts(f)) for f in training}
    evaluated = [
        f
        for f in evaluated
        if (f.loader.dataset, f.loader.base, f.loader.dataset_size, _parts(f)) not in own
        or f.loader.kind_of != "loader"
    ]
    if not evaluated:
        raise NotChecked("the samples of a validation were not seen")
    worst: tuple[float, Feed, int, int] | None = None
    for feed in evaluated:
        for by_place in (True, False):
            if by_place and feed.loader.base is None:
                continue
            known: set[object] = set()
            natural = 0.0
            for each in training:
                if by_place and (each.loader.base, each.loader.base_size) != (
                    feed.loader.base,
                    feed.loader.base_size,
                ):
                    continue
                for one in each.passes:
                    keys = keys_of(each, one, indices=by_place)
                    known.update(keys)
                    natural = max(natural, repeats(keys))
            mine = {key for one in feed.passes for key in keys_of(feed, one, indices=by_place)}
            common = len(mine & known)
            if len(mine) < 8 or common < 4 or natural > 0.2:
                continue
            share = common / len(mine)
            if share > max(0.02, 3 * natural) and (worst is None or share > worst[0]):
                worst = share, feed, common, len(mine)
    if worst is None:
        return
    share, feed, common, count = worst
    if share > 0.98 and feed.loader.kind_of == "evaluation":
        return  # a model that is asked about its training data
    yield Seen(
        text=f"{common} of {count} samples of the validation ({percent(share)}) were trained on.",
        values={feed.rank: f"validation of {feed.loader.dataset or 'arrays'}"},
        where=feed.loader.where,
    )


def _parts(feed: Feed) -> int:
    return hash(feed.loader.subset)


@check(
    "FD209",
    severity="error",
    title="Values that are not finite",
    meaning="A batch has NaN or infinite values. The gradient of one rank becomes NaN, the average "
    "with it, and the weights of all your {workers:worker} are lost.",
    fix={
        "torch": "assert torch.isfinite(inputs).all(), paths   # in the data set: find the file\n"
        "inputs = torch.nan_to_num(inputs)",
    },
    needs="values of the first batches of every rank",
    covers=_KERAS,
    explains=("FD320",),
)
def bad_values(job: Job) -> Iterator[Seen]:
    """Look for batches with NaN."""
    bad = {rank.rank: rank.facts(BadBatch) for rank in job.training}
    if not any(rank.lines("pass") for rank in job.ranks):
        raise NotChecked("no batches were seen")
    bad = {rank: found for rank, found in bad.items() if found}
    if not bad:
        return
    first = min((one for found in bad.values() for one in found), key=lambda one: one.step)
    # NaN on all ranks at once may stand for values that are missing, which the model replaces.
    at_first = [rank for rank, found in bad.items() if found[0].step == first.step]
    together = len(at_first) == len(job.training)
    yield Seen(
        text=f"{plural(sum(map(len, bad.values())), 'batch')} on {say_ranks(bad)} had values that "
        "are not finite.",
        values={rank: f"{one[0].values} values in step {one[0].step}" for rank, one in bad.items()},
        step=first.step,
        where=first.where,
        severity="warning" if together else "error",
    )


def _randoms(job: Job) -> list[tuple[Rank, Random]]:
    found = [(rank, one) for rank in job.ranks for one in rank.facts(Random)]
    trains = {
        (rank.rank, one.loader) for rank in job.ranks for one in rank.facts(Pass) if one.training
    }
    return [(rank, one) for rank, one in found if (rank.rank, one.loader) in trains]


@check(
    "FD210",
    severity="warning",
    title="Loader processes augment alike",
    meaning="The loader processes of a worker draw the same random numbers: each crop, flip or "
    "noise comes once per process, so that batches have less variety than it seems.",
    fix={
        "torch": "def seed(worker_id):   # as worker_init_fn\n"
        "    numpy.random.seed(torch.initial_seed() % 2**32)   # differs by process and epoch",
    },
    needs="random numbers of at least two loader processes",
    covers=_TORCH,
)
def processes_augment_alike(job: Job) -> Iterator[Seen]:
    """Compare the generators that are drawn from, between loader processes of one pass."""
    looked = False
    by_pass: dict[tuple[int, int, int], list[Random]] = {}
    for rank, one in _randoms(job):
        if one.worker >= 0:
            by_pass.setdefault((rank.rank, one.loader, one.number), []).append(one)
    for (rank_number, loader, _), found in by_pass.items():
        if len(found) < 2:
            continue
        looked = True
        for name in sorted({name for one in found for name in one.used}):
            states = Counter(one.states.get(name) for one in found if name in one.used)
            most = max(states.values())
            if most > 1:
                yield Seen(
                    text=f"{most} of {len(found)} loader processes began with the same random "
                    f"numbers ({_generator(name)}).",
                    values={rank_number: f"{_generator(name)} is the same in {most} processes"},
                    where=_loader_where(job, rank_number, loader),
                )
                return
    if not looked:
        raise NotChecked("no two loader processes were seen")


def _generator(name: str) -> str:
    known = {"numpy": "numpy.random", "python": "random", "torch": "torch's"}
    return known.get(name, f"the data set's {name}")


def _loader_where(job: Job, rank: int, number: int) -> str:
    return next(
        (
            one.where
            for each in job.ranks
            if each.rank == rank
            for one in each.facts(Loader)
            if one.number == number
        ),
        "",
    )


@check(
    "FD211",
    severity="warning",
    title="Every epoch augments alike",
    meaning="Augmentation begins with the same random numbers in every epoch: each epoch sees the "
    "same crops, flips or noise again.",
    fix={
        "torch": "def seed(worker_id):   # as worker_init_fn: no constant, no worker_id alone\n"
        "    numpy.random.seed(torch.initial_seed() % 2**32)\n"
        "# a generator of the data set itself is copied anew into each epoch's processes",
    },
    needs="random numbers at the beginning of two epochs",
    covers=_TORCH,
)
def epochs_augment_alike(job: Job) -> Iterator[Seen]:
    """Compare the generators that are drawn from, between epochs."""
    passes: dict[tuple[int, str, int], list[Random]] = {}
    for rank, one in _randoms(job):
        where = _loader_where(job, rank.rank, one.loader) or str(one.loader)
        passes.setdefault((rank.rank, where, one.worker), []).append(one)
    looked = False
    for (rank_number, where, worker), found in passes.items():
        for before, after in pairwise(found):
            looked = True
            for name in sorted(set(before.used) & set(after.used)):
                if before.states.get(name) == after.states.get(name):
                    who = f"loader process {worker}" if worker >= 0 else "the worker"
                    yield Seen(
                        text=f"In {who}, epochs {before.number + 1} and {after.number + 1} began "
                        f"with the same random numbers ({_generator(name)}).",
                        values={rank_number: f"{_generator(name)} {before.states[name]} twice"},
                        where=where if ":" in where else "",
                    )
                    return
    if not looked:
        raise NotChecked("no two epochs of a loader were seen; try --epochs 2")
    drawn = {(rank.rank, one.loader) for rank, one in _randoms(job) if one.used}
    for rank in job.training:
        for feed in feeds(rank, training=True)[:1]:
            same, count = _same_contents(feed)
            if (rank.rank, feed.loader.number) in drawn and count >= 32 and same > 0.95 * count:
                yield Seen(
                    text=f"The data set draws random numbers, and {same} of {count} samples were "
                    "the same in two epochs.",
                    values={rank.rank: f"{same} of {count} samples the same"},
                    where=feed.loader.where,
                )
                return


def _same_contents(feed: Feed) -> tuple[int, int]:
    """Return how many samples of two epochs had the same content, and how many came in both."""
    before: dict[int, str] = {}
    same = count = 0
    for one in feed.passes:
        mine = dict(zip(one.indices, feed.contents(one), strict=False))
        shared = before.keys() & mine.keys()
        count += len(shared)
        same += sum(before[index] == mine[index] for index in shared)
        before |= mine
    return same, count


@check(
    "FD212",
    severity="error",
    title="A sampler for another world",
    meaning="The sampler divides the data into another number of parts than there are workers, "
    "gives two ranks the same part, or shuffles on every rank by another seed. Some samples are "
    "trained on by several of your {workers:worker}, others by none.",
    fix={
        "torch": "sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())\n"
        "# size and rank of the whole job, not of the host; the same seed everywhere",
        "ddp": "sampler = DistributedSampler(dataset)   # takes both from the process group",
    },
    needs="number of parts, part and seed of each rank's sampler",
    covers=_TORCH,
    explains=("FD201", "FD202", "FD204", "FD205", "FD207"),
)
def sampler_of_another_world(job: Job) -> Iterator[Seen]:
    """Compare samplers that divide data with ranks and size of the job."""
    found = trained(job)
    loaders = {rank: feed.loader for rank, feed in found.items()}
    if all(one.replicas is None for one in loaders.values()):
        raise NotChecked("no sampler that divides data was seen")
    parts = {rank: one.replicas for rank, one in loaders.items() if one.replicas is not None}
    mine = {rank: one.sampler_rank for rank, one in loaders.items() if one.replicas is not None}
    seeds = {rank: repr(one.sampler_seed) for rank, one in loaders.items() if one.replicas}
    what = ""
    if any(count != job.workers for count in parts.values()):
        count = next(count for count in parts.values() if count != job.workers)
        what = (
            f"A sampler divides into {plural(count, 'part')} for {plural(job.workers, 'worker')}."
        )
    elif len(set(mine.values())) < len(mine):
        what = "Two ranks have the same part."
    elif len(set(seeds.values())) > 1 and any(one.shuffle for one in loaders.values()):
        what = "The ranks shuffle by different seeds."
    if what:
        yield Seen(
            text=what,
            values={
                rank: f"part {one.sampler_rank} of {one.replicas}, seed {one.sampler_seed}"
                for rank, one in loaders.items()
            },
            where=next(iter(loaders.values())).where,
        )


@check(
    "FD213",
    severity="warning",
    title="The framework changed your sampler",
    meaning="The script gave its loader a sampler of its own, and the framework replaced it, or "
    "divided once more what the script had divided between {workers:worker}: weights and order are "
    "lost, or each rank has a part of its part.",
    fix={
        "lightning": "Trainer(use_distributed_sampler=False)   # with a sampler that divides",
        "accelerate": "loader = DataLoader(dataset, shuffle=True)   # no DistributedSampler:\n"
        "loader = accelerator.prepare(loader)             # this divides",
    },
    needs="samplers that the script made, and those that training used",
    covers=("accelerate", "lightning"),
    explains=("FD204",),
)
def sampler_changed(job: Job) -> Iterator[Seen]:
    """Find samplers that training lacks, and data that are divided twice."""
    found = trained(job)
    for feed in found.values():
        one = feed.loader
        what = ""
        if one.asked:
            used = one.samplers[-1] if one.samplers else "none"
            what = f"The script's {one.asked[-1]} was replaced by {used}."
        elif len(one.dividers) > 1:
            what = f"Both {listed(list(one.dividers))} divide the data."
        elif one.own and one.dividers and one.own not in one.dividers and _a_part(feed, job):
            what = f"The script's {one.own} gives a part, and {one.dividers[0]} divides it again."
        if what:
            yield Seen(
                text=what,
                values={
                    rank: f"{plural(each.first.samples, 'sample')} of "
                    f"{each.loader.dataset_size or 0} by {listed(list(each.loader.samplers))}"
                    for rank, each in found.items()
                },
                where=one.where,
            )
            return


def _a_part(feed: Feed, job: Job) -> bool:
    """Say whether the script's own sampler is as long as a part, not as the data."""
    length, size = feed.loader.own_length, feed.loader.dataset_size
    return bool(length and size) and (length or 0) <= 1.1 * (size or 0) / job.workers


@check(
    "FD214",
    severity="warning",
    title="Epochs did not get shorter",
    meaning="With {workers:worker} an epoch trains on {workers} times as many samples as with one: "
    "steps per epoch, or the data, were not divided. The job takes as long as on one worker.",
    fix={
        "torch": "sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())\n"
        "steps_per_epoch = len(loader)",
        "ddp": "sampler = DistributedSampler(dataset)\nsteps_per_epoch = len(loader)",
        "keras": "model.fit(..., steps_per_epoch=steps // hvd.size())",
    },
    needs="samples per epoch of all workers together, and of one worker alone",
    covers=_KERAS,
    replay=True,
)
def epochs_as_long(job: Job) -> Iterator[Seen]:
    """Compare the samples of an epoch with those of the replay."""
    several(job)
    assert job.alone is not None
    together, alone = _epoch_samples(job), _epoch_samples(job.alone)
    if together is None or alone is None:
        raise NotChecked("no whole epoch was seen, with all workers and with one")
    if sum(together.values()) > 1.5 * sum(alone.values()) and _same_work(job) is not True:
        yield Seen(
            text=f"An epoch of all ranks has {sum(together.values())} samples, with one worker "
            f"{sum(alone.values())}.",
            values={rank: plural(count, "sample") for rank, count in together.items()},
            where=next(
                (f.loader.where for r in job.training for f in feeds(r, training=True)[:1]), ""
            ),
        )


def _epoch_samples(job: Job) -> dict[int, int] | None:
    """Return by rank how many samples its first whole epoch has; as Keras was asked, if it was."""
    found = {}
    for rank in job.training:
        feed = next(iter(feeds(rank, training=True)), None)
        if feed is None:
            return None
        fit = rank.last(Fit)
        whole = next((one for one in feed.passes if one.whole), None)
        if whole is not None:
            found[rank.rank] = whole.samples
        elif fit is not None and fit.steps and feed.first.sizes:
            found[rank.rank] = fit.steps * feed.first.sizes[0][0]
        else:
            return None
    return found if len(found) == job.workers else None


@check(
    "FD215",
    severity="error",
    title="Splits differ between ranks",
    meaning="Each rank drew its own split of the data. What one rank validates on, another trains "
    "on; parts of the training data overlap.",
    fix={
        "torch": "generator = torch.Generator().manual_seed(0)   # the same on every rank\n"
        "train, valid = random_split(dataset, [0.9, 0.1], generator=generator)",
    },
    needs="indices of Subsets on at least two ranks",
    covers=_TORCH,
    explains=("FD202", "FD204", "FD205", "FD207", "FD208"),
)
def splits_differ(job: Job) -> Iterator[Seen]:
    """Compare the Subsets that ranks train on."""
    found = trained(job)
    subsets = {
        rank: set(feed.loader.subset)
        for rank, feed in found.items()
        if feed.loader.subset is not None
    }
    if len(subsets) < 2:
        raise NotChecked("no Subset was trained on")
    for (_, first), (_, second) in combinations(subsets.items(), 2):
        common = len(first & second) / max(1, min(len(first), len(second)))
        if first != second and common > 0.02 and abs(len(first) - len(second)) <= 1:
            yield Seen(
                text=f"The ranks train on different Subsets of one data set; {percent(common)} of "
                "their samples are the same.",
                values={
                    rank: f"{plural(len(mine), 'sample')}, {listed([str(i) for i in row[:3]])}, ..."
                    for rank, mine in subsets.items()
                    if (row := found[rank].loader.subset)
                },
                where=next(iter(found.values())).loader.where,
            )
            return


_FEW_STEPS = 20
"""Steps of an epoch below which averages over workers bring little."""


@check(
    "FD216",
    severity="note",
    title="A small data set",
    meaning="An epoch has few steps: more workers make it shorter still, while every update costs "
    "an exchange. Larger gains come from longer training on one worker.",
    fix={"torch": "farandole study -- python train.py   # says how many workers pay"},
    needs="steps of a whole epoch",
    covers=_KERAS,
    advice=True,
)
def small_data(job: Job) -> Iterator[Seen]:
    """Count the batches of an epoch."""
    found = trained(job)
    counts = {r: sum(n for _, n in f.first.sizes) for r, f in found.items() if f.first.whole}
    if not counts:
        raise NotChecked("no whole epoch was seen")
    if min(counts.values()) < _FEW_STEPS:
        yield Seen(
            text=f"An epoch has {plural(min(counts.values()), 'batch')} per worker.",
            values={rank: plural(count, "batch") for rank, count in counts.items()},
            where=next(iter(found.values())).loader.where,
        )
