from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))  # for the helpers of these tests


@pytest.fixture(scope="session")
def load_tool() -> Callable[[str], ModuleType]:
    """Import a script of tools/ by its path: tools/ is no package."""

    def load(name: str) -> ModuleType:
        path = ROOT / "scripts" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"gem_core_tool_{name}", path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
