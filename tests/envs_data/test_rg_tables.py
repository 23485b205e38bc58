"""The tables about reasoning-gym agree with the installed package."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import version

from reasoning_gym.factory import DATASETS

import gem_core
from gem_core.envs import _rg_tables as tables


def test_the_names_are_those_of_the_installed_version() -> None:
    assert version("reasoning-gym") == tables.VERSION
    assert set(tables.NAMES) == set(DATASETS) and list(tables.NAMES) == sorted(tables.NAMES)
    assert gem_core.list_envs("rg:*") == [f"rg:{name}" for name in sorted(DATASETS)]


def scorers_with(pattern: str) -> set[str]:
    names = set()
    for name, (dataset, _) in DATASETS.items():
        scorer = dataset.__dict__.get("score_answer")
        if scorer is not None and re.search(pattern, inspect.getsource(scorer)):
            names.add(name)
    return names


def test_every_scorer_that_evaluates_the_answer_is_listed() -> None:
    assert scorers_with(r"\beval\(answer\)") == tables.EVALS_ANSWER
    assert scorers_with(r"\bparse_expr\(answer\b") == tables.PARSES_ANSWER
    listed = tables.EVALS_ANSWER | tables.PARSES_ANSWER
    assert scorers_with(r"\b(eval|exec|parse_expr|sympify|compile)\(") - listed <= {
        "number_sorting"  # evaluates its own answer, not the agent's
    }


def test_every_module_that_uses_a_global_generator_is_listed() -> None:
    suspects = set()
    for name, (dataset, _) in DATASETS.items():
        source = inspect.getsource(inspect.getmodule(dataset))
        if re.search(r"\b(?:np\.random|random)\.(?!Random\b)[a-z]\w*\(", source):
            suspects.add(name)
    # list_functions draws in a module of its own, codeio in the programs among its data;
    # knights_knaves makes a generator of its own.
    elsewhere = {"list_functions", "codeio"}
    assert suspects - {"knights_knaves"} | elsewhere == tables.GLOBAL_RANDOM
