"""Horovod's scripts, unchanged, under `farandole run`."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from farandole.launch.horovod_alias import install, wants_horovod, withdraw
from farandole.launch.variables import SITE
from tests.checking import LAUNCH_S, TENSORFLOW, TORCH, Check, Outcomes, World, each
from tests.conftest import clean_environ, run_cli

SCRIPT = """
import horovod
import horovod.torch as hvd
from horovod.torch import DistributedOptimizer, broadcast_parameters
import horovod.torch.optimizer
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import nccl_built
from horovod.runner.util.threads import in_thread
import horovod.runner.common.util.env
import farandole.errors
import farandole.torch
import torch

assert hvd is farandole.torch and horovod.torch is hvd
assert hvd.__spec__.name == hvd.__name__ == "farandole.torch"
assert horovod.torch.optimizer is farandole.torch.optimizer
assert HorovodInternalError is farandole.errors.CollectiveError
assert horovod.run is horovod.runner.run
assert horovod.runner.common.util.env.get_env_rank_and_size()[1] == 2
hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1),
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.none,
    op=hvd.Average,
    gradient_predivide_factor=1.0,
)
broadcast_parameters(model.state_dict(), root_rank=0)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
print("rank", hvd.rank(), "of", hvd.size(), horovod.__version__)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.ranks
def test_an_unchanged_script(script: Path) -> None:
    done = run_cli("run", "-np", "2", "--no-tag", script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["rank 0 of 2 0.28.1", "rank 1 of 2 0.28.1"]
    first = done.stderr.splitlines()[0]
    assert first.endswith("1 thread each; `import horovod` resolves to Farandole")
    assert done.stderr.count("resolves to Farandole") == 1, "once is enough"


@pytest.mark.ranks
def test_what_the_launcher_cannot_see_rank_0_says(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import helper")
    (tmp_path / "helper.py").write_text("import horovod")
    done = run_cli("run", "-np", "2", tmp_path / "train.py")
    assert done.returncode == 0, done.stderr
    assert "resolves" not in done.stderr.splitlines()[0]
    assert done.stderr.count("[0]<stderr>:farandole: `import horovod` resolves to Farandole.") == 1
    assert "[1]<stderr>" not in done.stderr


@pytest.mark.ranks
@pytest.mark.timeout(LAUNCH_S + 20)
@each("launch.front_doors", TENSORFLOW)
def test_keras_and_tensorflow(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@pytest.mark.ranks
@pytest.mark.timeout(LAUNCH_S + 20)
@each("launch.front_doors", TORCH, only=["check_keras"])
def test_keras_on_torch(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


# TensorFlow beside another backend of Keras's takes seconds to import.
@pytest.mark.ranks
@pytest.mark.soak
@pytest.mark.timeout(LAUNCH_S + 20)
@each("launch.front_doors", World(backend="torch", datasets=True))
def test_tensorflow_with_keras_on_another_backend(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("flags", "env"),
    [(["--horovod-alias", "off"], {}), ([], {"FARANDOLE_HOROVOD_ALIAS": "off"})],
)
def test_it_can_be_switched_off(
    script: Path, tmp_path: Path, flags: list[str], env: dict[str, str]
) -> None:
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("print('the installed one')\n")
    done = run_cli("run", "-np", "1", "--no-tag", *flags, script, env=env)
    assert "the installed one" in done.stdout
    assert "No module named 'horovod.torch'" in done.stderr


def test_another_word_than_on_or_off(script: Path) -> None:
    done = run_cli("run", "-np", "1", "--horovod-alias", "maybe", script)
    assert done.returncode == 2
    assert "--horovod-alias maybe: choose on or off." in done.stderr


@pytest.fixture
def no_horovod(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Python into which no horovod was imported yet, and in which none stays."""

    def loaded() -> list[str]:
        return [name for name in sys.modules if name.split(".")[0] == "horovod"]

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    withdraw(sys.meta_path)
    for name in loaded():
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in loaded():
        del sys.modules[name]


@pytest.mark.usefixtures("no_horovod")
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("horovod.spark", "farandole.spark"),
        ("horovod.mxnet", "farandole.mxnet"),
        ("horovod.common.basics", "farandole.horovod.common.basics"),
        ("horovod.runner.http.http_server", "farandole.horovod.runner.http"),
    ],
)
def test_what_farandole_does_not_have_says_so(name: str, meant: str) -> None:
    install()
    with pytest.raises(ModuleNotFoundError, match=rf"no {re.escape(meant)}\..*--horovod-alias off"):
        importlib.import_module(name)


@pytest.mark.usefixtures("no_horovod")
@pytest.mark.parametrize("code", ["import horovod.ray", "from horovod.ray import RayExecutor"])
def test_ray_has_something_else(code: str) -> None:
    install()
    with pytest.raises(ModuleNotFoundError, match=r"RayExecutor, use farandole\.ray\.run\(fn"):
        exec(code)


@pytest.mark.usefixtures("no_horovod")
def test_elastic_training_by_horovods_names() -> None:
    install()
    import horovod.common.elastic
    import horovod.torch as hvd
    from horovod.runner.elastic.worker import HostUpdateResult
    from horovod.torch.elastic.sampler import ElasticSampler
    from horovod.torch.elastic.state import TorchState

    from farandole.elastic import state

    assert hvd.elastic.run is horovod.common.elastic.run is state.run
    assert (hvd.elastic.TorchState, hvd.elastic.ElasticSampler) == (TorchState, ElasticSampler)
    assert HostUpdateResult.mixed == HostUpdateResult.added | HostUpdateResult.removed
    with pytest.raises(AttributeError, match=r"module 'farandole\.torch' has no attribute 'mine'"):
        _ = hvd.mine


@pytest.mark.usefixtures("no_horovod")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("from horovod import spark", "horovod resolves to Farandole here, which has no"),
        ("from horovod.common.util import nothing", "'nothing' from 'farandole.horovod.common"),
    ],
)
def test_a_name_that_is_not_there_is_an_import_error(code: str, words: str) -> None:
    install()
    with pytest.raises(ImportError, match=words):
        exec(code)


@pytest.mark.usefixtures("no_horovod")
def test_installed_twice_it_answers_once() -> None:
    before = len(sys.meta_path)
    install(if_missing=True)
    install()
    install(if_missing=True)
    install()
    assert len(sys.meta_path) == before + 1
    assert importlib.import_module("horovod").__version__ == "0.28.1"
    install()
    assert importlib.import_module("horovod.common").__name__ == "farandole.horovod.common"


@pytest.mark.usefixtures("no_horovod")
def test_another_horovod_that_was_imported_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    install(if_missing=True)
    with pytest.raises(ImportError, match=r"Import farandole\.horovod first"):
        install()


def test_outside_of_a_launch_one_import_turns_it_on() -> None:
    code = (
        "import farandole.horovod, horovod, horovod.torch as hvd; print(hvd.__name__, horovod.run)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("farandole.torch <function run"), done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [("import horovod.torch as hvd", True), ("import torch", False), (None, False)],
)
def test_scripts_that_want_horovod(tmp_path: Path, text: str | None, expected: bool) -> None:
    script = tmp_path / "train.py"
    if text is not None:
        script.write_text(text)
    assert wants_horovod(["python", "-u", str(script), "other.py"]) is expected
    assert not wants_horovod(["python", "-m", "horovod"])


@pytest.mark.parametrize("installed", [True, False])
def test_behind_another_launcher_an_installed_horovod_comes_first(
    tmp_path: Path, installed: bool
) -> None:
    if installed:
        package = tmp_path / "horovod"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "torch").mkdir()
        (package / "torch" / "__init__.py").write_text("def mine(): pass\n")
        (package / "torch" / "optimizer.py").write_text("")
    code = "import horovod.torch.optimizer as part; print(part.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environ(
            PYTHONPATH=f"{SITE}{os.pathsep}{tmp_path}",
            FARANDOLE_HOROVOD_ALIAS="missing",
            FARANDOLE_RECORD_DIR=str(tmp_path / "record"),
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        "horovod.torch.optimizer" if installed else "farandole.torch.optimizer"
    )
