"""Every example runs, and the README shows the one that it says it shows."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import clean_environ, keras_on, run_cli

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LABS = ("cifar10.py", "mnist.py", "driving.py", "fruits.py", "caltech.py", "faces.py")
KERAS = keras_on("torch", "sklearn")


def losses(output: str) -> list[float]:
    return [float(value) for value in re.findall(r"loss (\d+\.\d+)", output)]


@pytest.mark.ranks
@pytest.mark.parametrize("script", ["train_digits.py", "train_ddp.py"])
def test_the_digits_are_learned_on_two_workers(script: str) -> None:
    done = run_cli("run", "-np", "2", ROOT / "examples" / script, timeout_s=100)
    assert done.returncode == 0, done.stderr
    found = losses(done.stdout)
    assert len(found) == 5, "only rank 0 prints, once per epoch"
    assert found[-1] < found[0]
    assert "; workers: 2" in done.stdout


@pytest.mark.ranks
def test_keras_digits() -> None:
    script = ROOT / "examples" / "keras_digits.py"
    done = run_cli("run", "-np", "2", script, env=KERAS, timeout_s=110)
    assert done.returncode == 0, done.stderr
    assert "[1]<stdout>" not in done.stdout, "only rank 0 shows progress"
    accuracy, workers = re.findall(r"accuracy (\S+); workers: (\d+)", done.stdout)[0]
    assert (float(accuracy) > 0.9, workers) == (True, "2")


def small(script: str, *arguments: str) -> tuple[str | Path, ...]:
    """A lab's script on a few samples of what it makes itself."""
    few = ("--samples", "48", "--test-samples", "20", "--epochs", "1", "--batch-size", "8")
    return (ROOT / "examples" / script, *few, *arguments)


def recording(folder: Path) -> dict[str, str]:
    """What makes a launch record what it does."""
    return {"FARANDOLE_RECORD_DIR": str(folder)}


def recorded(folder: Path, rank: int) -> dict[str, list[float]]:
    """What a worker recorded, by name."""
    found: dict[str, list[float]] = {}
    for line in (folder / f"rank-{rank}.jsonl").read_text().splitlines():
        content = json.loads(line)
        if content["kind"] == "metric":
            found.setdefault(content["name"], []).append(float(content["value"]))
        elif "parameters" in content:
            found["parameters"] = [content["parameters"]]
    return found


def steps(folder: Path) -> list[float]:
    """How many samples each step of rank 0 had."""
    rows: list[float] = []
    for line in (folder / "rank-0.jsonl").read_text().splitlines():
        content = json.loads(line)
        if content["kind"] == "steps":
            rows += content["columns"]["samples"]
    return rows


@pytest.mark.ranks
def test_cifar10_with_replicas_on_one_worker(tmp_path: Path) -> None:
    """From a copy in an empty folder: the file needs no other one."""
    path, *arguments = small("cifar10.py", "--replicas", "2")
    alone = shutil.copy(path, tmp_path)
    done = run_cli("run", "-np", "1", alone, *arguments, env=recording(tmp_path), timeout_s=100)
    assert done.returncode == 0, done.stderr
    (loss,) = losses(done.stdout)
    found = recorded(tmp_path, 0)
    assert set(found) == {"loss", "val_accuracy", "learning_rate", "first_sample", "parameters"}
    assert found["loss"] == [pytest.approx(loss, abs=0.001)]
    assert steps(tmp_path) == [16.0] * 3, "a step has the batches of both replicas"


def test_replicas_have_the_gradients_of_the_whole_batch() -> None:
    torch = pytest.importorskip("torch")
    cross_entropy = torch.nn.functional.cross_entropy
    Replicas = runpy.run_path(str(ROOT / "examples" / "cifar10.py"))["Replicas"]  # noqa: N806
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
    x, y = torch.randn(12, 5), torch.randint(0, 3, (12,))
    expected = torch.autograd.grad(cross_entropy(model(x), y), list(model.parameters()))

    replicas = Replicas(model, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    cross_entropy(replicas(x), y).backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    optimizer.step()
    updated = model(x)
    for replica in replicas.copies:
        torch.testing.assert_close(replica(x), updated)
    replicas.threads.shutdown()


@pytest.mark.ranks
def test_cifar10_on_two_workers(tmp_path: Path) -> None:
    """Batch norm over both, more epochs, the same order in each of them."""
    script = small("cifar10.py", "--norm", "sync", "--order", "fixed", "--recipe", "longer")
    done = run_cli("run", "-np", "2", *script, env=recording(tmp_path), timeout_s=100)
    assert done.returncode == 0, done.stderr
    assert len(losses(done.stdout)) == 2, "only rank 0 prints, and longer is two epochs for one"
    first, second = (recorded(tmp_path, rank) for rank in (0, 1))
    for name in ("loss", "val_accuracy"):
        assert first[name] == second[name], "of all workers"
    assert first["first_sample"] != second["first_sample"]
    assert len(set(first["first_sample"])) == 1, "the same order in each epoch"
    assert len(steps(tmp_path)) == 2 * 48 // 2 // 8


@pytest.mark.ranks
def test_driving_tells_each_workers_own_loss(tmp_path: Path) -> None:
    environ = recording(tmp_path) | KERAS
    done = run_cli("run", "-np", "2", *small("driving.py"), env=environ, timeout_s=110)
    assert done.returncode == 0, done.stderr
    found = [recorded(tmp_path, rank) for rank in (0, 1)]
    for rank in (0, 1):
        told = re.findall(rf"\[{rank}\]<stdout>:epoch 1: loss (\S+), val_loss (\S+)", done.stdout)
        own = [found[rank][name][0] for name in ("rank_loss", "rank_val_loss")]
        assert own == [pytest.approx(float(value), abs=0.0001) for value in told[0]]
    assert found[0]["rank_loss"] != found[1]["rank_loss"]
    assert found[0]["val_loss"] == found[1]["val_loss"], "of all workers"
    assert found[0]["parameters"] == [252_219], "as PilotNet's paper has it, about 250 thousand"
    assert len(found[0]["constant_mse"]) == 1
    assert "constant_mse" not in found[1]


@pytest.mark.ranks
def test_mnist(tmp_path: Path) -> None:
    environ = recording(tmp_path) | KERAS
    done = run_cli("run", "-np", "1", *small("mnist.py"), env=environ, timeout_s=100)
    assert done.returncode == 0, done.stderr
    found = recorded(tmp_path, 0)
    assert found["parameters"] == [1_199_882]
    (accuracy,) = found["val_accuracy"]
    assert f"test accuracy {accuracy:.4f} on 20 images; workers: 1" in done.stdout


@pytest.mark.ranks
@pytest.mark.timeout(240)
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("script", ["mnist.py", "cifar10.py"])
def test_one_seed_gives_one_training(tmp_path: Path, script: str, workers: str) -> None:
    """The labs pair runs by their seeds; mnist.py has dropout."""
    found = []
    for number, seed in enumerate("778"):
        folder = tmp_path / str(number)
        done = run_cli(
            *("run", "-np", workers, *small(script, "--seed", seed)),
            env=recording(folder) | KERAS,
            timeout_s=100,
        )
        assert done.returncode == 0, done.stderr
        found.append([recorded(folder, rank)["loss"] for rank in range(int(workers))])
    assert found[0] == found[1], "to the last bit"
    assert found[0] != found[2]


@pytest.mark.ranks
def test_fruits_on_two_workers(tmp_path: Path) -> None:
    """From a copy in an empty folder: the file needs none beside it."""
    path, *arguments = small("fruits.py", "--image-size", "32", "--weights", "none")
    environ, alone = recording(tmp_path) | KERAS, shutil.copy(path, tmp_path)
    done = run_cli("run", "-np", "2", alone, *arguments, env=environ, timeout_s=110)
    assert done.returncode == 0, done.stderr
    assert "[0]<stdout>:weights: drawn at random (--weights none)" in done.stdout
    first, second = (recorded(tmp_path, rank) for rank in (0, 1))
    assert first["pretrained"] == [0.0]
    assert first["val_accuracy"] == second["val_accuracy"], "of all workers"
    assert steps(tmp_path) == [8.0] * 3
    (line,) = re.findall(r"test accuracy (\S+) on 20 images; workers: 2", done.stdout)
    assert first["val_accuracy"] == [pytest.approx(float(line), abs=0.0001)]


@pytest.mark.ranks
def test_caltech_as_the_lab_had_it(tmp_path: Path) -> None:
    """Alone, too: the training itself is in transfer_learning.py, which is installed."""
    flags = ("--weights", "none", "--recipe", "original", "--optimizer", "adadelta", "--unwrapped")
    path, *arguments = small("caltech.py", "--image-size", "32", *flags)
    environ, alone = recording(tmp_path) | KERAS, shutil.copy(path, tmp_path)
    done = run_cli("run", "-np", "1", alone, *arguments, env=environ, timeout_s=110)
    assert done.returncode == 0, done.stderr
    assert "linear: learning rate 1 x 1 = 1" in done.stdout
    assert len(recorded(tmp_path, 0)["val_accuracy"]) == 1


@pytest.mark.ranks
def test_faces_over_a_few_images_again_and_again(tmp_path: Path) -> None:
    few = ("--loop", "20", "--epochs", "2", "--batch-size", "8", "--image-size", "32")
    environ = recording(tmp_path) | KERAS
    script = (ROOT / "examples" / "faces.py", "--model", "small", *few)
    done = run_cli("run", "-np", "1", *script, env=environ, timeout_s=110)
    assert done.returncode == 0, done.stderr
    assert steps(tmp_path) == [8.0, 8.0, 4.0] * 2
    assert "val_accuracy" not in recorded(tmp_path, 0)


def test_labs_scripts_tell_their_flags() -> None:
    # In one process: most of what it takes is importing the frameworks.
    ask = "import runpy, sys\nfor path in sys.argv[1:]:\n"
    ask += "    sys.argv, sys.path[0] = [path, '--help'], path.rpartition('/')[0]\n"
    ask += "    try:\n        runpy.run_path(path, run_name='__main__')\n"
    ask += "    except SystemExit as end:\n        assert end.code == 0\n    print('@')\n"
    paths = [str(ROOT / "examples" / script) for script in LABS]
    done = subprocess.run(
        [sys.executable, "-c", ask, *paths],
        env=clean_environ(**KERAS),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    helps = [set(re.findall(r"--[a-z-]+", text)) for text in done.stdout.split("@\n")[:-1]]
    alike = {"--data", "--epochs", "--batch-size", "--samples", "--test-samples", "--lr"}
    assert len(helps) == len(LABS)
    assert all(alike | {"--recipe", "--seed"} <= flags for flags in helps)
    assert {"--model", "--norm", "--order", "--replicas"} <= helps[0]
    transfer = {"--image-size", "--weights", "--finetune", "--no-finetune", "--optimizer"}
    assert all(transfer | {"--unwrapped"} <= flags for flags in helps[3:5])
    assert {"--image-size", "--model", "--loop"} <= helps[5]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    # cifar10.py has replicas in threads, too.
    assert len(lines) < (180 if path.name == "cifar10.py" else 90)
    assert f"examples/{path.name}" in path.read_text()


@pytest.mark.parametrize("script", LABS)
def test_batch_scripts(script: str) -> None:
    path = (ROOT / "examples" / script).with_suffix(".sbatch")
    done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text = path.read_text()
    # SLURM reads its lines up to the first command only.
    commands = text.partition("\nset -euo pipefail\n")
    assert commands[1]
    assert "#SBATCH --nodes=" in commands[0]
    assert "#SBATCH" not in commands[2]
    assert f"python examples/{script} " in commands[2]


def test_every_example_has_a_test() -> None:
    tested = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES if path.name not in tested] == []


def test_the_page_on_keras_shows_the_example_as_it_is() -> None:
    body = (ROOT / "examples" / "keras_digits.py").read_text().split('"""\n', 1)[1].strip()
    page = (ROOT / "docs" / "how-to" / "keras.md").read_text()
    assert body in [block.strip() for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
