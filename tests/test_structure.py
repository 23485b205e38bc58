"""The code has the structure that docs/design.md describes, read with Python's own parser."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import import_graph  # noqa: E402

SOURCES = [*(ROOT / "gem_core").rglob("*.py"), *(ROOT / "integrations").rglob("*.py")]
ADAPTERS = sorted(
    path
    for path in (ROOT / "integrations").glob("gem_*")
    if path.is_dir() and path.name not in import_graph.COMPANIONS
)
MAX_LINES = 46_200
"""Lines of ``gem_core``: what grows beyond them is a package beside it, or goes."""
MAX_ENTRIES = 13
"""Modules and packages directly below ``gem_core``. What is new finds its place in one of them."""
MAX_ARROWS = 60
"""Pairs of them of which one imports the other."""
MAX_FUNCTION = 50
"""Lines of a function, from its name to its end, docstring not counted."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def trees():
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCES]


def graph_of(package):
    return import_graph.module_graph(package)


def test_arrows_point_down():
    arrows = import_graph.arrows(graph_of(ROOT / "gem_core"))
    nodes = import_graph.entries(ROOT / "gem_core")
    assert {import_graph.level(node) for node in nodes}  # every entry is on the map
    assert import_graph.upward(arrows) == []
    assert arrows >= import_graph.LAZY, "the lazy import is gone: remove it from LAZY"
    assert len(nodes) <= MAX_ENTRIES and len(arrows) <= MAX_ARROWS, (len(nodes), len(arrows))


@pytest.mark.parametrize("package", import_graph.packages(ROOT), ids=lambda path: path.name)
def test_no_modules_import_each_other(package):
    assert import_graph.circles(graph_of(package)) == []


def test_modules_of_runs_import_those_that_its_docstring_has_above_them():
    package = ROOT / "gem_core" / "runs"
    listed = re.findall(r"^([a-z_]+)/?  +\S", (package / "__init__.py").read_text(), re.MULTILINE)
    there = {path.stem for path in package.iterdir() if path.stem[0] != "_"}
    assert sorted(listed) == sorted(there)
    upward = [
        (module, target)
        for module, targets in graph_of(ROOT / "gem_core").items()
        for target in targets
        if module.startswith("gem_core.runs.") and target.startswith("gem_core.runs.")
        if listed.index(module.split(".")[2]) < listed.index(target.split(".")[2])
    ]
    assert upward == []


def test_the_kernel_imports_itself_and_numpy_and_msgspec():
    assert import_graph.kernel_strangers(ROOT) == []


@pytest.mark.parametrize(
    "line",
    [
        "from gem_core.execution.workers import WorkerPool",
        "import torch",
        "def f():\n    from gem_core import runs",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import gem_core.tools.base",
    ],
)
def test_a_stranger_in_the_kernel_is_found(tmp_path, line):
    (tmp_path / "gem_core" / "episodes").mkdir(parents=True)
    (tmp_path / "gem_core" / "__init__.py").touch()
    (tmp_path / "gem_core" / "episodes" / "machine.py").write_text(line)
    (found,) = import_graph.kernel_strangers(tmp_path)
    assert found.startswith("gem_core.episodes.machine imports ")


def test_the_core_stays_small():
    lines = sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "gem_core").rglob("*.py")
    )
    assert lines <= MAX_LINES


def test_the_core_imports_no_other_package_and_adapters_not_each_other():
    assert import_graph.borders_crossed(ROOT) == []


@pytest.mark.parametrize(
    ("arrows", "up", "circles"),
    [
        ({("training", "episodes"), ("cli", "env")}, 0, 0),
        ({("env", "training")}, 1, 0),
        ({("episodes", "training"), ("training", "episodes")}, 1, 1),
        ({("env", "envs"), ("envs", "env")}, 0, 1),
    ],
)
def test_a_wrong_arrow_is_found(arrows, up, circles):
    graph = {}
    for a, b in arrows:
        graph.setdefault(a, set()).add(b)
    assert len(import_graph.upward(arrows)) == up
    assert len(import_graph.circles(graph)) == circles


def test_functions_are_short():
    long = [
        f"{named(path)}:{node.lineno} {node.name}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and body_lines(node) > MAX_FUNCTION
    ]
    assert long == []


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return node.end_lineno - first[0].lineno + 1


def test_what_the_adapters_share_is_used_by_two_of_them():
    single = {}
    folder = ROOT / "integrations" / "gem_adapters"
    for path in folder.glob("[a-z]*.py"):
        name = f"gem_adapters.{path.stem}"
        users = {a.name for a in ADAPTERS if any(name in p.read_text() for p in a.rglob("*.py"))}
        users |= {p.stem for p in folder.glob("*.py") if name in p.read_text(encoding="utf-8")}
        if len(users) < 2:
            single[path.stem] = users
    assert single == {}, "what one adapter uses belongs in that adapter"


def test_a_gpu_path_does_not_import_the_cpu_backend():
    """`cpu/` stands in for an engine and a device; only functions for CPU runs may import it."""
    offenders = [
        f"{named(path)}:{node.lineno}"
        for adapter in ADAPTERS
        for path in adapter.rglob("*.py")
        if "cpu" not in path.relative_to(adapter).parts
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.Import, ast.ImportFrom)) and imports_cpu(node, adapter.name)
    ]
    assert offenders == []


def imports_cpu(node: ast.Import | ast.ImportFrom, package: str) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.startswith(f"{package}.cpu") for alias in node.names)
    whole = [f"{node.module}.{alias.name}" for alias in node.names]
    return any(name == f"{package}.cpu" or name.startswith(f"{package}.cpu.") for name in whole)


def test_formatting_is_switched_off_for_tables_only():
    """``fmt: skip`` may stand at the end of a dictionary, list or set, nowhere else."""
    offenders = []
    for path in SOURCES:
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            if "fmt: off" in line or ("fmt: skip" in line and not line.lstrip().startswith(TABLE)):
                offenders.append(f"{named(path)}:{number}: {line.strip()}")
    assert offenders == []


TABLE = ("}", "]")
"""How the last line of a table begins."""
