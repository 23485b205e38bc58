"""Names: functions are verbs, and a public class has a name of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (ROOT / "gem_core", ROOT / "integrations")
MAX_PARTICIPLES = 0.03
"""Share of the functions whose name begins with a participle, where a verb says what it does."""
IRREGULAR = {
    "begun",
    "bought",
    "broken",
    "built",
    "chosen",
    "done",
    "drawn",
    "found",
    "given",
    "gone",
    "held",
    "hidden",
    "kept",
    "known",
    "lost",
    "made",
    "met",
    "paid",
    "said",
    "sent",
    "seen",
    "shown",
    "slid",
    "spent",
    "taken",
    "tied",
    "told",
    "took",
    "written",
}
VERBS = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"}


def sources() -> dict[Path, ast.Module]:
    """Every module but the stand-ins of `cpu/`, which have the names of what they stand for."""
    return {
        path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"))
        for folder in FOLDERS
        for path in folder.rglob("*.py")
        if "cpu" not in path.relative_to(ROOT).parts
    }


def test_no_two_modules_define_a_public_class_of_the_same_name():
    assert shared_names(sources()) == []


def shared_names(modules: Mapping[Path, ast.Module]) -> list[str]:
    owners: dict[str, list[Path]] = {}
    for path, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners.setdefault(node.name, []).append(path)
    return sorted(
        f"{name}: {one} {other}"
        for name, paths in owners.items()
        for one, other in combinations(paths, 2)
        if one != other and not is_same_module_of_two_adapters(one, other)
    )


def is_same_module_of_two_adapters(one: Path, other: Path) -> bool:
    """Adapters have the same modules, and in them the same classes: `EnginePolicy`, `RunLog`."""
    apart = one.parts[1] != other.parts[1]
    return apart and all(
        path.parts[0] == "integrations" and path.parts[1] != "gem_adapters" for path in (one, other)
    )


def test_functions_are_verbs():
    names = [name for tree in sources().values() for name in functions(tree)]
    participles = [name for name in names if is_participle(name)]
    assert len(participles) <= MAX_PARTICIPLES * len(names), sorted(participles)


def functions(tree: ast.AST) -> Iterator[str]:
    """Names of functions and methods; properties are read like fields, and have their names."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if not node.name.startswith("__") and not any(
                "property" in text or text.endswith(".setter") for text in decorators
            ):
                yield node.name


def is_participle(name: str) -> bool:
    word = name.lstrip("_").split("_")[0]
    return word in IRREGULAR or (len(word) > 3 and word.endswith("ed") and word not in VERBS)


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("gem_core/runs/a.py", "gem_core/env/b.py", 1),
        ("gem_core/runs/a.py", "integrations/gem_trl/a.py", 1),
        ("integrations/gem_adapters/a.py", "integrations/gem_trl/a.py", 1),
        ("integrations/gem_trl/a.py", "integrations/gem_trl/b.py", 1),
        ("integrations/gem_oat/a.py", "integrations/gem_trl/a.py", 0),
    ],
)
def test_a_name_that_two_modules_give_is_found(one, other, found):
    tree = ast.parse("class Limits: ...\nclass _Own: ...")
    assert len(shared_names({Path(one): tree, Path(other): tree})) == found


@pytest.mark.parametrize(
    ("name", "participle"),
    [
        ("_made", True),
        ("placed_on", True),
        ("seed", False),
        ("feed_back", False),
        ("set_up", False),
    ],
)
def test_a_participle_is_found(name, participle):
    assert is_participle(name) == participle


def test_properties_are_not_counted():
    tree = ast.parse("class A:\n @property\n def closed(self): ...\n def _closed(self): ...")
    assert list(functions(tree)) == ["_closed"]
