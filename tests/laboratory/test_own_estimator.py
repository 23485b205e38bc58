"""`run.py --estimator` takes every name that `compute_advantages` takes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from gem_core.errors import GemError

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "laboratory" / "run.py"
OWN = """
from gem_core.advantages import discounted_returns


def doubled(batch, *, gamma, lam, reduce):
    return 2 * discounted_returns(batch, gamma)
"""


@pytest.fixture(scope="module")
def program() -> Any:
    spec = importlib.util.spec_from_file_location("laboratory_program", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("page", None)  # other benchmarks have a module of this name
    return module


def test_a_function_of_a_module(program: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "laboratory_own_module.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    table = program.table_of("laboratory_own_module:doubled", 8)
    assert "laboratory_own_module:doubled" in table and "reinforce" in table


@pytest.mark.parametrize("name", ["reinforc", "laboratory_nowhere:f"])
def test_a_name_that_is_none(program: Any, name: str) -> None:
    with pytest.raises(GemError, match=r"reinforce|laboratory_nowhere"):
        program.table_of(name, 8)
