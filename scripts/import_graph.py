#!/usr/bin/env python3
"""Count the entries of gem-core and the imports between them: ``python scripts/import_graph.py``.

An entry is a module or package directly below ``gem_core``; an arrow is "some module of A imports
some module of B". Imports inside functions and for type checking count too. `LAYERS` is the map of
docs/design.md: an arrow may point further down, or within its layer, never up. Circles are looked
for among the modules of the core and of every adapter, not among the entries only.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("env",),
    ("episodes", "advantages"),
    ("execution",),
    ("tools",),
    ("envs",),
    ("runs",),
    ("policies",),
    ("evaluation", "results"),
    ("training",),
    ("cli",),
)
"""Entries from the ground up."""
KERNEL = ("errors", "env", "episodes", "advantages")
"""The environment interface, episodes and estimators: all that a trainer's loop needs."""
KERNEL_MAY_IMPORT = {"numpy", "msgspec"}
"""What the kernel imports besides the standard library and itself."""
COMPANIONS = {
    "gem_adapters": (),
    "gem_bridges": (),
    "gem_compare": ("gem_view",),
    "gem_completion": (),
    "gem_conform": ("gem_adapters", "gem_compare", "gem_parity"),
    "gem_export": (),
    "gem_init": (),
    "gem_memory": (),
    "gem_models": (),
    "gem_parity": (),
    "gem_preflight": ("gem_sandbox",),
    "gem_push": (),
    "gem_sandbox": (),
    "gem_server": (),
    "gem_submit": ("gem_compare",),
    "gem_view": (),
    "gem_yaml": (),
}
"""The packages beside the core that are no adapters, and those of them that each imports."""
LAZY = {("env", "envs")}
"""The one arrow up: the registry imports the built-in environments at the first look-up."""

Arrow = tuple[str, str]
Graph = Mapping[str, set[str]]


def entry_of(module: str) -> str:
    """Return the entry below its package to which a module belongs, "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def modules_of(package: Path) -> dict[str, Path]:
    """Return the file of every module of a package by its dotted name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_names(module: str, path: Path) -> Iterator[str]:
    """Yield the dotted names that a module imports, anywhere in it."""
    inside = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def module_graph(package: Path) -> dict[str, set[str]]:
    """Return which modules of a package each of them imports."""
    files = modules_of(package)
    graph: dict[str, set[str]] = {module: set() for module in files}
    for module, path in files.items():
        for name in imported_names(module, path):
            while name and name not in files:
                name = name.rpartition(".")[0]
            if name and name != module:
                graph[module].add(name)
    return graph


def arrows(graph: Graph) -> set[Arrow]:
    """Return the arrows between entries; ``__init__`` and ``__main__`` of the package are none."""
    pairs = {(entry_of(a), entry_of(b)) for a, targets in graph.items() for b in targets}
    return {
        (a, b)
        for a, b in pairs
        if a != b and a and b and not a.startswith("__") and not b.startswith("__")
    }


def entries(package: Path) -> set[str]:
    """Return the modules and packages directly below a package."""
    found = {entry_of(module) for module in modules_of(package)}
    return {name for name in found if name and not name.startswith("__")}


def level(entry: str) -> int:
    """Layer of an entry. Raises KeyError for one that the map does not have."""
    return {name: number for number, layer in enumerate(LAYERS) for name in layer}[entry]


def upward(found: Iterable[Arrow]) -> list[Arrow]:
    """Return the arrows that point up, the lazy one left out."""
    return sorted((a, b) for a, b in found if level(b) > level(a) and (a, b) not in LAZY)


def circles(graph: Graph) -> list[list[str]]:
    """Return the groups of nodes that can reach each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            cut = stack.index(node)
            group = sorted(stack[cut:])
            del stack[cut:]
            if len(group) > 1:
                groups.append(group)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(groups)


def kernel_strangers(root: Path) -> list[str]:
    """Return the imports of the kernel that are neither its own nor allowed to it."""
    package = root / "gem_core"
    allowed = sys.stdlib_module_names | KERNEL_MAY_IMPORT
    strangers = []
    for module, path in modules_of(package).items():
        if entry_of(module) not in KERNEL:
            continue
        for name in imported_names(module, path):
            top, _, rest = name.partition(".")
            entry = rest.split(".")[0]
            own = top == "gem_core" and (entry in KERNEL or (entry_of(module), entry) in LAZY)
            if top not in allowed and not own:
                strangers.append(f"{module} imports {name}")
    return sorted(set(strangers))


def packages(root: Path) -> list[Path]:
    """Return the packages of the project: the core, its companions, the adapters."""
    return [root / "gem_core", *sorted((root / "integrations").glob("gem_*"))]


def borders_crossed(root: Path) -> list[str]:
    """Return the imports from the core to another package, and those between the others.

    An adapter imports ``gem_adapters``, which is what adapters share, and a companion those that
    `COMPANIONS` says.
    """
    others = {path.name for path in packages(root)} - {"gem_core"}
    crossing = set()
    for package in packages(root):
        shared = () if package.name == "gem_core" else ("gem_adapters",)
        allowed = {package.name, "gem_core", *COMPANIONS.get(package.name, shared)}
        for module, path in modules_of(package).items():
            tops = {name.split(".")[0] for name in imported_names(module, path)}
            crossing |= {f"{module} imports {top}" for top in tops & (others - allowed)}
    return sorted(crossing)


def main() -> int:
    """Print the counts.

    Returns:
        1 where an arrow points up, a circle, a crossed border, an import that the kernel may not
        have, or an entry outside of the map is found.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrows", action="store_true", help="list the arrows too")
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="another checkout, such as an older one"
    )
    options = parser.parse_args()
    package = options.root / "gem_core"
    graph = module_graph(package)
    found, nodes = arrows(graph), entries(package)
    mapped = {name for layer in LAYERS for name in layer}
    up = upward(arrow for arrow in found if mapped.issuperset(arrow))
    rings = [ring for path in packages(options.root) for ring in circles(module_graph(path))]
    if options.arrows:
        for node in sorted(nodes):
            print(f"{node}: {' '.join(sorted(b for a, b in found if a == node))}")
    print(
        f"{len(nodes)} entries, {len(found)} arrows, {len(up)} upward, "
        f"{len(rings)} circles of modules"
    )
    problems = [
        *(f"not on the map: {node}" for node in sorted(nodes - mapped)),
        *(f"upward: {a} -> {b}" for a, b in up),
        *(f"circle: {' '.join(ring)}" for ring in rings),
        *(f"border: {text}" for text in borders_crossed(options.root)),
        *(f"kernel: {text}" for text in kernel_strangers(options.root)),
    ]
    print("\n".join(problems), end="\n" if problems else "")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
