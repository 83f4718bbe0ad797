"""Accessibility of the pages, as axe-core finds it; npm fetches it for the test."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import pytest

from farandole.labs import report as lab_report
from farandole.report.render import bundle, page
from farandole.report.study import document
from tests.labs.report_builders import lab
from tests.report.builders import comparison, study
from tests.report.projections import projection
from tests.report.visiting import browsing, faults

PAGES = {
    "study": lambda: document(study()),
    "projection": lambda: document(replace(study(), projection=projection())),
    "void": lambda: document(study(void="Your 2 workers trained 2 separate models.")),
    "comparison": lambda: document(comparison()),
    "lab": lambda: lab_report.document(lab()),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.skip("there is no npm, which fetches axe-core")
    argv = [npm, "install", "--prefix", folder, "--no-audit", "--no-fund", "axe-core@4"]
    if subprocess.run(argv, capture_output=True, timeout=100, check=False).returncode:
        pytest.skip("npm could not fetch axe-core")
    axe = (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()
    with browsing() as browser:
        return {
            f"{name} {look}": faults(browser, folder, page(make(), scripts=bundle()), axe, look)
            for name, make in PAGES.items()
            for look in ("light", "dark")
        }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_no_serious_fault(found: dict[str, list[str]], name: str, look: str) -> None:
    assert found[f"{name} {look}"] == []
