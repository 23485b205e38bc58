"""What is imported from ``gem_core`` itself: every name, on first use, and nothing heavy before."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import gem_core

ROOT = Path(__file__).resolve().parents[1]
NEEDED = (
    *("make", "make_vec", "Context", "EpisodeMachine", "play_many", "compute_advantages"),
    *("load_recipe", "run_experiment"),
)
"""What a loop of one's own needs."""
HEAVY = ("torch", "transformers", "trl", "verl", "openrlhf", "oat", "RL2", "ray", "vllm")


def imported_after(program: str) -> set[str]:
    """Return the modules of a new interpreter after a program."""
    program += "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("name", gem_core.__all__)
def test_every_name_is_the_one_of_its_module(name: str) -> None:
    if name == "__version__":
        return
    module = import_module(f"gem_core.{gem_core._MODULES[name]}")
    assert getattr(gem_core, name) is getattr(module, name)


def test_the_names_for_a_loop_are_public_and_the_lists_agree() -> None:
    assert set(NEEDED) <= set(gem_core.__all__) <= set(dir(gem_core))
    assert {*gem_core._MODULES, "__version__"} == set(gem_core.__all__)


def test_a_type_checker_sees_the_same_names() -> None:
    tree = ast.parse(Path(gem_core.__file__).read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: f"gem_core.{module}" for name, module in gem_core._MODULES.items()}


def test_import_alone_imports_no_other_module_of_the_package() -> None:
    modules = imported_after("import gem_core")
    assert {m for m in modules if m.startswith("gem_")} == {"gem_core"}
    assert not modules & {*HEAVY, "numpy", "msgspec"}
    bare = imported_after("")
    assert modules - bare == {"__future__", "gem_core"}


def test_the_names_for_a_loop_import_neither_torch_nor_a_trainer() -> None:
    modules = imported_after(f"from gem_core import {', '.join(NEEDED)}")
    assert not modules & set(HEAVY)


def test_the_example_takes_its_functions_from_the_package_itself() -> None:
    text = (ROOT / "examples" / "minimal_loop.py").read_text(encoding="utf-8")
    for name in ("load_recipe", "play_batch", "compute_advantages", "step_tasks"):
        assert f"gem_core.{name}(" in text


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = gem_core.no_such_name
