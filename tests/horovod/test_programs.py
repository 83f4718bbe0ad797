"""Programs written for Horovod, unchanged: on ranks of every number, and by its command line."""

from __future__ import annotations

import importlib
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole.launch import horovod_alias
from tests.conftest import run_cli
from tests.torch.checks import Ranks, on

PROGRAMS = Path(__file__).parent / "programs"
ranks = on((2, "shm"), (3, "shm"), (4, "shm"))


def program(name: str, *arguments: Any) -> Any:
    """Import a program as a worker of `farandole run` would, and run it."""
    import farandole.torch as hvd

    hvd.shutdown()
    os.environ["HOROVOD_SIZE"] = os.environ["FARANDOLE_SIZE"]
    horovod_alias.install()
    return importlib.import_module(f"tests.horovod.programs.{name}").main(*arguments)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """scikit-learn's digits in a file: ranks would take longer to import it than to train."""
    sklearn = find_spec("sklearn")
    if sklearn is None or sklearn.origin is None:
        pytest.skip("pip install scikit-learn runs this")
    rows = np.loadtxt(Path(sklearn.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, images=rows[:, :-1], labels=rows[:, -1])
    return str(path)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "flags",
    [[], ["--fp16-allreduce"], ["--gradient-predivide-factor", "2"], ["--use-adasum"]],
    ids=lambda flags: " ".join(flags) or "plain",
)
def test_digits(ranks: Ranks, digits: str, flags: list[str]) -> None:
    # Whole epochs only of the plain one: the others are to run and to stay in step.
    epochs = 4 if not flags else 1
    arguments = ["--data", digits, "--epochs", str(epochs), *flags]
    found = ranks.run(lambda: program("digits", arguments))
    accuracies = {accuracy for accuracy, _ in found}
    assert len(accuracies) == 1, "averaged over all ranks"
    if not flags:
        assert accuracies.pop() > 0.6, "of ten digits"
    for _, weights in found[1:]:
        assert all((one == other).all() for one, other in zip(weights, found[0][1], strict=True))


@pytest.mark.ranks
def test_process_sets(ranks: Ranks) -> None:
    found = ranks.run(lambda: program("sets"))
    assert [rank for rank, _ in found] == list(range(ranks.size))
    assert [number for _, number in found] == [1 + rank % 2 for rank in range(ranks.size)]


@pytest.mark.ranks
def test_the_benchmark_by_horovodrun(tmp_path: Path) -> None:
    """The whole way: Horovod's flags, the start line, the alias, a timeline of both ranks."""
    flags = ["-np", "2", "--gloo", "--timeline-filename", str(tmp_path / "t.json")]
    done = run_cli("horovodrun", *flags, sys.executable, PROGRAMS / "benchmark.py", timeout_s=100)
    assert done.returncode == 0, done.stderr
    assert "these flags have no effect with Farandole: --gloo\n" in done.stderr
    assert "2 workers on 1 host" in done.stderr
    assert "`import horovod` resolves to Farandole\n" in done.stderr
    assert len(re.findall(r"^\[0\]<stdout>:Iter #\d: \S+ img/sec per CPU$", done.stdout, re.M)) == 3
    assert re.search(r"^\[0\]<stdout>:Total img/sec on 2 CPU\(s\): ", done.stdout, re.M)
    text = (tmp_path / "t.json").read_text()
    assert "rank 0 (" in text
    assert "rank 1 (" in text
