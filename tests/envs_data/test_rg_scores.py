"""The two scores of rg:*: reasoning-gym's own, exactly, and the strict one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gem_core
from gem_core.envs import _rg_scores
from gem_core.envs._rg_tables import IN_WORKER, NAMES, VERSION
from gem_core.errors import UnknownNameError

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "rg_scores" / "run.py"
EVALUATED = (
    "countdown",
    "intermediate_integration",
    "n_queens",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
    "spiral_matrix",
    "string_insertion",
)


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_own_score_is_that_of_the_package(slow: bool, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    names = ("countdown", "game_of_life_halting", "gsm_symbolic", "letter_counting")
    if slow:
        names = (*EVALUATED, *names[1:], "sokoban")
    command = [sys.executable, SCRIPT, "--items", "1", "--result", result]
    command += ["--page", tmp_path / "page.md", "--allow-dirty", "--generators", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    generators = json.loads(result.read_text())["generators"]
    assert [g["different"] for g in generators.values()] == [[]] * len(names), done.stderr
    assert done.returncode == 0 and sum(g["answers"] for g in generators.values()) > 50 * len(names)


def test_the_committed_comparison_is_of_all_generators_and_found_no_difference() -> None:
    result = json.loads(SCRIPT.with_name("result.json").read_text())
    assert result["versions"]["reasoning_gym"] == VERSION
    assert sorted(result["generators"]) == sorted(set(NAMES) - {"composite"})
    for name, figures in result["generators"].items():
        assert figures["answers"] > 100, name
        assert figures["different"] == [] and figures["solutions_refused"] == 0, name
    paid = {name for name, g in result["generators"].items() if g["full_pay_refused"]}
    assert paid and paid <= _rg_scores.CHECKED


def rewards(name: str, answer: str, item: int = 0, **kwargs: Any) -> tuple[float, float]:
    """The strict and the own reward."""
    results = []
    for score in ("strict", "reasoning_gym"):
        env = gem_core.make(f"rg:{name}", score=score, **kwargs)
        env.reset(options={"index": item})
        right = env.peek().removeprefix("\\boxed{").removesuffix("}")
        results.append(env.step(f"\\boxed{{{answer.format(right)}}}"))
    strict, own = results
    assert strict[4]["reasoning_gym_score"] == own[1] == own[4]["score"]
    assert strict[4]["success"] == (strict[1] == 1.0)
    return strict[1], own[1]


@pytest.mark.parametrize(
    ("name", "answer", "strict", "own"),
    [
        ("leg_counting", "{}", 1.0, 1.0),
        ("letter_counting", "{}1", 0.0, 0.5),  # contains the right answer
        ("chain_sum", "1 {}", 0.0, pytest.approx(0.71, abs=0.2)),
        ("countdown", "no idea", 0.0, 0.01),
        ("countdown", "1 + 1", 0.0, 0.05),
        ("countdown", "{}.", 1.0, 1.0),
        ("puzzle24", "?", 0.0, 0.01),
        ("simple_integration", "{} + C1", 1.0, 1.0),
        ("simple_integration", "{} + C*C2", 1.0, 1.0),
        ("intermediate_integration", "{} + c_1", 1.0, 1.0),
        ("gsm_symbolic", "-{}", 0.0, 1.0),
        ("gsm_symbolic", "{} or 7", 0.0, 1.0),
        ("gsm_symbolic", "It is {} pounds.", 1.0, 1.0),
        ("game_of_life_halting", "maybe", 0.0, 1.0),
        ("game_of_life_halting", "{}.", 1.0, 1.0),
        ("spiral_matrix", "[1, 2]", 0.0, 0.0),
    ],
)
def test_strict_and_own(name: str, answer: str, strict: float, own: float) -> None:
    assert rewards(name, answer) == (strict, own)


def test_an_integral_is_not_its_own_answer() -> None:
    question = "integrate(diff({}, X), X)"  # what is asked, put to SymPy
    assert rewards("simple_integration", question) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("numbers", "target", "answer", "right"),
    [
        ([8, 3, 8, 3], 24, "8 / (3 - 8/3)", True),
        ([8, 3, 8, 3], 24, "8/(3-8/3).", True),
        ([8, 3, 8, 3], 24, "8 * 3 * (8 - 7) * 1", False),
        ([7, 7, 2, 1], 24, "7*7/2*1", False),  # 24.5
        ([1000, 1001], 999, "1000*1000/1001", False),  # 999.001
        ([5, 5], 25, "5 + 5 * (4)", False),
        ([2, 5], 32, "2**5", False),
        ([1, 1], 2, "1 +", False),
        ([0, 1], 1, "1/0", False),
        ([1], -1, "-(+1)", True),
    ],
)
def test_arithmetic_is_exact(numbers: list[int], target: int, answer: str, right: bool) -> None:
    entry = {"answer": None, "metadata": {"numbers": numbers, "target": target}}
    assert _rg_scores.is_right("countdown", entry, answer) is right


def test_a_beginning_is_not_the_whole() -> None:
    entry = {"answer": "noremopyh", "metadata": {}}
    assert _rg_scores.is_right("spell_backward", entry, "NOREMOPYH")
    assert not _rg_scores.is_right("spell_backward", entry, "noremopyhs")


def test_the_score_is_named_and_compat_means_gems() -> None:
    assert gem_core.make("rg:chain_sum").unwrapped.score == "strict"
    assert gem_core.make("rg:chain_sum", compat="gem-0.1.0").unwrapped.score == "reasoning_gym"
    both = gem_core.make("rg:chain_sum", compat="gem-0.1.0", score="strict")
    assert both.unwrapped.score == "strict"
    with pytest.raises(UnknownNameError, match="'strict', 'reasoning_gym'"):
        gem_core.make("rg:chain_sum", score="stric")


@pytest.mark.parametrize(
    ("answer", "harmless"),
    [
        ("x**2 + C1", True),
        ("5 + 3 == 8", True),
        ("'x + 1'", True),
        ("factorial(4)!", True),
        ("hello world", True),
        ("__import__('os')", False),
        ("__import__", False),
        ("open(x)", False),
        ("eval(1)", False),
        ("lambdify(x)", False),
        ("sympify(x)", False),
        ("x.real", False),
        ("'open(x)'", False),
        ("'a' + 'b'", False),
        ("sin('x')", False),
        ("[x]", False),
        ("lambda: x", False),
        ("(x := 1)", False),
    ],
)
def test_what_sympy_may_parse(answer: str, harmless: bool) -> None:
    assert _rg_scores.harmless(answer) is harmless


def test_what_is_evaluated_is_literals_and_operators() -> None:
    assert _rg_scores.evaluate(" [[0, 1] + [2]] * 2") == [[0, 1, 2]] * 2
    assert _rg_scores.evaluate("'abc'[::-1] if 1 < 2 else ()") == "cba"
    for code in ("open", "print(1)", "[x for x in (1, 2)]", "(1).real", "f'{1}'", "lambda: 1"):
        with pytest.raises(ValueError, match="is not evaluated"):
            _rg_scores.evaluate(code)


def test_every_scorer_that_evaluates_runs_in_a_worker() -> None:
    assert set(EVALUATED) <= IN_WORKER
