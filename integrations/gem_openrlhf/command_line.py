"""OpenRLHF's command line: its parser, asked before anything starts, and its start."""

from __future__ import annotations

import argparse
import ast
import runpy
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from gem_core.errors import GemError, RecipeError
from gem_core.runs.trainers import require
from gem_openrlhf import TRAINER

CLI = "openrlhf.cli.train_ppo_ray"


def run_command_line(arguments: Sequence[str]) -> None:
    """Run OpenRLHF's command line in this process, as ``python -m`` does."""
    with patch.object(sys, "argv", [CLI, *arguments]):
        runpy.run_module(CLI, run_name="__main__", alter_sys=True)


def known_flags() -> frozenset[str]:
    """Return every flag of OpenRLHF's command line, without the dashes; raises as `parser`."""
    options = (option for action in parser()._actions for option in action.option_strings)
    return frozenset(option.removeprefix("--") for option in options if option.startswith("--"))


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise RecipeError, with the parser's own message, if OpenRLHF would refuse ``arguments``."""
    parser().parse_args(arguments)


@cache
def parser() -> argparse.ArgumentParser:
    """Return the parser that OpenRLHF's own source builds; wrong arguments are RecipeErrors.

    It is built under ``if __name__ == "__main__"`` of a module that imports flash-attn and vLLM.
    Only the statements up to ``parse_args`` are run here, which takes milliseconds and imports
    nothing of OpenRLHF.

    Raises:
        MissingDependencyError: OpenRLHF is not installed.
        GemError: its source is not built like that.
    """
    require(TRAINER)
    spec = find_spec(CLI)
    if spec is None or spec.origin is None:
        raise GemError(f"OpenRLHF has no module {CLI}; install {_tested()}.")
    module = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    names: dict[str, Any] = {"argparse": argparse, "datetime": datetime}
    exec(compile(_parser_statements(module), spec.origin, "exec"), names)
    built: argparse.ArgumentParser = names["parser"]
    built.error = _refuse  # type: ignore[method-assign]
    return built


def _parser_statements(module: ast.Module) -> ast.Module:
    """Return the statements of the main block before the one that calls ``parse_args``."""
    statements: list[ast.stmt] = []
    for block in module.body:
        if isinstance(block, ast.If) and "__main__" in ast.unparse(block.test):
            statements = block.body
    for position, statement in enumerate(statements):
        if "parse_args" in ast.unparse(statement):
            return ast.Module(statements[:position], type_ignores=[])
    raise GemError(f"{CLI} does not parse its arguments as it did; install {_tested()}.")


def _refuse(message: str) -> NoReturn:
    raise RecipeError(f"OpenRLHF refuses its arguments: {message}. Correct [trainer.openrlhf].")


def _tested() -> str:
    return f"a tested version, {TRAINER.distribution}{TRAINER.tested_range}"
