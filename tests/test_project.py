"""The files around the code say what is true and carry nothing of the machine they came from."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import tomllib

import farandole

ROOT = Path(__file__).parents[1]
# Extras that `make` installs; the others are for users.
INSTALLED = ("torch", "demo", "mpi", "dev")


def constraints() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_constraints_are_exact_public_and_sorted() -> None:
    lines = constraints()
    assert lines == sorted(lines, key=str.lower)
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


def test_everything_that_make_installs_has_a_tested_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + [r for extra in INSTALLED for r in extras[extra]]
    names = {normalized(re.split(r"[<>=!~ \[;]", requirement)[0]) for requirement in wanted}
    assert names - {normalized(line.split("==")[0]) for line in constraints()} == set()


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()


def test_files_that_the_architecture_names_are_there() -> None:
    named = re.findall(r"`([\w/]+\.(?:py|css))`", (ROOT / "docs" / "architecture.md").read_text())
    within = [path for path in named if "/" in path]
    assert len(within) > 20
    assert [path for path in within if not (ROOT / "src" / "farandole" / path).exists()] == []


def test_workflows_run_commands_that_exist() -> None:
    yaml = pytest.importorskip("yaml")
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    commands = []
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text())["jobs"].values()
        commands += [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert len(commands) >= 3
    for tool, what in map(str.split, commands):
        assert what in targets if tool == "make" else (ROOT / what).exists(), (tool, what)
    for hook in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]:
        assert hook["entry"].startswith(".venv/bin/")


def test_what_is_released_is_described() -> None:
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version"} <= citation.keys()
    title = f"## [{citation['version']}] - {citation['date-released']}\n"
    _, release = (ROOT / "CHANGELOG.md").read_text().split(title)
    assert len(release.partition("\n## ")[0].splitlines()) <= 40
    assert farandole.__version__.startswith(citation["version"])
    assert "farandole env" in (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.md").read_text()
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_rules_for_contributors_stay_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) < 60


def test_links_between_documents_lead_somewhere() -> None:
    patterns = ("*.md", "docs/**/*.md", "examples/*.md")
    documents = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    # In code, brackets before parentheses are no link.
    texts = {path: re.sub(r"```.*?```", "", path.read_text(), flags=re.S) for path in documents}
    dead = [
        (path.name, target)
        for path, text in texts.items()
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
        if not (path.parent / target).exists()
    ]
    assert len(documents) > 30
    assert dead == []


def test_no_tracked_file_names_this_checkout_or_a_package_index() -> None:
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    # In two halves, so that this file does not name them either.
    forbidden = [str(ROOT) + "/", "pypi" + ".org", "python" + "hosted.org", "download." + "pytorch"]
    found = [
        (name, word)
        for name in listed.stdout.split("\0")
        if name and (ROOT / name).is_file()
        for word in forbidden
        if word in (ROOT / name).read_text(errors="replace")
    ]
    assert found == []
