"""What the analysis says of recorded folders, compared with snapshots: tests/frozen/freeze.py."""

from __future__ import annotations

import platform

import pytest

from tests.frozen import freeze

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="projections were recorded with x86-64's rounding"
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, freeze.Snapshot]:
    return freeze.snapshots(freeze.names(), tmp_path_factory.mktemp("frozen"))


# All are made before the first: seconds of computing, and minutes on a machine with other work.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", freeze.names())
def test_frozen(name: str, found: dict[str, freeze.Snapshot]) -> None:
    assert "error" not in found[name], found[name]["error"]
    lines = [
        f"{name}.{part}{line}"
        for part in freeze.PARTS
        for line in freeze.differences(freeze.stored(name, part), found[name][part])
    ]
    assert not lines, "\n".join(
        [*lines, "If this is meant: tests/frozen/freeze.py record, in a commit of its own."]
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lab", freeze.labs())
def test_a_page_of_the_documentation_is_what_its_lab_says(
    lab: str, found: dict[str, freeze.Snapshot]
) -> None:
    page = found[f"lab-{lab}"]["page"]
    assert page == freeze.stored(f"lab-{lab}", "page"), "make lab-pages"
    shown = {str(path.relative_to(freeze.DOCS)) for path in (freeze.DOCS / lab).iterdir()}
    assert shown == freeze.pictures(page)


def test_every_snapshot_is_checked() -> None:
    stored = {path.name for path in freeze.SNAPSHOTS.iterdir()}
    assert stored == {f"{name}.{part}.json" for name in freeze.names() for part in freeze.PARTS}


def test_differences_are_seen() -> None:
    old = {"a": [1.0, 2], "b": {"c": None}, "d": "x"}
    assert freeze.differences(old, {"a": [1 + 1e-10, 2.0], "b": {"c": None}, "d": "x"}) == []
    new = {"a": [1 + 1e-8, True], "b": {}, "d": "y", "e": 1}
    found = freeze.differences(old, new)
    assert [line.split(":")[0] for line in found] == ["/a/0", "/a/1", "/b/c", "/d", "/e"]
