"""The list of labs: those that are there, each with all that the list shows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from farandole.errors import MissingExtraError, UsageError
from farandole.labs import listing
from farandole.labs.scripts import examples_path, published_path


def test_only_labs_that_exist_are_listed() -> None:
    found = listing.names()
    assert found
    assert all(listing.load(name).name == name for name in found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", listing.names())
def test_a_lab_says_what_it_is(name: str) -> None:
    lab = listing.load(name)
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
    with pytest.raises(UsageError, match=f"no lab 'mnits'. Labs: {', '.join(listing.names())}"):
        listing.load("mnits")


def test_missing_packages_are_named_with_their_extra() -> None:
    with pytest.raises(MissingExtraError, match=r"needs torch, .*farandole\[torch\]'.*CPU build"):
        listing.check_packages("cifar10", lambda module: False)
    with pytest.raises(MissingExtraError, match=r"keras and torch, .*farandole\[labs,torch\]'"):
        listing.check_packages("mnist", lambda module: False)
    with pytest.raises(MissingExtraError, match=r"needs keras, .*farandole\[labs\]'\.$"):
        listing.check_packages("driving", lambda module: module != "keras")
    listing.check_packages("driving", lambda module: True)


def test_listing_labs_imports_no_framework() -> None:
    code = (
        "import sys\nfrom farandole.labs import listing\n"
        "for name in listing.names(): listing.load(name)\n"
        "print(sorted({'torch', 'keras', 'tensorflow', 'jax', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
