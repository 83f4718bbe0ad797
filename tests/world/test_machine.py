"""A machine described, from the files of one that is written down here."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

import pytest

from farandole.version import __version__
from farandole.world.machine import cpu_name, describe_machine, package_version


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a machine with one processor."""
    files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Xeon (R): 2.3 GHz \nmodel name\t: x\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_the_files_say(root: Path) -> None:
    machine = describe_machine(("numpy", "no-such-package"), root=root)
    assert (machine.cpu, machine.governor) == ("Xeon (R): 2.3 GHz", "powersave")
    assert machine.quota is None
    assert machine.versions["farandole"] == __version__
    assert machine.versions["numpy"]
    assert machine.versions["no-such-package"] is None


def test_this_machine() -> None:
    machine = describe_machine(())
    assert machine.cores == len(os.sched_getaffinity(0))
    assert 1 <= machine.physical_cores <= machine.cores
    assert machine.memory_bytes is not None
    assert machine.memory_bytes > 10**8


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    machine = describe_machine((), root=tmp_path)
    assert machine.governor is None
    assert isinstance(cpu_name(tmp_path), str)


def test_a_package_by_whatever_distribution_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"tensorflow-cpu": "2.21.0"}

    def version(name: str) -> str:
        try:
            return installed[name]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    monkeypatch.setattr(metadata, "version", version)
    assert package_version("tensorflow") == "2.21.0"
    assert package_version("keras") is None
    installed["tensorflow"] = "2.22.0"
    assert package_version("tensorflow") == "2.22.0"
