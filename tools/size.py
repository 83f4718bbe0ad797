"""Measure the size of the source tree: `python tools/size.py [--json]`.

Per room (a folder below `src/farandole`, and `tools/` as one more): lines, code lines (without
blanks, comments and docstrings), files, the deepest folder below `farandole/`, the share of public
names with a docstring, and the lines of its tests. Templates, styles, scripts and text data count
as lines and code; published tables (CSV) and recorded figures (JSON) do not.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "farandole"
TEMPLATES = {".html", ".css", ".js", ".md", ".txt", ".j2", ".jinja", ".toml", ".yaml", ".yml"}
# What the two large reductions of 2026 are counted over.
GROUPS = {
    "analysis": ("labs", "model", "report", "study", "cli", "bench", "tools"),
    "runtime": (
        *("engine", "stalls", "wire", "transport", "world", "launch", "recorder"),
        *("torch", "keras", "tensorflow", "elastic"),
    ),
}


@dataclass
class Room:
    """The size of one folder of the source tree, and of its tests."""

    name: str
    lines: int = 0
    code: int = 0
    files: int = 0
    depth: int = 0
    public: int = 0
    documented: int = 0
    test_lines: int = 0

    def add(self, other: Room) -> None:
        """Add another room's figures to this one."""
        for field in ("lines", "code", "files", "public", "documented", "test_lines"):
            setattr(self, field, getattr(self, field) + getattr(other, field))
        self.depth = max(self.depth, other.depth)


def code_lines(source: str) -> int:
    """Count the lines that hold something else than blanks, comments and docstrings."""
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        docstring = _docstring(node)
        if docstring is not None:
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def _docstring(node: ast.AST) -> ast.expr | None:
    """Return the docstring expression of a module, class or function."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first.value if isinstance(first.value.value, str) else None
    return None


def public_names(tree: ast.Module) -> tuple[int, int]:
    """Count the public classes, functions and methods, and those of them with a docstring."""
    public = documented = 0
    bodies: list[list[ast.stmt]] = [tree.body]
    while bodies:
        for node in bodies.pop():
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("_"):
                continue
            public += 1
            documented += _docstring(node) is not None
            if isinstance(node, ast.ClassDef):
                bodies.append(node.body)
    return public, documented


def measure(name: str, folder: Path, tests: Path) -> Room:
    """Measure the files of one folder and of its tests."""
    room = Room(name)
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts or _is_linked(path, folder):
            continue
        text = path.read_text(encoding="utf-8") if path.suffix in {".py", *TEMPLATES} else None
        if text is None:
            continue
        room.files += 1
        room.lines += len(text.splitlines())
        room.depth = max(room.depth, len(path.relative_to(folder.parent).parts) - 1)
        if path.suffix == ".py":
            room.code += code_lines(text)
            public, documented = public_names(ast.parse(text))
            room.public += public
            room.documented += documented
        else:
            room.code += sum(1 for line in text.splitlines() if line.strip())
    room.test_lines = sum(
        len(path.read_text(encoding="utf-8").splitlines()) for path in tests.rglob("*.py")
    )
    return room


def _is_linked(path: Path, folder: Path) -> bool:
    """Tell whether the path goes through a symbolic link (examples/ linked into labs/)."""
    return any(parent.is_symlink() for parent in [path, *path.parents] if folder in parent.parents)


def table(rooms: list[Room]) -> str:
    """Lay the rooms out as text, one line each."""
    head = f"{'room':12} {'lines':>7} {'code':>7} {'files':>6} {'depth':>6} {'documented':>11}"
    rows = [f"{head} {'tests':>7} {'ratio':>6}"]
    for room in rooms:
        share = f"{room.documented / room.public:.1%}" if room.public else "-"
        ratio = f"{room.test_lines / room.lines:.2f}" if room.lines else "-"
        rows.append(
            f"{room.name:12} {room.lines:7,} {room.code:7,} {room.files:6} {room.depth:6} "
            f"{share:>11} {room.test_lines:7,} {ratio:>6}"
        )
    return "\n".join(rows)


def main() -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    arguments = parser.parse_args()
    folders = {path.name: path for path in sorted(PACKAGE.iterdir()) if path.is_dir()}
    folders.pop("__pycache__", None)
    folders["tools"] = ROOT / "tools"
    rooms = [
        measure(name, path, ROOT / "tests" / name)
        for name, path in folders.items()
        if path.is_dir()
    ]
    totals = []
    for group, names in {**GROUPS, "all": tuple(folders)}.items():
        total = Room(group)
        for room in rooms:
            if room.name in names:
                total.add(room)
        totals.append(total)
    if arguments.json:
        print(json.dumps([asdict(room) for room in rooms + totals], indent=1))
    else:
        print(table(rooms + totals))


if __name__ == "__main__":
    main()
