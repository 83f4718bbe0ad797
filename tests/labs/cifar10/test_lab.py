"""The lab as `farandole lab` knows it."""

from __future__ import annotations

import subprocess
import sys

from farandole.labs.cifar10.lab import LAB


def test_questions_that_open_the_report_are_among_its_questions() -> None:
    keys = [question.key for question in LAB.questions]
    assert len(keys) == len(set(keys)) == 7
    assert set(LAB.leading) <= set(keys)


def test_generated_data_are_of_cifar10s_size() -> None:
    data = LAB.data(None)
    assert (data.train, data.test, data.sample) == (50_000, 10_000, "32x32 RGB")


def test_listing_the_lab_loads_neither_torch_nor_charts() -> None:
    code = (
        "import sys, farandole.labs.cifar10.lab; "
        "print(sorted({'torch', 'altair', 'keras'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
