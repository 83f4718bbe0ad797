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
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "farandole"
TEMPLATES = {".html", ".css", ".js", ".md", ".txt", ".j2", ".jinja", ".toml", ".yaml", ".yml"}
# What the two large reductions of 2026 are counted over.
GROUPS = {
    "analysis": "labs model report study cli bench tools",
    "runtime": "engine stalls wire transport world launch recorder torch keras tensorflow elastic",
}
_NO_CODE = ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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


def code_lines(source: str) -> int:
    """Count the lines that hold something else than blanks, comments and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if tokenize.tok_name[token.type] not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)) and ast.get_docstring(node):
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def public_names(node: ast.Module | ast.ClassDef) -> tuple[int, int]:
    """Count the public classes, functions and methods, and those of them with a docstring."""
    public = documented = 0
    for inner in node.body:
        if isinstance(inner, (ast.ClassDef, *_FUNCTIONS)) and not inner.name.startswith("_"):
            below = public_names(inner) if isinstance(inner, ast.ClassDef) else (0, 0)
            public += 1 + below[0]
            documented += (ast.get_docstring(inner) is not None) + below[1]
    return public, documented


def measure(name: str, folder: Path, tests: Path) -> Room:
    """Measure the files of one folder and of its tests."""
    room = Room(name)
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix not in {".py", *TEMPLATES}:
            continue
        if any(part.is_symlink() for part in (path, *path.parents) if folder in part.parents):
            continue  # examples/, linked into labs/
        text = path.read_text(encoding="utf-8")
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
    room.test_lines = sum(len(p.read_text("utf-8").splitlines()) for p in tests.rglob("*.py"))
    return room


def total(name: str, rooms: list[Room]) -> Room:
    """Add rooms up; the depth is that of the deepest."""
    columns = {each.name: [getattr(room, each.name) for room in rooms] for each in fields(Room)[1:]}
    depth = max(columns.pop("depth"))
    return Room(name, depth=depth, **{key: sum(each) for key, each in columns.items()})


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
    folders = [path for path in sorted(PACKAGE.iterdir()) if (path / "__init__.py").exists()]
    rooms = [measure(path.name, path, ROOT / "tests" / path.name) for path in folders]
    rooms.append(measure("tools", ROOT / "tools", ROOT / "tests" / "tools"))
    for group, names in GROUPS.items():
        rooms.append(total(group, [room for room in rooms if room.name in names.split()]))
    rooms.append(total("all", [room for room in rooms if room.name not in GROUPS]))
    figures = [asdict(room) for room in rooms]
    print(json.dumps(figures, indent=1) if arguments.json else table(rooms))


if __name__ == "__main__":
    main()
