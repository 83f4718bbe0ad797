"""Horovod's scripts, unchanged, under `farandole run`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.launch.horovod_alias import install
from farandole.launch.variables import SITE
from tests.conftest import clean_environ, run_cli

SCRIPT = """
import horovod
import horovod.torch as hvd
from horovod.torch import DistributedOptimizer, broadcast_parameters
import horovod.torch.optimizer
import farandole.torch
import torch

assert hvd is farandole.torch and horovod.torch is hvd
assert hvd.__spec__.name == hvd.__name__ == "farandole.torch"
assert horovod.torch.optimizer is farandole.torch.optimizer
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

FRONT_DOORS = """
import horovod.keras as hvd
import horovod.keras.callbacks
import farandole.keras
assert hvd is farandole.keras and hvd.__name__ == "farandole.keras"
assert horovod.keras.callbacks is farandole.keras.callbacks
from horovod.keras.callbacks import MetricAverageCallback
import horovod.tensorflow
import farandole.tensorflow
assert horovod.tensorflow is farandole.tensorflow
from horovod.tensorflow import DistributedGradientTape, SyncBatchNormalization
for code in ("import horovod.tensorflow.elastic", "from horovod.tensorflow import elastic"):
    try:
        exec(code)
    except ImportError as error:
        print("farandole.tensorflow" in str(error) and "elastic" in str(error))
try:
    import horovod.tensorflow.keras
except ValueError as error:
    print("Keras runs on torch here" in str(error))
else:
    import horovod.tensorflow.keras.callbacks
    print(horovod.tensorflow.keras.__name__, horovod.tensorflow.keras.callbacks.__name__)
    assert horovod.tensorflow.keras.DistributedOptimizer is hvd.DistributedOptimizer
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


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("backend", "last"),
    [
        ("tensorflow", "farandole.tensorflow.keras farandole.tensorflow.keras.callbacks"),
        ("torch", "True"),
    ],
)
def test_keras_and_tensorflow(tmp_path: Path, backend: str, last: str) -> None:
    script = tmp_path / "doors.py"
    script.write_text(FRONT_DOORS)
    env = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = run_cli("run", "-np", "1", "--no-tag", script, env=env, timeout_s=110.0)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True", "True", last]


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


def test_what_farandole_does_not_have_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "horovod"]:
        monkeypatch.delitem(sys.modules, name)
    install()
    try:
        with pytest.raises(ModuleNotFoundError, match=r"no farandole\.spark.*--horovod-alias off"):
            __import__("horovod.spark")
    finally:
        sys.modules.pop("horovod", None)


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
