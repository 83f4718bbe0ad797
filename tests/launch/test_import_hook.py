from __future__ import annotations

import sys
from pathlib import Path

import pytest

from farandole.launch.startup import after_import


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "far_hooked"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(f"import {name}.inner\nDONE = True\n")
    (tmp_path / name / "inner.py").write_text("loader = __spec__.loader\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for module in (name, f"{name}.inner"):
        sys.modules.pop(module, None)


def test_it_waits_for_all_of_them(package: str) -> None:
    calls: list[bool] = []
    before = list(sys.meta_path)
    after_import(
        (package, f"{package}.inner"),
        lambda: calls.append(hasattr(sys.modules[package], "DONE")),
    )
    module = __import__(package)
    # The inner module came first, while the outer one was half done.
    assert calls == [True]
    assert sys.meta_path == before
    assert "exec_module" not in vars(module.inner.loader)
    after_import((package,), lambda: calls.append(True))
    assert calls == [True, True]


def test_a_module_that_does_not_exist_is_still_an_error() -> None:
    before = list(sys.meta_path)
    after_import(("far_nowhere",), lambda: None)
    try:
        with pytest.raises(ModuleNotFoundError):
            __import__("far_nowhere")
    finally:
        sys.meta_path[:] = before


def test_several_may_wait_for_one_module(package: str) -> None:
    calls: list[str] = []
    before = list(sys.meta_path)
    after_import((package,), lambda: calls.append("first"))
    after_import((package, f"{package}.inner"), lambda: calls.append("second"))
    module = __import__(package)
    assert sorted(calls) == ["first", "second"]
    assert sys.meta_path == before
    assert "exec_module" not in vars(module.inner.loader)
