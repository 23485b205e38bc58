#!/usr/bin/env python3
"""Count the packages of gem-core and the imports between them: ``python tools/import_graph.py``.

A node is a module or package directly below ``gem_core``; an arrow is "some module of A imports
some module of B". Imports inside functions and for type checking count too. `LAYERS` is the map of
docs/design.md: an arrow may point to the same layer or to one further down, never up.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("env_spec", "parsing"),
    ("core",),
    ("registration", "wrappers", "graders", "data", "envs"),
    ("players", "checker"),
    ("episodes", "advantages"),
    ("training",),
    ("adapters",),
    ("tiny",),
    ("evaluation", "parity"),
    ("experiment", "report"),
    ("compare",),
    ("cli",),
)
"""Nodes from the ground up."""
LAZY = {("registration", "envs")}
"""The one cycle: the registry imports the built-in environments at the first look-up."""
PURE = {"core": {"env_spec", "errors"}, "advantages": {"errors"}}
"""What the environment interface and the estimators may import, and nothing else."""

Arrow = tuple[str, str]


def modules(package: Path) -> Iterator[tuple[str, Path]]:
    """Yield ``(node, file)`` for every module below ``package``."""
    for path in sorted(package.rglob("*.py")):
        first = path.relative_to(package).parts[0]
        yield first.removesuffix(".py"), path


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the nodes of ``package`` that a parsed module imports, anywhere in it."""
    for node in ast.walk(tree):
        names: Iterable[str] = ()
        if isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise ValueError("relative import: write it absolute")
        for name in names:
            parts = name.split(".")
            if parts[0] == package and len(parts) > 1:
                yield parts[1]


def arrows(package: Path) -> tuple[set[str], set[Arrow]]:
    """The nodes of ``package`` and the arrows between them; ``__init__`` (lazy names) is none."""
    files = [(node, path) for node, path in modules(package) if node != "__init__"]
    nodes = {node for node, _ in files}
    found = {
        (node, target)
        for node, path in files
        for target in imported(ast.parse(path.read_text(encoding="utf-8")), package.name)
        if target in nodes and target != node
    }
    return nodes, found


def level(node: str) -> int:
    """Layer of a node. Raises ValueError for a node that the map does not have."""
    for number, layer in enumerate(LAYERS):
        if node in layer:
            return number
    raise ValueError(f"gem_core.{node} is in no layer: add it to tools/import_graph.py and the map")


def upward(found: Iterable[Arrow]) -> list[Arrow]:
    """The arrows that point up."""
    return sorted((a, b) for a, b in found if level(b) > level(a))


def cycles(found: set[Arrow]) -> list[list[str]]:
    """Groups of nodes that can reach each other, the lazy arrow left out."""
    reach: dict[str, set[str]] = {}
    direct: dict[str, set[str]] = {}
    for a, b in found - LAZY:
        direct.setdefault(a, set()).add(b)
    for start in direct:
        todo, seen = list(direct[start]), set()
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo += direct.get(node, ())
        reach[start] = seen
    groups = {
        tuple(sorted(b for b in seen if a in reach.get(b, ())))
        for a, seen in reach.items()
        if a in seen
    }
    return [list(group) for group in sorted(groups)]


def adapters_reached(root: Path) -> list[str]:
    """Imports that cross a border: from the core to an adapter, or from one adapter to another."""
    adapters = sorted(path.name for path in (root / "integrations").glob("gem_*"))
    crossing = []
    for owner in ("gem_core", *adapters):
        folder = root / owner if owner == "gem_core" else root / "integrations" / owner
        for _, path in modules(folder):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for other in adapters:
                if other != owner and any(imported_packages(tree, other)):
                    crossing.append(f"{path.relative_to(root)} imports {other}")
    return crossing


def imported_packages(tree: ast.AST, package: str) -> Iterator[bool]:
    """Yield True for every import of ``package`` or of something in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield any(alias.name.split(".")[0] == package for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0] == package


def main() -> int:
    """Print the counts; the exit code is 1 where an arrow points up, a cycle or a border crossing
    is found.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrows", action="store_true", help="list the arrows too")
    options = parser.parse_args()
    nodes, found = arrows(ROOT / "gem_core")
    up, circles, crossing = upward(found), cycles(found), adapters_reached(ROOT)
    if options.arrows:
        for node in sorted(nodes, key=lambda n: (level(n), n)):
            print(f"{node}: {' '.join(sorted(b for a, b in found if a == node))}")
    print(f"{len(nodes)} packages, {len(found)} arrows, {len(up)} upward, {len(circles)} cycles")
    for a, b in up:
        print(f"upward: {a} -> {b}")
    for group in circles:
        print(f"cycle: {' '.join(group)}")
    for text in crossing:
        print(f"border: {text}")
    return int(bool(up or circles or crossing))


if __name__ == "__main__":
    sys.exit(main())
