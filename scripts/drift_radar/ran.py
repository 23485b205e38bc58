"""Which uses of an adapter ran: its lines, held against those that a recorder has seen."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from drift_radar.seams import ROOT, Adapter

RUN, REHEARSED, READ = STATES = ("run here", "rehearsed", "only read")
ELSEWHERE = "elsewhere"
"""State of a name that the trainer's release does not have: the adapter's own in a class that it
derives from the trainer's, or one of a package below the trainer."""
SETTINGS = ("setting", "own setting")
"""Kinds of uses that are no code: the trainer's configuration reads them."""
PACKAGES = {"rl2": "RL2"}
"""Trainer -> name that it is imported by, if that is another."""


class Place(NamedTuple):
    """A use in the source: file below the adapter, and the lines of which one must have run."""

    file: str
    lines: range


Uses = dict[str, list[Place]]
"""Path of the trainer's -> where the adapter uses it."""


@cache
def uses(trainer: str) -> Uses:
    """Return what an adapter uses of its trainer on a GPU, by path or, without an owner, by name.

    An import says only that a name is there: it counts where nothing else is a use.
    """
    adapter = Adapter(trainer)
    package = PACKAGES.get(trainer, trainer)
    found: dict[str, list[tuple[Place, bool]]] = {}
    for seam in adapter.seams({package}):
        for text in () if seam.how in SETTINGS else seam.places:
            name, _, line = text.partition(":")
            file = (ROOT / name).relative_to(adapter.folder).as_posix()
            if not file.startswith("cpu/"):
                lines, is_import = statement(ROOT / name, int(line), seam.how == "override")
                found.setdefault(seam.path, []).append((Place(file, lines), is_import))
    return {path: _without_imports(places) for path, places in sorted(found.items())}


def _without_imports(places: list[tuple[Place, bool]]) -> list[Place]:
    kept = [place for place, is_import in places if not is_import]
    return sorted(set(kept or [place for place, _ in places]), key=lambda p: (p.file, p.lines[0]))


def statement(file: Path, line: int, body: bool) -> tuple[range, bool]:
    """Return the lines of the statement at a line, and whether it is an import.

    Args:
        file: a source file.
        line: in it.
        body: whether the body of a function counts, and not its definition.
    """
    if line == 1:  # `by_hand` names a file
        return range(1, len(file.read_text(encoding="utf-8").splitlines()) + 1), False
    around = [n for n in _statements(file) if _first(n) <= line <= (n.end_lineno or 0)]
    node = max(around, key=_first)
    inner = getattr(node, "body", None)
    is_import = isinstance(node, ast.Import | ast.ImportFrom)
    if not isinstance(inner, list):
        return range(node.lineno, (node.end_lineno or line) + 1), is_import
    if not body:
        return range(_first(node), max(inner[0].lineno, node.lineno + 1)), False
    text = isinstance(inner[0], ast.Expr) and isinstance(inner[0].value, ast.Constant)
    first = inner[1] if text and len(inner) > 1 else inner[0]
    return range(first.lineno, (node.end_lineno or line) + 1), False


def _first(node: ast.stmt) -> int:
    """Return the first line of a statement, its decorators included."""
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])


@cache
def _statements(file: Path) -> list[ast.stmt]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def executed(folder: Path) -> set[tuple[str, int]]:
    """Return what the recorder has written into a folder: file of the adapter, line."""
    found = set()
    for file in folder.glob("*.txt"):
        for text in file.read_text(encoding="utf-8").splitlines():
            path, _, line = text.rpartition(":")
            inside = Path(path).relative_to(ROOT / "integrations")
            found.add((Path(*inside.parts[1:]).as_posix(), int(line)))
    return found


def states(
    found: Uses, in_run: Iterable[tuple[str, int]], in_tests: Iterable[tuple[str, int]]
) -> dict[str, str]:
    """Return the state of each use: the most that was done with one of its places."""
    run, tests = set(in_run), set(in_tests)
    return {
        path: RUN if _ran(places, run) else REHEARSED if _ran(places, tests) else READ
        for path, places in found.items()
    }


def _ran(places: list[Place], lines: set[tuple[str, int]]) -> bool:
    return any((place.file, line) in lines for place in places for line in place.lines)
