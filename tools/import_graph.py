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
    ("registration", "wrappers", "sandbox", "tools", "graders", "data", "envs", "workers"),
    ("players", "checker", "bridges"),
    ("episodes", "advantages"),
    ("server",),
    ("engines", "vector"),
    ("training",),
    ("adapters", "tracking"),
    ("tiny",),
    ("evaluation", "parity"),
    ("experiment", "report", "view", "plan"),
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


def imported(path: Path, package: Path) -> Iterator[str]:
    """Yield the nodes of ``package`` that the module in ``path`` imports, anywhere in it."""
    inside = (package.name, *path.relative_to(package).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: Iterable[str] = ()
        if isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else ()
            source = ".".join([*base, *([node.module] if node.module else [])])
            names = (f"{source}.{alias.name}" for alias in node.names)
        for name in names:
            parts = name.split(".")
            if parts[0] == package.name and len(parts) > 1:
                yield parts[1]


def arrows(package: Path) -> tuple[set[str], set[Arrow]]:
    """Return the nodes of ``package`` and the arrows between them.

    ``__init__`` and ``__main__`` are none: they name what others define.
    """
    files = [(node, path) for node, path in modules(package) if not node.startswith("__")]
    nodes = {node for node, _ in files}
    graph = {
        (node, target)
        for node, path in files
        for target in imported(path, package)
        if target in nodes and target != node
    }
    return nodes, graph


def level(node: str) -> int:
    """Layer of a node. Raises KeyError for a node that the map does not have."""
    return {name: number for number, layer in enumerate(LAYERS) for name in layer}[node]


def upward(graph: Iterable[Arrow]) -> list[Arrow]:
    """Return the arrows that point up."""
    return sorted((a, b) for a, b in graph if level(b) > level(a))


def cycles(graph: set[Arrow]) -> list[list[str]]:
    """Return the groups of nodes that can reach each other, the lazy arrow left out."""
    reach: dict[str, set[str]] = {}
    direct: dict[str, set[str]] = {}
    for a, b in graph - LAZY:
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
    """Return the imports from the core to an adapter, or from one adapter to another."""
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
    """Print the counts.

    Returns:
        1 where an arrow points up, a cycle, a crossed border or a node outside of the map is found.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrows", action="store_true", help="list the arrows too")
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="another checkout, such as an older one"
    )
    options = parser.parse_args()
    nodes, graph = arrows(options.root / "gem_core")
    mapped = {name for layer in LAYERS for name in layer}
    strangers = sorted(nodes - mapped)
    up = upward(arrow for arrow in graph if mapped.issuperset(arrow))
    circles, crossing = cycles(graph), adapters_reached(options.root)
    if options.arrows:
        for node in sorted(nodes):
            print(f"{node}: {' '.join(sorted(b for a, b in graph if a == node))}")
    print(f"{len(nodes)} packages, {len(graph)} arrows, {len(up)} upward, {len(circles)} cycles")
    problems = [
        *(f"not on the map: {node}" for node in strangers),
        *(f"upward: {a} -> {b}" for a, b in up),
        *(f"cycle: {' '.join(group)}" for group in circles),
        *(f"border: {text}" for text in crossing),
    ]
    print("\n".join(problems), end="\n" if problems else "")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
