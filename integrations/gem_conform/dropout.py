"""Dropout in the tiny model, which has none: what samples with it differs from the model."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

MODULE = "transformers.models.qwen3.modeling_qwen3"
"""Module of the tiny model."""
RATE = 0.9
_SITE = "from gem_conform.dropout import install\n\ninstall()\n"


def add_dropout(folder: Path) -> dict[str, str]:
    """Return environment variables by which every Python process has the tiny model with dropout.

    Args:
        folder: gets the module that Python imports when it starts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    paths = [str(folder.resolve()), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


class _Finder(importlib.abc.MetaPathFinder):
    """Gives the model dropout when its module is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            load(module)
            _change(module.Qwen3Model)

        spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Change the model's class as soon as something imports it."""
    sys.meta_path.insert(0, _Finder())


def _change(model: Any) -> None:
    init = model.__init__

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.norm.register_forward_hook(_drop)

    model.__init__ = initialize


def _drop(norm: Any, inputs: Any, output: Any) -> Any:
    import torch

    return torch.nn.functional.dropout(output, RATE, norm.training)
