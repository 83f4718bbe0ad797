"""The list of labs: each has what the list shows, and its files are where they belong."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import tomllib

from farandole.errors import MissingExtraError, UsageError
from farandole.labs.lab import (
    check_packages,
    examples_path,
    lab_names,
    load_lab,
    published_path,
)
from tests.conftest import run_cli


@pytest.mark.parametrize("name", lab_names())
def test_a_lab_says_what_it_is(name: str) -> None:
    lab = load_lab(name)
    assert lab.name == name
    assert lab.title
    assert lab.line
    assert "\n" not in lab.line
    assert lab.efforts >= 1
    keys = [question.key for question in lab.questions]
    assert keys
    assert len(set(keys)) == len(keys)
    assert [one for one in lab.published if not published_path(one).is_file()] == []
    assert examples_path(f"{name}.py").is_file()


def test_an_unknown_lab_lists_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=f"no lab 'mnits'. Labs: {', '.join(lab_names())}"):
        load_lab("mnits")


def test_missing_packages_are_named_with_their_extra() -> None:
    with pytest.raises(MissingExtraError, match=r"needs torch, .*farandole\[torch\]'.*CPU build"):
        check_packages("cifar10", lambda module: False)
    with pytest.raises(MissingExtraError, match=r"keras and torch, .*farandole\[labs,torch\]'"):
        check_packages("mnist", lambda module: False)
    with pytest.raises(MissingExtraError, match=r"needs keras, .*farandole\[labs\]'\.$"):
        check_packages("driving", lambda module: module != "keras")
    check_packages("driving", lambda module: True)


def test_listing_labs_imports_no_framework() -> None:
    code = (
        "import sys\nfrom farandole.labs.lab import lab_names, load_lab\n"
        "for name in lab_names(): load_lab(name)\n"
        "print(sorted({'torch', 'keras', 'tensorflow', 'jax', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


ROOT = Path(__file__).parents[2]


def test_every_example_is_there_once_and_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["farandole.labs"]
    files = [path for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".sbatch")]
    assert len(files) > 3
    for path in files:
        assert examples_path(path.name) == path.resolve()
        assert any(fnmatch(f"examples/{path.name}", pattern) for pattern in patterns), path


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", lab_names())
def test_a_quick_lab_answers_every_question(name: str, tmp_path: Path) -> None:
    done = run_cli("lab", name, "--quick", "--out", "out", "--json", cwd=tmp_path, timeout_s=580)
    assert done.returncode == 0, done.stderr
    assert "has no figures" not in (tmp_path / "out" / "report.md").read_text()
    content = json.loads((tmp_path / "out" / "report.json").read_text())
    assert json.loads(done.stdout) == content
    questions = [question.key for question in load_lab(name).questions]
    tables = {key: one["table"] for key, one in content["questions"].items()}
    assert list(tables) == questions
    assert [key for key, table in tables.items() if not (table and table["rows"])] == []
