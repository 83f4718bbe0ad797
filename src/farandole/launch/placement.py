"""Which rank runs on which host: hosts and slots read, ranks packed, host by host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import UsageError
from farandole.format import plural

# What a remote shell gets as one argument; a leading dash would be an option to it.
_HOST = re.compile(r"(\w[\w.-]*@)?(\w[\w.-]*|\[[0-9A-Fa-f:.]+\])", re.ASCII)
# Not that of max_slots= or max-slots=, which Open MPI knows beside it.
_SLOTS = re.compile(r"(?<![\w-])slots\s*=\s*(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """A host and how many workers it may have."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShare:
    """The ranks of one host."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """So many hosts with so many workers each."""

    hosts: int
    workers: int
    """Workers on each host."""

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.hosts * self.workers

    def __str__(self) -> str:
        return f"{self.hosts}x{self.workers}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """All hosts of a job with their ranks, which are numbered host by host."""

    hosts: tuple[HostShare, ...]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return sum(len(share.ranks) for share in self.hosts)

    @property
    def host_names(self) -> tuple[str, ...]:
        """The hosts in order."""
        return tuple(share.name for share in self.hosts)

    @property
    def rank_hosts(self) -> tuple[str, ...]:
        """For each rank the name of its host."""
        return tuple(self.hosts[self.host_number(rank)].name for rank in range(self.size))

    def host_number(self, rank: int) -> int:
        """Return the number of a rank's host."""
        for number, share in enumerate(self.hosts):
            if rank in share.ranks:
                return number
        raise UsageError(f"Rank {rank} is on none of {plural(len(self.hosts), 'host')}.")


def numbered(counts: Iterable[tuple[str, int]]) -> Placement:
    """Number ranks host by host, given how many each host has; those with none are left out."""
    shares, first = [], 0
    for name, number in counts:
        if number:
            shares.append(HostShare(name=name, ranks=tuple(range(first, first + number))))
            first += number
    return Placement(hosts=tuple(shares))


def named_hosts(
    hosts: str | None, hostfile: str | None, environ: Mapping[str, str]
) -> tuple[Slots, ...] | None:
    """Read the hosts that flags or their variables name; None when they name none.

    Raises:
        UsageError: They cannot be read, or are named in two ways.
    """
    if hosts is not None and hostfile is not None:
        raise UsageError(f"-H {hosts} and --hostfile {hostfile} both name hosts. Give one of them.")
    if hosts is not None:
        return parse_hosts(hosts)
    if hostfile is not None:
        return read_hostfile(Path(hostfile))
    # Inside of a worker these say where that runs, not where others should.
    outer = "FARANDOLE_JOB" in environ
    if not outer and (text := environ.get("FARANDOLE_HOSTS")):
        return parse_hosts(text, flag="FARANDOLE_HOSTS")
    if not outer and (text := environ.get("FARANDOLE_HOSTFILE")):
        return read_hostfile(Path(text))
    return None


def parse_hosts(text: str, *, flag: str = "-H") -> tuple[Slots, ...]:
    """Read `h1:2,h2:2`; a host without a number has one slot.

    Raises:
        UsageError: A host cannot be read, has no slots, or comes twice.
    """
    place = f"{flag} {text}" if flag.startswith("-") else f"{flag}={text}"
    found = [_host(part.strip(), place) for part in text.split(",") if part.strip()]
    return _checked(found, place)


def read_hostfile(path: Path) -> tuple[Slots, ...]:
    """Read a host file: a host per line, `h1 slots=2` or `h1:2`; # begins a comment.

    Raises:
        UsageError: The file or a line of it cannot be read, or a host comes twice.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"--hostfile {path} cannot be read: {reason}.") from error
    found = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        place = f"--hostfile {path}, line {number}"
        name = text.split()[0]
        slots = _SLOTS.search(text.removeprefix(name))
        found.append(_host(f"{name}:{slots[1]}" if slots else name, place))
    return _checked(found, f"--hostfile {path}")


def parse_shape(text: str) -> Shape | None:
    """Read `2x4`, hosts x workers on each; None when the text is no such thing.

    Raises:
        UsageError: A number is 0.
    """
    match = re.fullmatch(r"\s*(\d+)\s*x\s*(\d+)\s*", text)
    if match is None:
        return None
    hosts, workers = int(match[1]), int(match[2])
    if not hosts or not workers:
        raise UsageError(f"{text}: give hosts x workers on each, both from 1 up, such as 2x4.")
    return Shape(hosts=hosts, workers=workers)


def pack(slots: Sequence[Slots], num_workers: int, *, flag: str = "-np") -> Placement:
    """Fill host after host; hosts that are not needed are left out.

    Raises:
        UsageError: There are fewer slots than workers.
    """
    total = sum(host.count for host in slots)
    if num_workers > total:
        listed = ", ".join(f"{host.name}:{host.count}" for host in slots)
        raise UsageError(
            f"You asked for {plural(num_workers, 'worker')} ({flag} {num_workers}), but the "
            "hosts have "
            f"{plural(total, 'slot')} ({listed}). Use {flag} {total}, or name more hosts "
            "or slots."
        )
    counts, left = [], num_workers
    for host in slots:
        counts.append((host.name, min(host.count, left)))
        left -= counts[-1][1]
    return numbered(counts)


def spread(slots: Sequence[Slots], shape: Shape) -> Placement:
    """Put the same number of workers on each of the first hosts.

    Raises:
        UsageError: There are fewer hosts, or a host has fewer slots.
    """
    if shape.hosts > len(slots):
        names = ", ".join(host.name for host in slots)
        raise UsageError(
            f"{shape} needs {plural(shape.hosts, 'host')}, but there are {len(slots)} ({names}). "
            "Name more hosts, or use fewer."
        )
    for host in slots[: shape.hosts]:
        if host.count < shape.workers:
            raise UsageError(
                f"{shape} needs {shape.workers} slots on each host, but {host.name} has "
                f"{host.count}. Give it more slots, or use fewer workers per host."
            )
    return numbered((host.name, shape.workers) for host in slots[: shape.hosts])


def _host(text: str, place: str) -> Slots:
    name, colon, count = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, count = text, "1"
    if name.endswith("]") and _HOST.fullmatch(name):
        raise UsageError(
            f"{place}: {name} is an address of IPv6, but hosts are reached by IPv4. Give the "
            "host's name or its IPv4 address."
        )
    if not _HOST.fullmatch(name):
        raise UsageError(f"{place}: {name!r} is not a host name. Write h1:2,h2:2.")
    if not count.isdecimal():
        raise UsageError(f"{place}: {count!r} is not a number of slots. Write {name}:2.")
    if int(count) < 1:
        raise UsageError(
            f"{place}: {name} has {int(count)} slots. Give it at least 1, or leave it out."
        )
    return Slots(name=name, count=int(count))


def _checked(found: list[Slots], place: str) -> tuple[Slots, ...]:
    if not found:
        raise UsageError(f"{place}: there is no host. Write h1:2,h2:2.")
    names = [host.name for host in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"{place}: {name} is there {names.count(name)} times. Name it once, with all its "
                "slots."
            )
    return tuple(found)
