"""`farandole demo`, with and without real workers."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from farandole.cli import demo
from farandole.errors import MissingExtraError, UsageError
from farandole.labs.demo import DemoError
from tests.conftest import run_cli


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    demo.add_parser(parser.add_subparsers())
    return parser.parse_args(["demo", *argv])


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--repeats", "0"], "--repeats 0 is not a number of at least 1"),
        (["--repeats", "two"], "--repeats two is not a number of at least 1"),
        (["--epochs", "1"], "--epochs 1 is not a number of at least 2"),
    ],
)
def test_bad_numbers(argv: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        demo.main(parse(*argv))


def test_what_is_missing_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"needs torch and scikit-learn.*\[torch,demo\]"):
        demo.main(parse())


def test_a_failing_launch_shows_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; print('first'); print('the reason'); sys.exit(7)"
    monkeypatch.setattr(
        "farandole.labs.demo.command", lambda *_, **__: [sys.executable, "-c", script]
    )
    with pytest.raises(DemoError, match=r"exit code 7(?s:.*)the reason"):
        demo.main(parse())


def test_a_launch_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import time; print('waiting', flush=True); time.sleep(600)"
    monkeypatch.setattr(demo, "_LAUNCH_LIMIT_S", 0.5)
    monkeypatch.setattr(
        "farandole.labs.demo.command", lambda *_, **__: [sys.executable, "-c", script]
    )
    with pytest.raises(DemoError, match="did not end within"):
        demo.main(parse())


def test_importing_the_command_imports_no_torch() -> None:
    code = "import sys, farandole.cli.demo; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.ranks
def test_the_demo_from_end_to_end() -> None:
    done = run_cli("demo", "--repeats", "1", "--epochs", "2", "--json", timeout_s=110)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert [row["num_workers"] for row in found["rows"]] == [1, 2]
    assert found["rows"][0]["speedup"] == 1
    assert len(found["launches"]) == 2
    # Ten classes: far above chance after two epochs.
    assert min(row["accuracy"] for row in found["rows"]) > 0.3
    assert found["sentence"].endswith(".")
