"""Hosts: what scripts print, the order by age, and exclusion after failures."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.launch.discovery import Answer, DiscoveryScript, Hosts, read_hosts
from farandole.launch.placement import Slots


def slots(text: str) -> tuple[Slots, ...]:
    return read_hosts(text.replace(" ", "\n"), script="hosts.sh")


def test_lines_of_a_script() -> None:
    assert read_hosts("a:2\n\n  b \nc:1\n", script="x", slots_per_host=3) == (
        Slots(name="a", count=2),
        Slots(name="b", count=3),
        Slots(name="c", count=1),
    )
    assert read_hosts("", script="x") == ()
    assert read_hosts("a:1\na:4\n", script="x") == (Slots(name="a", count=4),)


@pytest.mark.parametrize("line", ["a:two", "a:0", "two words", "-oProxyCommand=x", "a,b:2", ":3"])
def test_rubbish_is_shown(line: str) -> None:
    with pytest.raises(UsageError, match=r"hosts\.sh printed .*which is no host") as caught:
        read_hosts(f"a:2\n{line}\n", script="hosts.sh")
    assert repr(line) in str(caught.value)


def test_the_longest_known_hosts_come_first() -> None:
    hosts = Hosts().found(slots("a:1 b:1"))
    hosts = hosts.found(slots("c:1 b:2 a:1"))
    assert [host.name for host in hosts.present] == ["a", "b", "c"]
    assert hosts.present[1].count == 2, "the new number of slots"
    hosts = hosts.found(slots("c:1 b:2")).found(slots("a:1 b:2 c:1"))
    assert [host.name for host in hosts.present] == ["b", "c", "a"], "a was away"


def test_an_excluded_host_stays_excluded_without_a_range() -> None:
    hosts = Hosts().found(slots("a:2 b:2"))
    hosts = hosts.excluding("a", now_s=5.0, cooldown_range_s=None, chance=0.5)
    assert hosts.usable(1e9) == slots("b:2")
    assert hosts.next_return_s(6.0) is None
    assert hosts.found(slots("b:2")).found(slots("a:2 b:2")).usable(1e9) == slots("b:2")
    assert hosts.num_slots(6.0) == 2


def test_an_excluded_host_comes_back_as_a_new_one() -> None:
    hosts = Hosts().found(slots("a:2 b:2"))
    hosts = hosts.excluding("a", now_s=100.0, cooldown_range_s=(10.0, 60.0), chance=0.0)
    assert hosts.next_return_s(100.0) == 120.0
    assert hosts.usable(119.9) == slots("b:2")
    assert hosts.usable(120.0) == slots("b:2 a:2")


def test_each_failure_doubles_the_time_up_to_the_most() -> None:
    hosts, until = Hosts().found(slots("a:2")), []
    for chance in (0.0, 0.0, 1.0, 0.0, 1.0):
        hosts = hosts.excluding("a", now_s=0.0, cooldown_range_s=(10.0, 95.0), chance=chance)
        until.append(hosts.excluded["a"].until_s)
    assert until == [20.0, 40.0, 90.0, 95.0, 95.0]
    for _ in range(2000):
        hosts = hosts.excluding("a", now_s=0.0, cooldown_range_s=(10.0, 95.0), chance=1.0)
    assert hosts.excluded["a"].until_s == 95.0
    assert math.isfinite(hosts.excluded["a"].until_s)


def answer(text: str, folder: Path, *, shell: str = "#!/bin/sh\n") -> Answer:
    path = folder / "hosts.sh"
    path.write_text(f"{shell}{text}\n")
    path.chmod(0o700)
    script = DiscoveryScript((str(path),), slots_per_host=2)
    try:
        script.ask(time.monotonic())
        assert script.asking
        while (found := script.answer(time.monotonic())) is None:
            time.sleep(0.01)
        assert not script.asking
        return found
    finally:
        script.close()


def test_asking_a_script(tmp_path: Path) -> None:
    assert answer("echo a; echo b:1", tmp_path).hosts == slots("a:2 b:1")
    assert answer("echo a", tmp_path, shell="").hosts == slots("a:2"), "no first line"
    assert answer("true", tmp_path).hosts == ()
    failed = answer("echo no network >&2; exit 3", tmp_path)
    assert failed.hosts is None
    assert "hosts.sh exited with code 3: no network" in failed.error
    assert "printed 'a:b'" in answer("echo a:b", tmp_path).error


def test_a_script_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    path = tmp_path / "hosts.sh"
    path.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/child\nwait\n")
    path.chmod(0o700)
    script = DiscoveryScript((str(path),))
    script.ask(0.0)
    deadline = time.monotonic() + 30
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert script.answer(1.0) is None
    found = script.answer(1000.0)
    assert found is not None
    assert "gave no answer in 30 s" in found.error
    stat = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    while stat.exists() and ") Z " not in stat.read_text(errors="replace"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    script.close()
